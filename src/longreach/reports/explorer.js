// Curves of the report page: which runs are shown, grouped by which field, under which metric.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const MOST_PANELS = 12, MOST_COLOURS = 24;
const COLOURS = ["#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"];
const DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"};
const MARKS = {o: "circle", s: "square", "^": "triangle-up", D: "diamond", v: "triangle-down", P: "cross", X: "x", "*": "star"};
const LOSSES = ["context", "position"];
const NO_SCORE = /^(near_tie|error_|first_error)/; // counts of which none is a score to reach
const state = {metric: data.metrics[0], colour: "variant", panel: "", scale: "", seeds: true, intervals: false, words: []};

// ---- curves: one for each run, setting of the task and metric

const curveCache = new Map();

function curvesOf(metric) {
  if (!curveCache.has(metric)) curveCache.set(metric, readCurves(metric));
  return curveCache.get(metric);
}

function readCurves(metric) {
  const found = new Map();
  const add = (run, setting, point) => {
    const key = `${run} ${setting}`;
    if (!found.has(key)) found.set(key, {run: data.runs[run], setting: data.settings[setting], points: []});
    found.get(key).points.push(point);
  };
  if (LOSSES.includes(metric)) {
    const {run, by, size, nats, low, high, documents} = data.losses;
    by.forEach((name, i) => {
      if (name !== metric) return;
      const spread = low[i] === null ? "" : `<br>95% over ${documents[i]} documents: ${low[i]} to ${high[i]}`;
      add(run[i], 0, {x: size[i], y: nats[i], low: low[i], high: high[i], text: `${nats[i]} nats${spread}`});
    });
  } else {
    const {run, setting, length, hits, samples} = data.cells;
    const wanted = data.metrics.indexOf(metric);
    data.cells.metric.forEach((number, i) => {
      if (number !== wanted) return;
      const [low, high] = wilson(hits[i], samples[i]);
      const text = `${hits[i]} of ${samples[i]} (${share(hits[i] / samples[i])})<br>95% interval ${share(low)} to ${share(high)}`;
      add(run[i], setting[i], {x: length[i], y: hits[i] / samples[i], low, high, hits: hits[i], samples: samples[i], text});
    });
  }
  const curves = [...found.values()];
  for (const curve of curves) {
    curve.points.sort((one, other) => one.x - other.x);
    curve.search = [variantOf(curve), settingText(curve), curve.run.source, ...Object.values(curve.run.fields)].join(" ").toLowerCase();
  }
  return curves;
}

function wilson(hits, samples, z = 1.96) {
  const p = hits / samples, centre = (p + (z * z) / (2 * samples)) / (1 + (z * z) / samples);
  const half = (z * Math.sqrt((p * (1 - p)) / samples + (z * z) / (4 * samples * samples))) / (1 + (z * z) / samples);
  return [Math.min(p, Math.max(0, centre - half)), Math.max(p, Math.min(1, centre + half))];
}

const share = (value) => (value === 0 || value === 1 ? String(value) : value.toFixed(value > 0.999 ? 5 : 3));
const variantOf = (curve) => data.variants[curve.run.variant].name;
const settingText = (curve) => Object.entries(curve.setting).map(([name, value]) => `${name}=${value}`).join(", ");
const shown = (metric) => curvesOf(metric).filter((curve) => state.words.every((word) => curve.search.includes(word)));

function reach(curve, atLeast) {
  let longest = 0;
  for (const point of curve.points) {
    if (point.y < atLeast) break;
    longest = point.x;
  }
  return longest;
}

function median(values) {
  const sorted = [...values].sort((one, other) => one - other), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// ---- fields: what curves may be told apart by

const overrideNames = [...new Set(data.settings.flatMap((setting) => Object.keys(setting)))];
const sweptNames = Object.keys(data.runs[0].fields);
const FIELDS = ["variant", ...overrideNames, ...sweptNames, "seed"];

function valueOf(curve, field) {
  if (field === "variant") return variantOf(curve);
  if (field === "seed") return String(curve.run.seed);
  if (overrideNames.includes(field)) return curve.setting[field] ?? "as trained";
  return curve.run.fields[field] ?? "-";
}

function valuesOf(curves, field) {
  const values = [...new Set(curves.map((curve) => valueOf(curve, field)))];
  if (field !== "variant") return values.sort(compare);
  const order = data.variants.map((variant) => variant.name);
  return values.sort((one, other) => order.indexOf(one) - order.indexOf(other));
}

function groupBy(items, key) {
  const groups = new Map();
  for (const item of items) {
    const value = key(item);
    if (!groups.has(value)) groups.set(value, []);
    groups.get(value).push(item);
  }
  return groups;
}

const looks = new Map(data.variants.map((variant) => [variant.name, variant]));

// variants have their own colours; numbers run from dark to bright, like those of figures; other values take turns
function lookOf(field, value, number, all = []) {
  const own = field === "variant" ? looks.get(value) : null;
  const rising = all.length > 2 && all.every((one) => Number.isFinite(Number(one)));
  const turn = rising ? shadeOf(number / (all.length - 1)) : COLOURS[number % COLOURS.length];
  const colour = own ? own.colour : turn;
  const dash = own ? DASHES[own.dash] : Object.values(DASHES)[Math.floor(number / COLOURS.length) % 4];
  return {colour: ink(colour), dash, mark: own ? MARKS[own.mark] : Object.values(MARKS)[number % 4]};
}

// black and the darkest shades would vanish on a dark page
const dark = () => document.documentElement.dataset.theme === "dark";
const ink = (colour) => (colour === "#000000" && dark() ? "#FFFFFF" : colour);

function shadeOf(place) {
  const darkest = dark() ? 9 : 0;
  return data.shades[Math.round(darkest + place * (data.shades.length - 1 - darkest))];
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// ---- the main figure

function drawCurves() {
  const loss = LOSSES.includes(state.metric), curves = shown(state.metric);
  const panelValues = state.panel ? valuesOf(curves, state.panel) : [""];
  const colourValues = valuesOf(curves, state.colour);
  const panels = panelValues.slice(0, MOST_PANELS), colours = colourValues.slice(0, MOST_COLOURS);
  const notes = [];
  if (panels.length < panelValues.length) notes.push(`the first ${panels.length} of ${panelValues.length} panels`);
  if (colours.length < colourValues.length) notes.push(`the first ${colours.length} of ${colourValues.length} curves`);
  const absent = unscored(), differ = FIELDS.filter((field) => field !== state.colour && field !== state.panel && varies(curves, field));
  const shaded = curves.some((curve) => curve.run.trained);
  byId("curves-caption").textContent = (differ.length ? `Thick: the median over ${listed(differ)}. Thin: every run.` : `Every curve is one run, with its 95% interval${loss ? " over documents" : ""}.`) + (shaded ? " Shaded: the lengths of training." : "");
  byId("curves-heading").textContent = `${loss ? "Loss" : "Score"} against length`;
  byId("curves-note").textContent = (notes.length ? `Drawn: ${notes.join(", ")}. Filter, or choose another field. ` : "") + (absent ? `Without this metric: ${absent}.` : "");
  const grid = gridOf(panels.length), traces = [], layout = baseLayout(grid.rows * 380 + 40), walk = [];
  placeLegend(layout, colours, plain(state.colour));
  const lengths = [...new Set(curves.flatMap((curve) => curve.points.map((point) => point.x)))].sort((a, b) => a - b);
  const log = state.scale === "log" || (!state.scale && lengths.at(-1) > 4 * lengths[0]);
  panels.forEach((panel, number) => {
    const inside = curves.filter((curve) => !state.panel || valueOf(curve, state.panel) === panel);
    const axes = placePanel(layout, grid, number, state.panel ? `${state.panel}: ${panel}` : "");
    styleAxes(layout, axes, lengths, log, loss);
    markTraining(layout, axes, inside, lengths, log, loss);
    const byColour = groupBy(inside, (curve) => valueOf(curve, state.colour));
    colours.forEach((value, place) => {
      const group = byColour.get(value);
      if (!group) return;
      const look = lookOf(state.colour, value, place, colours);
      const first = !traces.some((trace) => trace.showlegend && trace.legendgroup === value);
      traces.push(...seedTraces(group, look, axes, value));
      walk.push(traces.length);
      traces.push(medianTrace(group, look, axes, value, first));
    });
  });
  render("curves", traces, layout, `Score against length: ${data.names[state.metric]}, ${colours.length} curves. All numbers are in the tables below.`, walk);
}

// whether curves of one panel and colour differ in a field
function varies(curves, field) {
  const groups = groupBy(curves, (curve) => `${state.panel ? valueOf(curve, state.panel) : ""}\n${valueOf(curve, state.colour)}`);
  return [...groups.values()].some((group) => valuesOf(group, field).length > 1);
}

function listed(fields) {
  const names = fields.map((field) => (field === "seed" ? "seeds" : field));
  return names.slice(0, 4).join(", ") + (names.length > 4 ? ` and ${names.length - 4} more fields` : "");
}

// names of variants that have other metrics only
function unscored() {
  const scored = new Set(curvesOf(state.metric).map(variantOf));
  const names = data.variants.map((variant) => variant.name).filter((name) => !scored.has(name));
  return names.slice(0, 6).join(", ") + (names.length > 6 ? ` and ${names.length - 6} more` : "");
}

function seedTraces(group, look, axes, value) {
  const several = group.length > 1, made = [];
  const common = {...axes, mode: "lines", showlegend: false, legendgroup: value, hoverinfo: "skip"};
  const withInterval = group.filter((curve) => curve.points.some((point) => point.low !== null));
  if (withInterval.length && (state.intervals || !several)) {
    for (const curve of withInterval) {
      const points = curve.points.filter((point) => point.low !== null);
      const x = points.map((point) => point.x);
      made.push({
        ...common, x: [...x, ...x.toReversed()],
        y: [...points.map((point) => point.high), ...points.map((point) => point.low).reverse()],
        fill: "toself", fillcolor: `${look.colour}22`, line: {width: 0},
      });
    }
  }
  if (several && state.seeds) {
    const x = [], y = [], text = [];
    for (const curve of group) {
      for (const point of curve.points) {
        x.push(point.x);
        y.push(point.y);
        text.push(`${plain(nameOf(curve))}, length ${point.x}<br>${point.text}`);
      }
      x.push(null);
      y.push(null);
      text.push("");
    }
    made.push({
      ...common, x, y, text, mode: group.length > 60 ? "lines" : "lines+markers", hoverinfo: "text", connectgaps: false, opacity: 0.5,
      line: {color: look.colour, width: 1}, marker: {color: look.colour, size: 3},
    });
  }
  return made;
}

function nameOf(curve) {
  return [variantOf(curve), settingText(curve), `seed ${curve.run.seed}`].filter(Boolean).join(", ");
}

function medianTrace(group, look, axes, value, legend) {
  const points = summary(group);
  return {
    ...axes, x: points.map((point) => point.x), y: points.map((point) => point.y), text: points.map((point) => `${plain(value)}, length ${point.x}<br>${point.text}`),
    name: plain(value), legendgroup: value, showlegend: legend, mode: "lines+markers", hoverinfo: "text",
    line: {color: look.colour, width: 3, dash: look.dash}, marker: {color: look.colour, size: 7, symbol: look.mark},
  };
}

// the median over curves at each length, with what a reader needs beside it
function summary(group) {
  const worst = LOSSES.includes(state.metric) ? (ys) => Math.max(...ys) : (ys) => Math.min(...ys);
  const byLength = groupBy(group.flatMap((curve) => curve.points.map((point) => ({curve, point}))), (one) => one.point.x);
  return [...byLength.keys()].sort((one, other) => one - other).map((x) => {
    const here = byLength.get(x), ys = here.map((one) => one.point.y), y = median(ys);
    if (here.length === 1) return {x, y, worst: y, count: 1, text: `${nameOf(here[0].curve) === variantOf(here[0].curve) ? "" : `seed ${here[0].curve.run.seed}: `}${here[0].point.text}`};
    const samples = here.reduce((sum, one) => sum + (one.point.samples ?? 0), 0);
    const asked = [...new Set(here.map((one) => one.curve.run.asked))], same = asked.length === 1 && asked[0].startsWith("the same");
    const counts = samples ? `<br>${here.reduce((sum, one) => sum + one.point.hits, 0)} of ${samples} over all${same ? ", the same questions for each" : ""}` : "";
    return {x, y, worst: worst(ys), count: here.length, text: `median of ${here.length}: ${y.toFixed(3)}, worst ${worst(ys).toFixed(3)}${counts}`};
  });
}

// ---- layout

// below the panels, with as much room as its lines are likely to take
function placeLegend(layout, names, title = "") {
  const letters = names.reduce((sum, name) => sum + String(name).length + 8, String(title).length);
  const lines = Math.ceil(letters / (document.body.clientWidth / 8));
  layout.margin.b += 24 + 20 * lines;
  layout.height += 20 * lines;
  layout.legend = {orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, title: {text: title}};
}

function gridOf(count) {
  const columns = Math.min(count, document.body.clientWidth < 760 ? 1 : 3);
  return {columns, rows: Math.ceil(count / columns)};
}

function placePanel(layout, {columns, rows}, number, title) {
  const name = number ? number + 1 : "", column = number % columns, row = Math.floor(number / columns);
  const gap = columns > 1 ? 0.05 : 0, width = (1 - gap * (columns - 1)) / columns;
  const rowGap = rows > 1 ? 0.3 / rows : 0, height = (1 - rowGap * (rows - 1)) / rows;
  const left = column * (width + gap), top = 1 - row * (height + rowGap);
  layout[`xaxis${name}`] = {domain: [left, Math.min(1, left + width)], anchor: `y${name}`};
  layout[`yaxis${name}`] = {domain: [Math.max(0, top - height), top], anchor: `x${name}`};
  if (title) layout.annotations.push({text: plain(title), x: left + width / 2, y: top, xref: "paper", yref: "paper", xanchor: "center", yanchor: "bottom", showarrow: false});
  return {xaxis: `x${name}`, yaxis: `y${name}`};
}

const axis = (layout, name) => layout[name.replace(/^([xy])/, "$1axis")];

function styleAxes(layout, {xaxis, yaxis}, lengths, log, loss, title = LOSSES.includes(state.metric) ? "tokens" : "length") {
  const ticks = thinned(lengths, log, gridOf(1).columns === Object.keys(layout).filter((key) => /^xaxis/.test(key)).length ? 16 : 8);
  Object.assign(axis(layout, xaxis), {
    type: log ? "log" : "linear", title: {text: title, standoff: 4}, gridcolor: css("--grid"), zeroline: false,
    tickvals: ticks, ticktext: ticks.map((value) => value.toLocaleString("en")), automargin: true,
  });
  Object.assign(axis(layout, yaxis), {gridcolor: css("--grid"), zeroline: false, title: {text: loss ? "nats" : "score", standoff: 4}, ...(loss ? {} : {range: [-0.03, 1.06], tickvals: [0, 0.25, 0.5, 0.75, 1]})});
}

// lengths far enough apart for their labels
function thinned(lengths, log, most) {
  const at = (value) => (log ? Math.log(value) : value), span = at(lengths.at(-1)) - at(lengths[0]) || 1;
  const kept = [];
  for (const value of lengths.toReversed()) {
    if (!kept.length || at(kept.at(-1)) - at(value) > span / most) kept.push(value);
  }
  return kept.reverse();
}

function markTraining(layout, {xaxis, yaxis}, curves, lengths, log, loss) {
  const trained = [...new Set(curves.map((curve) => curve.run.trained?.[1]).filter((value) => value != null))].sort((a, b) => a - b);
  const left = log ? lengths[0] / 1.15 : lengths[0] - 0.02 * (lengths.at(-1) - lengths[0]);
  if (trained.length && trained[0] >= left) {
    layout.shapes.push({type: "rect", xref: xaxis, yref: `${yaxis} domain`, x0: left, x1: trained.at(-1), y0: 0, y1: 1, fillcolor: css("--text"), opacity: 0.07, line: {width: 0}, layer: "below"});
    for (const value of trained.slice(-4)) {
      layout.shapes.push({type: "line", xref: xaxis, yref: `${yaxis} domain`, x0: value, x1: value, y0: 0, y1: 1, line: {color: css("--faint"), width: 1, dash: "dot"}});
    }
    layout.annotations.push({text: "trained up to here", xref: xaxis, yref: `${yaxis} domain`, x: log ? Math.log10(trained.at(-1)) : trained.at(-1), y: 0.01, xanchor: "right", yanchor: "bottom", showarrow: false, font: {size: 10, color: css("--faint")}});
  }
  const chances = loss || !state.metric.startsWith("token_em") ? [] : [...new Set(curves.map((curve) => curve.run.chance).filter((value) => value != null))];
  for (const chance of chances.slice(0, 3)) {
    layout.shapes.push({type: "line", xref: `${xaxis} domain`, yref: yaxis, x0: 0, x1: 1, y0: chance, y1: chance, line: {color: css("--faint"), width: 1, dash: "dash"}});
    layout.annotations.push({text: `chance ${share(chance)}`, xref: `${xaxis} domain`, yref: yaxis, x: 1, y: chance, xanchor: "right", yanchor: "bottom", showarrow: false, font: {size: 10, color: css("--faint")}});
  }
}

function baseLayout(height) {
  return {
    height, margin: {l: 60, r: 20, t: 30, b: 50}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "closest",
    font: {family: "system-ui, sans-serif", size: 13, color: css("--text")}, shapes: [], annotations: [],
    hoverlabel: {bgcolor: css("--back"), bordercolor: css("--line"), font: {color: css("--text")}, align: "left"},
  };
}

// draw, and let arrow keys walk over the points of the traces in `walk`
function render(id, traces, layout, description, walk) {
  const holder = byId(id);
  // nothing leaves this page: by default Plotly offers to upload the data of a figure
  const config = {displaylogo: false, showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"], toImageButtonOptions: {format: "svg", filename: id}};
  layout.width = holder.clientWidth;
  Plotly.react(holder, traces, layout, config);
  holder.tabIndex = 0;
  holder.setAttribute("role", "figure");
  holder.setAttribute("aria-label", walk.length ? `${description} Arrow keys move over the points.` : description);
  holder.onkeydown = (event) => walkOver(event, holder, walk);
}

function walkOver(event, holder, walk) {
  const step = {ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0]}[event.key];
  if (!step || !walk.length) return;
  event.preventDefault();
  const at = holder.cursor ?? {trace: 0, point: -1};
  at.trace = Math.min(walk.length - 1, Math.max(0, at.trace + step[0]));
  const trace = holder.data[walk[at.trace]];
  at.point = Math.min(trace.x.length - 1, Math.max(0, at.point + step[1]));
  holder.cursor = at;
  Plotly.Fx.hover(holder, [{curveNumber: walk[at.trace], pointNumber: at.point}], (trace.xaxis ?? "x") + (trace.yaxis ?? "y"));
  byId("spoken").textContent = (Array.isArray(trace.text) ? trace.text[at.point] : String(trace.y[at.point])).replace(/<br>/g, ", ");
}
