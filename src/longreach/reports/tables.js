// Tables that sort by a click on a header and show the rows that contain all words of a filter.
"use strict";

const PAGE_ROWS = 200;

// columns: [{name, text(row), key(row)?, title(row)?, number?}]; returns {refresh(rows)}
function makeTable(holder, caption, columns, rows) {
  const state = {column: -1, down: false, words: [], most: PAGE_ROWS, rows};
  const id = `filter-${holder.id}`;
  holder.replaceChildren();
  const bar = element("div", {class: "bar"});
  const filter = element("input", {id, type: "search", placeholder: "all words must occur"});
  const label = element("label", {for: id}, "Filter ");
  label.append(filter);
  const count = element("span", {class: "small", role: "status"});
  bar.append(label, count);
  const scroll = element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption});
  const table = element("table");
  const head = element("tr");
  const body = element("tbody");
  const more = element("button", {type: "button", class: "more"}, "Show more rows");
  columns.forEach((column, place) => {
    const cell = element("th", {scope: "col", class: column.number ? "number" : ""});
    const button = element("button", {type: "button"}, column.name);
    button.addEventListener("click", () => {
      state.down = state.column === place ? !state.down : false;
      state.column = place;
      draw();
    });
    cell.append(button);
    head.append(cell);
  });
  const top = element("thead");
  top.append(head);
  table.append(element("caption", {class: "hidden"}, caption), top, body);
  scroll.append(table);
  holder.append(bar, scroll, more);
  filter.addEventListener("input", () => {
    state.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    state.most = PAGE_ROWS;
    draw();
  });
  more.addEventListener("click", () => {
    state.most *= 5;
    draw();
  });

  function chosen() {
    const found = state.rows.filter((row) => {
      if (!state.words.length) return true;
      const text = columns.map((column) => column.text(row)).join(" ").toLowerCase();
      return state.words.every((word) => text.includes(word));
    });
    if (state.column < 0) return found;
    const column = columns[state.column];
    const key = column.key || column.text;
    const sorted = found.map((row) => [key(row), row]);
    sorted.sort(([one], [other]) => compare(one, other));
    if (state.down) sorted.reverse();
    return sorted.map(([, row]) => row);
  }

  function draw() {
    const found = chosen();
    head.querySelectorAll("th").forEach((cell, place) => {
      cell.setAttribute("aria-sort", place !== state.column ? "none" : state.down ? "descending" : "ascending");
    });
    const lines = found.slice(0, state.most).map((row) => {
      const line = element("tr");
      columns.forEach((column) => {
        const cell = element("td", {class: column.number ? "number" : ""}, column.text(row));
        if (column.title) cell.title = column.title(row);
        line.append(cell);
      });
      return line;
    });
    body.replaceChildren(...lines);
    more.hidden = found.length <= state.most;
    const shown = Math.min(found.length, state.most);
    count.textContent = `${shown} of ${state.rows.length} rows`;
  }

  draw();
  return {
    refresh(newRows) {
      state.rows = newRows;
      draw();
    },
  };
}

// numbers before texts, and texts with numbers in them by these numbers: k=8 before k=12
function compare(one, other) {
  if (typeof one === "number" && typeof other === "number") return one - other;
  return String(one).localeCompare(String(other), "en", {numeric: true});
}

function element(name, attributes = {}, text = "") {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== "") made.setAttribute(key, value);
  if (text !== "") made.textContent = text;
  return made;
}
