"use strict";
// The map of attention: its rows, labels and numbers.

function drawMap() {
  const byHead = state.mode === "heads", now = step(), map = $("map"), head = state.head ?? [0, 0];
  const rows = (byHead ? headsOf(shown) : shown.steps).map(item => {
    const number = byHead ? state.step : item.number, pair = byHead ? item : head, from = shown.steps[number];
    return { roots: rowOf(shown, number, ...pair), needed: from.depends_on ?? [], same: same(number), number, pair,
      name: byHead ? pair.join(".") : `${number} ${print(from.reads)}@${from.index}` };
  });
  const columns = byHead ? now.index + 1 : shown.ids.length;
  // below the facts if it would be too narrow beside them
  $("panels").classList.toggle("wide", 10 * shown.ids.length > $("panels").clientWidth - 960);
  const room = Math.max(300, $("attention").clientWidth - (byHead ? 440 : 380));
  const cell = Math.max(3, Math.min(26, Math.floor(room / columns))), high = rows.length > 80 ? 14 : 18;
  const current = byHead ? (state.head ? rows.findIndex(row => row.pair.join() === state.head.join()) : null) : state.step;
  const labels = shown.ids.slice(0, columns).map((ids, place) => ({ word: print(shown.tokens[place]), id: ids[state.level],
    hue: hues[place] < 0 ? colour("--reserved") : colour(`--c${hues[place] % 7}`), marks: marksOf(place) }));
  const [bands, tall] = drawBands(labels, cell), cells = drawCells(rows, columns, cell, high, state.stretch, current);
  const held = document.activeElement?.classList.contains("row") ? [...map.querySelectorAll(".row")].indexOf(document.activeElement) : -1;
  const { scrollTop, scrollLeft } = map;
  map.replaceChildren();
  const corner = add(map, "div", null, "top left"), names = add(corner, "div", null, "bands");
  corner.style.height = `${tall}px`;
  for (const name of ["ID", "marks"]) add(names, "span", name);
  add(map, "div", null, "top").append(bands);
  const heads = ["needed", ...(byHead ? ["needed, mean of steps"] : []), "same ID", "most"], grid = `${byHead ? "3.4rem 5.2rem" : "3.4rem"} 3.4rem 7.5rem`;
  const heading = add(add(map, "div", null, "top side"), "div", null, "numbers heading");
  heading.style.gridTemplateColumns = grid;
  heads.forEach(name => add(heading, "span", name, name === "most" ? "most" : ""));
  const left = add(map, "div", null, "left"), body = add(map, "div"), side = add(map, "div", null, "side");
  rows.forEach((row, at) => {
    const button = add(left, "button", row.name, "row");
    button.type = "button";
    button.style.height = button.style.lineHeight = `${high}px`;
    if (at === current) button.setAttribute("aria-current", "true");
    button.setAttribute("aria-label", byHead ? `head ${row.name}` : `step ${row.name}`);
    button.addEventListener("click", () => choose(row));
    const line = add(side, "div", null, `numbers${at === current ? " current" : ""}`), [most] = strongest(row.roots, 1);
    line.style.cssText = `grid-template-columns:${grid};height:${high}px;line-height:${high}px`;
    const known = shown.steps[row.number].depends_on !== null;
    add(line, "span", known ? share(sumOver(row.roots, row.needed)) : "–");
    if (byHead) add(line, "span", share(meanNeeded(shown, ...row.pair)));
    add(line, "span", row.same.length ? share(sumOver(row.roots, row.same)) : "–");
    add(line, "span", `${print(shown.tokens[most])}@${most} ${share(LUT[row.roots[most]])}`, "most");
  });
  cells.className = "cells";
  cells.setAttribute("role", "img");
  cells.setAttribute("aria-label", byHead ? `Attention of ${rows.length} heads in step ${state.step} on ${columns} tokens; the numbers beside it say the sums`
    : `Attention of head ${head.join(".")} in ${rows.length} steps on ${columns} tokens; the numbers beside it say the sums`);
  body.append(cells);
  map.scrollTo(scrollLeft, scrollTop);
  const low = (current ?? 0) * high, below = map.clientHeight - tall - high;
  if (current !== null && (low < map.scrollTop || low > map.scrollTop + below)) map.scrollTop = low - below / 2;
  if (held >= 0) map.querySelectorAll(".row")[Math.min(held, rows.length - 1)].focus({ preventScroll: true });
  const under = event => [rows[Math.floor(event.offsetY / high)], Math.floor(event.offsetX / cell)];
  cells.addEventListener("pointermove", event => point(event, ...under(event), byHead));
  cells.addEventListener("pointerleave", unpoint);
  cells.addEventListener("click", event => { const [row] = under(event); if (row) choose(row); });
  $("attention-name").textContent = byHead ? `Attention in step ${state.step}, all heads` : `Attention of head ${head.join(".")}, all steps`;
  $("map-note").textContent = `${document.documentElement.dataset.theme === "dark" ? "Light" : "Dark"} cells get much attention. Orange ${cell >= 5 ? "frame" : "line above"}: needed. Blue line below: same ID as the start, level ${shown.levels[state.level]}. ` +
    `Columns on the right: sums of attention on these tokens, and the token that gets most. A click on a row chooses the ${byHead ? "head" : "step"}.`;
  const row = shading(shown, state.step, state.head), list = $("strongest");
  list.replaceChildren(`${state.head ? `Head ${headName(state.head)}` : "Largest of all heads"} in step ${state.step}: `);
  for (const place of strongest(row, 6).filter(place => row[place] > 12)) { chip(list, place); list.append(`${share(LUT[row[place]])}${now.depends_on?.includes(place) ? " ◆" : ""}  `); }
}
function marksOf(place) {
  const now = step();
  return (place === now.index ? "▶" : "") + (now.depends_on?.includes(place) ? "◆" : "") + (same(state.step).includes(place) ? "=" : "") + (place === pointed() ? "P" : "");
}
function choose(row) {
  if (state.mode === "heads") { state.head = state.head?.join() === row.pair.join() ? null : row.pair; render(); } else go(row.number);
}
function point(event, row, place, byHead) {
  unpoint();
  if (!row || place >= row.roots.length) return;
  boxes[place].classList.add("lit");
  const ids = shown.levels.map((level, at) => `${level} ${shown.ids[place][at]}`).join(", ");
  const notes = [row.needed.includes(place) && "needed", row.same.includes(place) && "same ID"].filter(Boolean).join(", ");
  const tip = $("tip");
  tip.textContent = `${print(shown.tokens[place])}@${place}, IDs: ${ids}\nhead ${row.pair.join(".")}, step ${row.number}: ${LUT[row.roots[place]].toPrecision(2)}${notes ? `\n${notes}` : ""}`;
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}
function unpoint() {
  $("tip").hidden = true;
  boxes.forEach(box => box.classList.remove("lit"));
}
