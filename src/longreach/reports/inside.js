"use strict";
const data = JSON.parse(document.getElementById("data").textContent), samples = data.samples;
const $ = id => document.getElementById(id);
const state = { sample: 0, step: data.step, level: 0, head: null, mode: "heads", stretch: false, allIds: false };
const MARKS = { true: "✓", false: "✗", null: "?" }, WORDS = { true: "right", false: "wrong", null: "unknown" };
let shown, boxes = [], hues = [];

const add = (parent, tag, text, name) => {
  const made = parent.appendChild(document.createElement(tag));
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const print = word => word.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ +$/, found => "␣".repeat(found.length)) || "∅";
const share = value => value === null ? "–" : value > 0 && value < 0.005 ? value.toExponential(0) : value.toFixed(2);
const step = () => shown.steps[state.step];
const pointed = () => step().levels[state.level].points_at?.index ?? null;
const same = number => shown.steps[number].levels[state.level].matches;
const headName = head => head ? head.join(".") : "all heads, the largest";

function chip(parent, place) {
  const made = add(parent, "span", print(shown.tokens[place]), "chip");
  add(made, "small", `@${place}`);
  made.addEventListener("pointerenter", () => boxes[place].classList.add("lit"));
  made.addEventListener("pointerleave", () => boxes[place].classList.remove("lit"));
  parent.append(" ");
  return made;
}
function chips(parent, places, most = 12) {
  places.slice(0, most).forEach(place => chip(parent, place));
  if (places.length > most) parent.append(`and ${places.length - most} more`);
  if (!places.length) parent.append("–");
}

// the same ID has the same colour: IDs in use are numbered in their order, seven colours times three patterns
function paintIds() {
  const own = shown.ids.map(ids => ids[state.level]), order = [...new Set(own)].filter(id => id).sort((a, b) => a - b);
  hues = own.map(id => id ? order.indexOf(id) : -1);
  boxes.forEach((box, place) => {
    const hue = place < hues.length ? hues[place] : -1;
    box.classList.toggle("reserved", hue < 0);
    [1, 2].forEach(number => box.classList.toggle(`pattern${number}`, hue >= 0 && Math.floor(hue / 7) % 3 === number));
    if (hue < 0) box.style.removeProperty("--hue");
    else box.style.setProperty("--hue", `var(--c${hue % 7})`);
    box.querySelectorAll(".id").forEach(line => line.remove());
    const marks = box.querySelector(".marks"), truth = shown.steps[place - shown.prompt_tokens]?.true_ids;
    shown.levels.forEach((_, level) => {
      if (!state.allIds && level !== state.level) return;
      const id = shown.ids[place]?.[level], wrong = truth && id !== undefined && truth[level] !== id;
      const line = document.createElement("span");
      line.className = `id${level === state.level ? " chosen" : ""}${wrong ? " wrong" : ""}`;
      line.textContent = (id === undefined ? "–" : id) + (wrong ? `≠${truth[level]}` : "");
      box.insertBefore(line, marks);
    });
  });
}

function buildTokens() {
  const list = $("tokens"), error = shown.first_error;
  list.replaceChildren();
  list.classList.toggle("dense", shown.tokens.length > 150);
  boxes = shown.tokens.map((word, place) => {
    const box = add(list, "li", null, "token"), number = place - shown.prompt_tokens;
    box.dataset.place = place;
    if (error && error.step === number) add(box, "span", `first error: ${error.wrong}`, "flag");
    add(add(box, "span", null, "meter"), "i");
    const written = add(box, number < 0 ? "span" : "button", print(word), "word");
    if (number >= 0) {
      written.type = "button";
      written.dataset.step = number;
      written.tabIndex = -1;
    }
    add(box, "span", null, "marks");
    const truth = shown.steps[number]?.true_token ?? null;
    if (truth !== null && word !== truth) add(box, "span", `≠ ${print(truth)}`, "truth wrong");
    return box;
  });
}

function paintStep() {
  const now = step(), row = shading(shown, state.step, state.head), alike = new Set(same(state.step)), needed = new Set(now.depends_on ?? []);
  boxes.forEach((box, place) => {
    const number = place - shown.prompt_tokens, starts = place === now.index, writes = place === now.index + 1;
    box.classList.toggle("start", starts);
    box.classList.toggle("writes", writes);
    box.classList.toggle("needed", needed.has(place));
    box.classList.toggle("later", number > state.step);
    const weight = place < row.length ? LUT[row[place]] : 0;
    box.querySelector(".meter i").style.height = `${100 * (state.stretch ? Math.sqrt(weight) : weight)}%`;
    const marks = box.querySelector(".marks"), wrong = number >= 0 && wrongAt(number);
    marks.replaceChildren();
    const notes = [[starts, "▶", "the step starts from it"], [writes, "✎", "the step writes it"], [needed.has(place), "◆", "needed", "need"],
      [alike.has(place), "=", "same ID", "same"], [place === pointed(), "P", "the pointer copies its ID"], [wrong, "✗", `wrong ${wrong}`, "wrong"]].filter(([there]) => there);
    for (const [, mark, , name] of notes) add(marks, "span", mark, name);
    const ids = shown.ids[place] ? shown.levels.map((level, at) => `${level} ${shown.ids[place][at]}`).join(", ") : "never read, so it has no ID";
    const told = [`token ${place}: ${print(shown.tokens[place])}`, ids, ...(place < row.length ? [`attention ${share(weight)} (${headName(state.head)})`] : []), ...notes.map(([, , note]) => note)];
    box.title = told.join("\n");
    const word = box.querySelector("button.word");
    if (!word) return;
    word.setAttribute("aria-label", `${print(shown.tokens[place])}, step ${number}${wrong ? `, wrong ${wrong}` : ""}`);
    word.tabIndex = number === state.step ? 0 : -1;
    if (number === state.step) word.setAttribute("aria-current", "step"); else word.removeAttribute("aria-current");
  });
}
const wrongAt = number => {
  const { writes, true_token, ids, true_ids } = shown.steps[number];
  const parts = [...(true_token !== null && writes !== true_token ? ["token"] : []),
    ...(ids && true_ids && ids.some((id, level) => id !== true_ids[level]) ? ["ID"] : [])];
  return parts.join(" and ");
};

// short, for a cell of a table: unlikely ones are left out
const few = entries => entries.filter(([, value], at) => at < 1 || value >= 0.001).map(([name, value]) => `${name} (${share(value)})`).join(", ");
function likely(parent, entries) {
  const list = add(parent, "div", null, "likely");
  for (const [name, value] of entries) {
    add(list, "code", typeof name === "string" ? print(name) : name);
    add(add(list, "span", null, "share"), "i").style.width = `${100 * value}%`;
    add(list, "span", share(value));
  }
}

function describeStep() {
  const now = step(), summary = $("summary"), facts = $("facts"), best = shown.likeliest[state.step];
  $("step-name").textContent = `Step ${state.step} of 0..${shown.steps.length - 1}`;
  summary.replaceChildren("Starts from ");
  chip(summary, now.index);
  summary.append("and writes ");
  chip(summary, now.index + 1);
  summary.append(now.given ? "which was given. " : `with probability ${share(now.token_probability)}. `);
  const wrong = wrongAt(state.step);
  if (now.true_token === null) summary.append(shown.true_answer ? "The true answer ends before it." : "The true token is not known.");
  else if (now.writes !== now.true_token) add(summary, "b", `✗ The true token is ${print(now.true_token)}.`, "wrong");
  else add(summary, "b", "✓ The token is right.", "right");
  if (wrong.endsWith("ID")) { summary.append(" "); add(summary, "b", "✗ Its ID is wrong.", "wrong"); }
  facts.replaceChildren();
  const table = add(facts, "table"), head = add(add(table, "thead"), "tr"), body = add(table, "tbody");
  add(head, "th", "level");
  shown.levels.forEach((level, at) => { add(head, "th", level + (shown.growing[at] || shown.levels.length === 1 ? "" : " (fixed)")).scope = "col"; });
  const line = (name, fill) => {
    const row = add(body, "tr");
    add(row, "th", name).scope = "row";
    now.levels.forEach((level, at) => fill(add(row, "td"), level, at));
  };
  line("ID read", (cell, level) => { cell.textContent = level.read_id; });
  line("next ID", (cell, level) => {
    cell.textContent = level.id === null ? "– (never read)" : level.id + (level.id_probability === null ? "" : ` (${share(level.id_probability)})`);
    if (level.true_id === null || level.id === null) return;
    const wrong = level.true_id !== level.id;
    if (shown.predicts_ids) add(cell, "b", wrong ? " ✗" : " ✓", wrong ? "wrong" : "right");
  });
  if (shown.predicts_ids) {
    line("true ID", (cell, level) => { cell.textContent = level.true_id ?? "–"; });
    if (best.ids.length) line("likeliest IDs", (cell, _, at) => { cell.textContent = few(best.ids[at]); });
  }
  if (now.levels.some(level => level.points_at)) line("pointer", (cell, { points_at: to }) => {
    if (!to) return cell.append("–");
    if (to.index === null) cell.append("reserved ID");
    else { chip(cell, to.index); cell.append(`${to.level ? `its ${to.level} ID ` : ""}${to.move ? `moved by ${to.move > 0 ? "+" : ""}${to.move} ` : ""}`); }
    cell.append(` (${share(to.probability)})`);
  });
  line("same ID as read", (cell, level) => chips(cell, level.matches, 8));
  line("heads on these", (cell, level) => { cell.textContent = level.heads.map(head => `${head.layer}.${head.head} ${share(head.mass)}`).join(", ") || "–"; });
  const rest = add(facts, "div"), depends = add(rest, "p");
  add(depends, "b", "◆ Needed: ");
  if (now.depends_on) chips(depends, now.depends_on); else depends.append("the dependencies are not known");
  add(rest, "h3", "Likeliest tokens");
  likely(rest, best.tokens);
}

function render() {
  $("slider").value = state.step;
  $("where").textContent = `step ${state.step} of 0..${shown.steps.length - 1}`;
  $("head").value = state.head ? state.head.join(".") : "";
  for (const mode of ["heads", "steps"]) $(`mode-${mode}`).setAttribute("aria-pressed", state.mode === mode);
  $("levels").childNodes.forEach((button, level) => button.setAttribute("aria-pressed", level === state.level));
  $("all-ids").checked = state.allIds;
  paintIds();
  paintStep();
  describeStep();
  drawMap();
}

function go(number) {
  const held = document.activeElement?.matches?.("button.word");
  state.step = Math.max(0, Math.min(number, shown.steps.length - 1));
  render();
  const box = boxes[step().index + 1], list = $("tokens");
  if (box.offsetTop < list.scrollTop + list.offsetTop || box.offsetTop + box.offsetHeight > list.scrollTop + list.offsetTop + list.clientHeight)
    list.scrollTop = box.offsetTop - list.offsetTop - list.clientHeight / 2;
  if (held) box.querySelector("button.word").focus({ preventScroll: true });
}

async function open(number) {
  const sample = samples[number];
  state.sample = number;
  sample.roots ??= await unpack(sample.attention);
  if (state.sample !== number) return; // another one was chosen meanwhile
  shown = sample;
  state.level = shown.growing[state.level] === undefined ? 0 : state.level;
  buildTokens();
  $("samples").childNodes.forEach((button, at) => at === number ? button.setAttribute("aria-current", "true") : button.removeAttribute("aria-current"));
  $("verdict").textContent = `${MARKS[shown.right]} ${shown.name}: ${shown.verdict}${shown.stopped ? "" : " (cut off: the model did not stop)"}`;
  $("verdict").className = shown.right === null ? "" : WORDS[shown.right];
  $("slider").max = shown.steps.length - 1;
  $("first-error").disabled = !shown.first_error;
  $("size").textContent = `${shown.attention.layers} × ${shown.attention.heads} heads · ${shown.tokens.length} tokens`;
  go(state.step);
}

function cycleHead(by) {
  const all = headsOf(shown), at = state.head ? all.findIndex(pair => pair.join() === state.head.join()) : -1;
  const next = (at + 1 + by + all.length + 1) % (all.length + 1) - 1;
  state.head = next < 0 ? null : all[next];
  render();
}
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").setAttribute("aria-pressed", name === "dark");
  if (shown) drawMap();
}
const turn = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const nextWrong = () => {
  const order = samples.map((_, at) => (state.sample + 1 + at) % samples.length), found = order.find(at => samples[at].right === false);
  return found === undefined ? undefined : open(found);
};
const actions = {
  ArrowLeft: () => go(state.step - 1), ArrowRight: () => go(state.step + 1), Home: () => go(0), End: () => go(shown.steps.length - 1),
  ArrowUp: () => open(Math.max(0, state.sample - 1)), ArrowDown: () => open(Math.min(samples.length - 1, state.sample + 1)),
  e: () => { if (shown.first_error) go(shown.first_error.step); }, w: nextWrong,
  l: () => { state.level = (state.level + 1) % shown.levels.length; render(); },
  i: () => { state.allIds = !state.allIds; render(); }, "[": () => cycleHead(-1), "]": () => cycleHead(1),
  m: () => { state.mode = state.mode === "heads" ? "steps" : "heads"; render(); }, t: turn,
};
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.altKey || event.metaKey || !shown || event.target.matches("select") || !Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
});

function start() {
  if (!("DecompressionStream" in window)) {
    $("verdict").textContent = "This page needs a browser of 2023 or later.";
    return;
  }
  const media = matchMedia("(prefers-color-scheme: dark)");
  setTheme(media.matches ? "dark" : "light");
  media.addEventListener("change", event => setTheme(event.matches ? "dark" : "light"));
  samples.forEach((sample, at) => {
    const button = add($("samples"), "button", `${MARKS[sample.right]} ${at}`);
    button.type = "button";
    button.setAttribute("aria-label", `sample ${at}, ${WORDS[sample.right]}`);
    button.title = `${sample.name}: ${sample.verdict}`;
    button.addEventListener("click", () => open(at));
  });
  const [first] = samples;
  first.levels.forEach((name, level) => {
    const button = add($("levels"), "button", name);
    button.type = "button";
    button.addEventListener("click", () => { state.level = level; render(); });
  });
  state.level = Math.max(0, first.growing.indexOf(true));
  add($("head"), "option", headName(null)).value = "";
  headsOf(first).forEach(pair => { add($("head"), "option", `head ${pair.join(".")}`).value = pair.join("."); });
  $("head").addEventListener("change", () => { state.head = $("head").value ? $("head").value.split(".").map(Number) : null; render(); });
  $("next-wrong").disabled = !samples.some(sample => sample.right === false);
  $("next-wrong").addEventListener("click", nextWrong);
  $("pointer-key").hidden = !samples.some(sample => sample.steps.some(step => step.levels.some(level => level.points_at)));
  const clicks = { home: "Home", end: "End", back: "ArrowLeft", forward: "ArrowRight", "first-error": "e", theme: "t" };
  for (const [id, key] of Object.entries(clicks)) $(id).addEventListener("click", () => actions[key]());
  $("slider").addEventListener("input", () => go(Number($("slider").value)));
  $("tokens").addEventListener("click", event => {
    const word = event.target.closest("button.word");
    if (word) go(Number(word.dataset.step));
  });
  $("all-ids").addEventListener("change", actions.i);
  $("stretch").addEventListener("change", () => { state.stretch = $("stretch").checked; render(); });
  for (const mode of ["heads", "steps"]) $(`mode-${mode}`).addEventListener("click", () => { state.mode = mode; render(); });
  let before = "light";
  addEventListener("beforeprint", () => { before = document.documentElement.dataset.theme; setTheme("light"); });
  addEventListener("afterprint", () => setTheme(before));
  addEventListener("resize", () => { if (shown) drawMap(); });
  open(0);
}
start();
