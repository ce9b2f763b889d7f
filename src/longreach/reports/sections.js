// The other sections of the report page, its controls and its theme.  Sections without data stay hidden.
"use strict";

const show = (id, wanted) => {
  byId(id).hidden = !wanted;
  const link = document.querySelector(`nav a[href="#${id}"]`);
  if (link) link.hidden = !wanted;
  return wanted;
};

// ---- heat map of two fields

const heat = {x: "length", y: "", value: ""};

function heatFields(curves) {
  return FIELDS.filter((field) => field !== "seed" && valuesOf(curves, field).length > 1);
}

function drawHeat() {
  const curves = shown(state.metric), fields = heatFields(curves);
  if (!show("heat-section", fields.length > 0)) return;
  const lengths = [...new Set(curves.flatMap((curve) => curve.points.map((point) => point.x)))].sort((a, b) => a - b);
  const loss = LOSSES.includes(state.metric);
  const values = [...(loss ? [] : data.thresholds.map((p) => `reach@${p}`)), ...lengths.toReversed().map((length) => `at ${length}`)];
  if (!fields.includes(heat.y)) {
    heat.y = fields.includes(state.colour) ? state.colour : fields[0];
    // two fields that differ: one along each side, so that no cell mixes them
    if (fields.length === 2) heat.x = fields.find((field) => field !== heat.y);
  }
  if (heat.x !== "length" && (!fields.includes(heat.x) || heat.x === heat.y)) heat.x = "length";
  if (!values.includes(heat.value)) heat.value = `at ${lengths.at(-1)}`;
  fillSelect("heat-y", fields, heat.y);
  fillSelect("heat-x", ["length", ...fields.filter((field) => field !== heat.y)], heat.x);
  fillSelect("heat-value", values, heat.value);
  byId("heat-value").parentElement.hidden = heat.x === "length";
  const ys = valuesOf(curves, heat.y), byLength = heat.x === "length";
  const xs = byLength ? lengths.map(String) : valuesOf(curves, heat.x);
  const z = [], text = [];
  for (const y of ys) {
    const row = curves.filter((curve) => valueOf(curve, heat.y) === y);
    const cells = xs.map((x) => heatCell(row, x, byLength));
    z.push(cells.map((cell) => cell.z));
    text.push(cells.map((cell, place) => `${plain(heat.y)}: ${plain(y)}<br>${plain(heat.x)}: ${plain(xs[place])}<br>${cell.text}`));
  }
  const reaches = !byLength && heat.value.startsWith("reach");
  const trace = {
    type: "heatmap", x: xs.map(plain), y: ys.map(plain), z, text, hoverinfo: "text", colorscale: "Viridis", xgap: 1, ygap: 1,
    ...(loss || reaches ? {} : {zmin: 0, zmax: 1}), colorbar: {title: {text: loss ? "nats" : reaches ? heat.value : "score", side: "right"}, thickness: 14},
  };
  const layout = baseLayout(Math.min(1600, 110 + 26 * ys.length));
  layout.xaxis = {type: "category", title: {text: plain(heat.x)}, automargin: true, showgrid: false};
  layout.yaxis = {type: "category", autorange: "reversed", automargin: true, ticksuffix: " ", showgrid: false};
  byId("heat-note").textContent = heatNote(curves);
  const room = (byId("heat").clientWidth - 190) / xs.length;
  if (xs.length * ys.length <= 240 && room >= 26) layout.annotations = heatLabels(z, loss || reaches, room < 44 ? 9 : 12);
  render("heat", [trace], layout, `Heat map: ${heat.y} by ${heat.x}.`, []);
}

// the fields that differ within a cell
function heatNote(curves) {
  const cells = [...groupBy(curves, (curve) => `${valueOf(curve, heat.y)}\n${heat.x === "length" ? "" : valueOf(curve, heat.x)}`).values()];
  const differ = FIELDS.filter((field) => cells.some((inside) => valuesOf(inside, field).length > 1));
  if (!differ.length) return "Each cell is one run.";
  return `Each cell is the median over ${listed(differ)}.`;
}

// numbers in the cells, black on the light half of the colours and white on the dark half
function heatLabels(z, scaled, size) {
  const all = z.flat().filter((value) => value !== null);
  const low = scaled ? Math.min(...all) : 0, high = scaled ? Math.max(...all) : 1;
  return z.flatMap((row, y) => row.flatMap((value, x) => (value === null ? [] : [{
    x, y, text: String(Number(value.toPrecision(3))), showarrow: false, font: {size, color: (value - low) / (high - low || 1) >= 0.5 ? "#000000" : "#FFFFFF"},
  }])));
}

function heatCell(curves, x, byLength) {
  const length = byLength ? Number(x) : Number(heat.value.slice(3));
  const inside = byLength ? curves : curves.filter((curve) => valueOf(curve, heat.x) === x);
  const values = !byLength && heat.value.startsWith("reach")
    ? inside.map((curve) => reach(curve, Number(heat.value.slice(6))))
    : inside.flatMap((curve) => curve.points.filter((point) => point.x === length).map((point) => point.y));
  if (!values.length) return {z: null, text: "not tested"};
  const worst = LOSSES.includes(state.metric) ? Math.max(...values) : Math.min(...values);
  return {z: median(values), text: `median of ${values.length}: ${median(values).toPrecision(3)}<br>worst: ${worst.toPrecision(3)}`};
}

// ---- how answers go wrong

let errorVariant = "all";

function drawErrors() {
  const place = (metric) => data.metrics.indexOf(metric);
  const kinds = [[place("error_token_first"), "token first", "#0072B2"], [place("error_id_first"), "ID first", "#E69F00"]].filter(([number]) => number >= 0);
  const tenths = [...Array(10).keys()].map((tenth) => place(`first_error_tenth_${tenth}`));
  const {run, metric, length, hits, samples} = data.cells;
  const wanted = new Set([...kinds.map(([number]) => number), ...tenths]);
  const rows = metric.flatMap((number, i) => (wanted.has(number) && samples[i] ? [i] : []));
  const wrong = rows.filter((i) => hits[i]);
  if (!show("errors-section", wrong.length > 0)) return;
  const names = data.variants.map((variant) => variant.name).filter((_, number) => wrong.some((i) => data.runs[run[i]].variant === number));
  fillSelect("errors-variant", ["all", ...names], errorVariant);
  const chosen = rows.filter((i) => errorVariant === "all" || data.variants[data.runs[run[i]].variant].name === errorVariant);
  const lengths = [...new Set(chosen.map((i) => length[i]))].sort((a, b) => a - b);
  const traces = kinds.map(([number, name, colour]) => {
    const own = groupBy(chosen.filter((i) => metric[i] === number), (i) => length[i]);
    const sum = (column) => lengths.map((one) => (own.get(one) ?? []).reduce((total, i) => total + column[i], 0));
    const counts = sum(hits), of = sum(samples);
    return {
      type: "bar", name, x: lengths.map(String), y: counts, marker: {color: colour}, hoverinfo: "text", textposition: "none",
      text: lengths.map((one, i) => `length ${one}: ${counts[i]} of ${of[i]} answers, ${name}`),
    };
  });
  const beyond = chosen.filter((i) => length[i] > (data.runs[run[i]].trained?.[1] ?? 0));
  const counts = tenths.map((number) => beyond.filter((i) => metric[i] === number).reduce((total, i) => total + hits[i], 0));
  const total = counts.reduce((sum, count) => sum + count, 0);
  const layout = baseLayout(330), grid = gridOf(total ? 2 : 1);
  layout.height *= grid.rows;
  placePanel(layout, grid, 0, "what went wrong first");
  Object.assign(layout.xaxis, {type: "category", title: {text: "length", standoff: 4}, automargin: true});
  Object.assign(layout.yaxis, {title: {text: "wrong answers", standoff: 4}, gridcolor: css("--grid"), rangemode: "tozero"});
  if (total) {
    const where = data.runs.some((run) => run.trained) ? " beyond training" : "";
    const axes = placePanel(layout, grid, 1, `first errors of ${total} answers${where}`);
    traces.push({
      ...axes, type: "bar", showlegend: false, marker: {color: "#009E73"}, x: counts.map((_, tenth) => `${10 * tenth}%`), y: counts,
      hoverinfo: "text", textposition: "none", text: counts.map((count, tenth) => `${10 * tenth} to ${10 * tenth + 10}% of the answer: ${count} of ${total}`),
    });
    Object.assign(layout.xaxis2, {type: "category", title: {text: "place in the answer", standoff: 4}, automargin: true, tickangle: 0, tickvals: [0, 2, 4, 6, 8]});
    Object.assign(layout.yaxis2, {gridcolor: css("--grid"), rangemode: "tozero"});
  }
  layout.barmode = "stack";
  placeLegend(layout, kinds.map(([, name]) => name));
  render("errors", traces, layout, "Wrong answers by length and by the place of the first error, as counts.", traces.map((_, number) => number));
}

// ---- training, coverage of IDs, measures

function drawTraining() {
  const traces = [];
  data.training.forEach((curve, number) => {
    if (!curve) return;
    const variant = data.runs[number].variant, look = lookOf("variant", data.variants[variant].name, variant);
    let trace = traces.find((one) => one.variant === variant);
    if (!trace) {
      trace = {variant, x: [], y: [], text: [], name: plain(data.variants[variant].name), mode: "lines", hoverinfo: "text", line: {color: look.colour, width: 1.2, dash: look.dash}};
      traces.push(trace);
    }
    if (curve.step.length === 1) trace.mode = "lines+markers"; // a line of one point is invisible
    curve.step.forEach((step, i) => {
      trace.x.push(step);
      trace.y.push(curve.loss[i]);
      trace.text.push(`${trace.name}, seed ${data.runs[number].seed}<br>step ${step}: loss ${curve.loss[i]}`);
    });
    trace.x.push(null);
    trace.y.push(null);
    trace.text.push("");
  });
  if (!show("training-section", traces.length > 0)) return;
  const layout = baseLayout(340);
  layout.xaxis = {title: {text: "step"}, gridcolor: css("--grid"), zeroline: false};
  layout.yaxis = {title: {text: "training loss"}, type: "log", gridcolor: css("--grid"), exponentformat: "power", dtick: 1};
  layout.showlegend = traces.length > 1 && traces.length <= MOST_COLOURS;
  if (layout.showlegend) placeLegend(layout, traces.map((trace) => trace.name));
  render("training", traces, layout, "Training loss by step, one line for each run.", traces.map((_, number) => number));
}

// every row spans its own range of IDs, which may have fewer parts than others
function drawCoverage() {
  const entries = merged(Object.entries(data.coverage)).slice(0, 60), names = entries.map(([name]) => name);
  if (!show("coverage-section", names.length > 0)) return;
  const parts = Math.max(...entries.map(([, counts]) => counts.length));
  const z = entries.map(([, counts]) => {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    return [...Array(parts).keys()].map((part) => (counts[Math.floor((part * counts.length) / parts)] * counts.length) / total || null);
  });
  const trace = {
    type: "heatmap", y: names.map(plain), z, colorscale: "Viridis", ygap: 2, zmin: 0, x: [...Array(parts).keys()].map((part) => (100 * (part + 0.5)) / parts),
    hovertemplate: "%{y}<br>%{x:.0f}% of its ID range<br>%{z:.3g} times an even share<extra></extra>", colorbar: {title: {text: "even use = 1", side: "right"}, thickness: 14, nticks: 3},
  };
  const layout = baseLayout(130 + 26 * names.length);
  layout.xaxis = {title: {text: "part of the ID range (%)"}, automargin: true, range: [0, 100], showgrid: false, zeroline: false};
  layout.yaxis = {type: "category", autorange: "reversed", automargin: true, ticksuffix: " ", showgrid: false};
  render("coverage", [trace], layout, "How often training showed each part of the ID range; empty parts were never trained.", []);
}

function drawMeasures() {
  const names = Object.keys(data.measureTitles).filter((name) => data.measures.some((row) => row.measure === name));
  if (!show("measures-section", names.length > 0)) return;
  const layout = baseLayout(380), grid = gridOf(names.length), traces = [], walk = [], drawn = new Set();
  layout.height *= grid.rows;
  names.forEach((measure, number) => {
    const rows = data.measures.filter((row) => row.measure === measure);
    const axes = placePanel(layout, grid, number, data.measureTitles[measure]);
    const lengths = [...new Set(rows.map((row) => row.length))].sort((a, b) => a - b);
    styleAxes(layout, axes, lengths, lengths.at(-1) > 4 * lengths[0], true, "length");
    const measured = new Set(rows.map((row) => row.variant));
    markTraining(layout, axes, data.runs.filter((run) => measured.has(data.variants[run.variant].name)).map((run) => ({run})), lengths, lengths.at(-1) > 4 * lengths[0], true);
    axis(layout, axes.yaxis).title.text = measure === "mass" ? "share of attention" : "nats";
    const chosen = (row) => measure !== "mass" || row.best;
    const levels = measure === "mass" ? [] : [...new Set(rows.map((row) => row.name))];
    const groups = [...groupBy(rows, (row) => JSON.stringify([row.variant, row.seed, row.name, row.setting])).values()];
    groups.sort((one, other) => chosen(one[0]) - chosen(other[0]));
    for (const points of groups) {
      points.sort((one, other) => one.length - other.length);
      const {variant, seed, name} = points[0], thick = chosen(points[0]);
      const look = lookOf("variant", variant, 0);
      if (levels.length > 1) look.mark = ["circle", "square", "triangle-up", "diamond"][levels.indexOf(name) % 4];
      const first = thick && !drawn.has(variant);
      if (thick) {
        drawn.add(variant);
        walk.push(traces.length);
      }
      traces.push({
        ...axes, x: points.map((row) => row.length), y: points.map((row) => row.mean), mode: thick ? "lines+markers" : "lines", hoverinfo: "text",
        name: plain(variant), legendgroup: variant, showlegend: first, opacity: thick ? 1 : 0.35,
        line: {color: look.colour, width: thick ? 3 : 1, dash: look.dash}, marker: {color: look.colour, symbol: look.mark},
        text: points.map((row) => measureText(row, variant, seed, name)),
      });
      if (measure !== "mass") {
        traces.push({...axes, x: points.map((row) => row.length), y: points.map((row) => row.low_quantile), mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: variant, opacity: 0.6, line: {color: look.colour, width: 1, dash: look.dash}});
      }
      if (measure === "mass" && thick) {
        traces.push({...axes, x: points.map((row) => row.length), y: points.map((row) => row.even), mode: "lines", hoverinfo: "skip", showlegend: false, legendgroup: variant, line: {color: look.colour, width: 1, dash: "dot"}});
      }
    }
  });
  placeLegend(layout, [...drawn]);
  render("measures", traces, layout, "Attention on the true dependencies and margins, by length.", walk);
}

function measureText(row, variant, seed, name) {
  const spread = row.low === null ? "" : ` (${row.low.toPrecision(3)} to ${row.high.toPrecision(3)})`;
  const parts = [`${plain(variant)}, seed ${seed}, ${plain(name)}${row.setting ? `, ${plain(row.setting)}` : ""}`, `length ${row.length}: ${row.mean.toPrecision(3)}${spread}`];
  if (row.even !== null) parts.push(`even attention: ${row.even.toPrecision(3)}`);
  if (row.low_quantile !== null) parts.push(`lowest 1% of steps: ${row.low_quantile.toPrecision(3)}`);
  if (row.not_ahead !== null) parts.push(`not ahead in ${(100 * row.not_ahead).toPrecision(2)}% of steps`);
  return [...parts, `${row.samples} samples`].join("<br>");
}

// ---- tables

const column = (name, text, more = {}) => ({name, text, ...more});
const range = (values) => (Math.min(...values) === Math.max(...values) ? String(values[0]) : `${Math.min(...values)}..${Math.max(...values)}`);

function reachRows() {
  if (LOSSES.includes(state.metric) || NO_SCORE.test(state.metric)) return [];
  return [...groupBy(shown(state.metric), (curve) => `${curve.run.variant} ${settingText(curve)}`).values()].map((curves) => {
    const last = Math.max(...curves.flatMap((curve) => curve.points.map((point) => point.x)));
    const points = curves.flatMap((curve) => curve.points.filter((point) => point.x === last));
    const trained = [...new Set(curves.map((curve) => curve.run.trained?.[1]).filter((value) => value != null))];
    return {curves, last, points, trained: trained.length === 1 ? trained[0] : null};
  });
}

function reachColumns() {
  const of = (row, p) => row.curves.map((curve) => reach(curve, p));
  const times = (row, p) => (row.trained ? ` (${[...new Set([Math.min(...of(row, p)), Math.max(...of(row, p))])].map((value) => `${Number((value / row.trained).toPrecision(3))}x`).join("..")})` : "");
  return [
    column("variant", (row) => variantOf(row.curves[0])),
    ...(overrideNames.length ? [column("setting", (row) => settingText(row.curves[0]) || "as trained")] : []),
    ...(sweptNames.length <= 4 ? sweptNames : []).map((name) => column(name, (row) => valueOf(row.curves[0], name))),
    column("seeds", (row) => String(row.curves.length), {number: true, key: (row) => row.curves.length}),
    ...(data.runs.some((run) => run.trained) ? [column("trained to", (row) => String(row.trained ?? "-"), {number: true, key: (row) => row.trained ?? 0})] : []),
    ...data.thresholds.map((p) => column(`reach@${p}`, (row) => range(of(row, p)) + times(row, p), {number: true, key: (row) => Math.min(...of(row, p))})),
    column("longest tested", (row) => String(row.last), {number: true, key: (row) => row.last}),
    column("median at longest (worst)", (row) => `${share(median(row.points.map((point) => point.y)))} (${share(Math.min(...row.points.map((point) => point.y)))})`, {
      number: true, key: (row) => median(row.points.map((point) => point.y)),
      title: (row) => `${row.points.reduce((sum, point) => sum + point.hits, 0)} of ${row.points.reduce((sum, point) => sum + point.samples, 0)} over all seeds`,
    }),
  ];
}

const scoreColumns = [
  column("variant", (row) => variantOf(row.curve)),
  ...(overrideNames.length ? [column("setting", (row) => settingText(row.curve) || "as trained")] : []),
  column("seed", (row) => String(row.curve.run.seed), {number: true, key: (row) => row.curve.run.seed}),
  column("length", (row) => String(row.point.x), {number: true, key: (row) => row.point.x}),
  column("value", (row) => row.point.y.toPrecision(4), {number: true, key: (row) => row.point.y}),
  column("counts", (row) => (row.point.samples ? `${row.point.hits} of ${row.point.samples}` : "-"), {number: true, key: (row) => row.point.hits ?? 0}),
  column("95% interval", (row) => (row.point.low == null ? "-" : `${share(row.point.low)} to ${share(row.point.high)}`), {number: true, key: (row) => row.point.low ?? 0}),
];
const scoreRows = () => shown(state.metric).flatMap((curve) => curve.points.map((point) => ({curve, point})));

function saveScores() {
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const lines = [["variant", "setting", "seed", "metric", "length", "value", "hits", "samples"], ...scoreRows().map(({curve, point}) => [
    variantOf(curve), settingText(curve), curve.run.seed, state.metric, point.x, point.y, point.hits ?? "", point.samples ?? ""])];
  const link = element("a", {download: "scores.csv", href: URL.createObjectURL(new Blob([lines.map((line) => line.map(String).map(quote).join(",")).join("\n") + "\n"], {type: "text/csv"}))});
  link.click();
  URL.revokeObjectURL(link.href);
}

const tables = {};

function drawTables() {
  const rows = reachRows();
  if (show("reach-section", rows.length > 0)) tables.reach.refresh(rows);
  tables.scores?.refresh(scoreRows());
}

function fixedTables() {
  tables.reach = makeTable(byId("reach"), "How far it reaches", reachColumns(), reachRows());
  const commands = [...groupBy(data.runs, (run) => `${run.variant}\n${run.command}`).values()].map((runs) => ({runs, variant: data.variants[runs[0].variant].name}));
  if (show("commands-section", data.runs.some((run) => run.command))) {
    makeTable(byId("commands"), "Commands", [
      column("variant", (row) => row.variant),
      column("seeds", (row) => row.runs.map((run) => run.seed).join(", ")),
      column("command", (row) => row.runs[0].command || "not recorded"),
    ], commands);
  }
  const several = groupBy(data.runs, (run) => run.variant);
  const rows = [...several.values()].map((runs) => ({run: runs[0], variant: data.variants[runs[0].variant].name}));
  if (show("settings-section", sweptNames.length > 0)) {
    makeTable(byId("settings"), "Settings that differ", [column("variant", (row) => row.variant), ...sweptNames.map((name) => column(name, (row) => row.run.fields[name] ?? "-"))], rows);
  }
  if (show("runs-section", data.runs.some((run) => run.versions))) {
    makeTable(byId("runs"), "Runs", [
      column("run", (run) => run.source), column("seed", (run) => String(run.seed), {number: true, key: (run) => run.seed}), column("device", (run) => run.device ?? "-"),
      column("commit", (run) => run.commit ?? "-"), column("versions", (run) => run.versions ?? "-"),
    ], data.runs);
  }
  byId("scores-section").addEventListener("toggle", () => {
    if (!tables.scores) tables.scores = makeTable(byId("scores"), "Scores", scoreColumns, scoreRows());
  });
  byId("scores-save").addEventListener("click", saveScores);
}

// entries of equal content under one name: `a, b, c and 5 more`
function merged(entries) {
  return [...groupBy(entries, ([, content]) => JSON.stringify(content)).values()].map((equal) => {
    const names = equal.map(([name]) => name);
    return [names.slice(0, 3).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : ""), equal[0][1]];
  });
}

function drawCards() {
  const described = Object.keys(data.cards).length;
  byId("cards-note").textContent = described < data.variants.length ? `Of the first ${described} of ${data.variants.length} variants.` : "";
  const entries = merged(Object.entries(data.cards).filter(([, card]) => Object.keys(card).length));
  if (!show("cards-section", entries.length > 0)) return;
  byId("cards").replaceChildren(...entries.map(([name, card], number) => {
    const details = element("details"), table = element("table");
    details.open = number === 0;
    details.append(element("summary", {}, name));
    for (const [fact, value] of Object.entries(card)) {
      const row = element("tr");
      row.append(element("th", {scope: "row"}, fact), element("td", {}, value));
      table.append(row);
    }
    details.append(table);
    return details;
  }));
}

// ---- controls

function fillSelect(id, values, chosen, name = (value) => value) {
  const select = byId(id);
  select.replaceChildren(...values.map((value) => {
    const option = element("option", {value}, name(value));
    option.value = value; // also an empty one
    option.selected = value === chosen;
    return option;
  }));
}

function chooseDefaults() {
  const curves = curvesOf(state.metric), count = (field) => valuesOf(curves, field).length;
  const setting = overrideNames.find((name) => count(name) > 1);
  if (count("variant") > MOST_COLOURS) {
    const few = sweptNames.filter((name) => count(name) > 1 && count(name) <= 12);
    state.colour = few.sort((one, other) => count(other) - count(one))[0] ?? "variant";
  } else if (setting) {
    state.colour = setting;
    state.panel = count("variant") > 1 ? "variant" : "";
  }
}

function controls() {
  const several = FIELDS.filter((field) => field === "variant" || valuesOf(curvesOf(state.metric), field).length > 1);
  const bind = (id, key, read) => byId(id).addEventListener("change", () => {
    state[key] = read(byId(id));
    redraw();
  });
  fillSelect("metric", data.metrics.filter((name) => !name.startsWith("first_error_tenth_")), state.metric, (name) => data.names[name]);
  fillSelect("colour", several, state.colour);
  fillSelect("panel", ["", ...several], state.panel, (value) => value || "none");
  for (const [id, key] of [["metric", "metric"], ["colour", "colour"], ["panel", "panel"], ["scale", "scale"]]) bind(id, key, (select) => select.value);
  for (const id of ["seeds", "intervals"]) bind(id, id, (box) => box.checked);
  let waiting;
  byId("filter").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
      redraw();
    }, 150);
  });
  for (const key of ["x", "y", "value"]) {
    byId(`heat-${key}`).addEventListener("change", () => {
      heat[key] = byId(`heat-${key}`).value;
      drawHeat();
    });
  }
  byId("errors-variant").addEventListener("change", () => {
    errorVariant = byId("errors-variant").value;
    drawErrors();
  });
}

function redraw() {
  const found = shown(state.metric).length, all = curvesOf(state.metric).length;
  byId("filter-count").textContent = `${found === all ? "" : `${found} of `}${all} curve${all === 1 ? "" : "s"}`;
  if (!show("curves-section", found > 0)) {
    show("reach-section", false);
    show("heat-section", false);
    tables.scores?.refresh([]);
    return;
  }
  drawCurves();
  drawTables();
  drawHeat();
}

let resizing;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(drawAll, 200);
});

function drawAll() {
  redraw();
  drawErrors();
  drawTraining();
  drawCoverage();
  drawMeasures();
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement, button = byId("theme");
  const set = (name) => {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${name === "dark" ? "light" : "dark"} colours`);
  };
  set(system.matches ? "dark" : "light");
  system.addEventListener("change", () => {
    set(system.matches ? "dark" : "light");
    drawAll();
  });
  button.addEventListener("click", () => {
    set(root.dataset.theme === "dark" ? "light" : "dark");
    drawAll();
  });
}

// on paper: light, as wide as a page, and figures drawn for that
function printing() {
  let before, closed = [];
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    document.body.style.width = "680px";
    closed = [...document.querySelectorAll("#cards details:not([open])")];
    for (const card of closed) card.open = true;
    drawAll();
  });
  addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = before;
    document.body.style.width = "";
    for (const card of closed) card.open = false;
    drawAll();
  });
}

theme();
printing();
chooseDefaults();
controls();
fixedTables();
drawCards();
drawAll();
document.documentElement.dataset.ready = "yes";
