"use strict";
// Attention weights, and the map of them: rows are heads of one step, or steps of one head.

const LUT = Float32Array.from({ length: 256 }, (_, root) => (root / 255) ** 2);

async function unpack(attention) {
  const packed = Uint8Array.from(atob(attention.data), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// one byte per token read, of one step and head
function rowOf(sample, step, layer, head) {
  const { layers, heads } = sample.attention, first = sample.prompt_tokens, read = first + step;
  const before = layers * heads * (step * first + step * (step - 1) / 2);
  const start = before + (layer * heads + head) * read;
  return sample.roots.subarray(start, start + read);
}

function headsOf(sample) {
  const { layers, heads } = sample.attention, names = [];
  for (let layer = 0; layer < layers; layer++) for (let head = 0; head < heads; head++) names.push([layer, head]);
  return names;
}

// the row of one head or, without one, the largest root of all heads
function shading(sample, step, head) {
  if (head) return rowOf(sample, step, ...head);
  const most = new Uint8Array(sample.prompt_tokens + step);
  for (const pair of headsOf(sample)) rowOf(sample, step, ...pair).forEach((root, at) => { if (root > most[at]) most[at] = root; });
  return most;
}

const sumOver = (row, places) => places.reduce((sum, place) => sum + (place < row.length ? LUT[row[place]] : 0), 0);

function strongest(row, count) {
  return Array.from(row.keys()).sort((a, b) => row[b] - row[a] || a - b).slice(0, count);
}

// mean attention on needed tokens over all steps that need some
function meanNeeded(sample, layer, head) {
  const steps = sample.steps.filter(step => step.depends_on?.length);
  if (!steps.length) return null;
  return steps.reduce((sum, step) => sum + sumOver(rowOf(sample, step.number, layer, head), step.depends_on), 0) / steps.length;
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function makeCanvas(width, height) {
  const canvas = document.createElement("canvas");
  // browsers refuse canvases of more than some hundred million pixels
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / width, 16000 / height, Math.sqrt(6e7 / (width * height)));
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(canvas.width / width, canvas.height / height);
  return [canvas, pen];
}

// cells by rows of roots; a row has { roots, needed, same }
function drawCells(rows, columns, cell, high, stretch, current) {
  const [canvas, pen] = makeCanvas(columns * cell, rows.length * high);
  const paper = rgb(colour("--paper")), ink = colour("--heat").split(" ").map(Number), none = rgb(colour("--raised"));
  const image = new ImageData(columns, rows.length);
  rows.forEach((row, number) => {
    for (let place = 0; place < columns; place++) {
      const share = place >= row.roots.length ? null : stretch ? row.roots[place] / 255 : LUT[row.roots[place]];
      const at = 4 * (number * columns + place);
      for (let part = 0; part < 3; part++)
        image.data[at + part] = share === null ? none[part] : paper[part] + share * (ink[part] - paper[part]);
      image.data[at + 3] = 255;
    }
  });
  const small = document.createElement("canvas");
  small.width = columns;
  small.height = rows.length;
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = false;
  pen.drawImage(small, 0, 0, columns * cell, rows.length * high);
  if (cell >= 5) {
    pen.fillStyle = colour("--line");
    for (let number = 1; number < rows.length; number++) pen.fillRect(0, number * high - 0.5, columns * cell, 0.5);
  }
  const wide = Math.max(2, cell - 1);
  rows.forEach((row, number) => {
    pen.fillStyle = colour("--same");
    for (const place of row.same) pen.fillRect(place * cell, (number + 1) * high - 3, wide, 2);
    pen.strokeStyle = pen.fillStyle = colour("--need");
    pen.lineWidth = 2;
    for (const place of row.needed.filter(place => place < row.roots.length)) {
      if (cell >= 5) pen.strokeRect(place * cell + 1, number * high + 1, cell - 2, high - 2);
      else pen.fillRect(place * cell, number * high, cell, 3); // a frame would hide the cell
    }
  });
  if (current !== null) {
    pen.strokeStyle = colour("--accent");
    pen.lineWidth = 2;
    pen.strokeRect(1, current * high + 1, columns * cell - 2, high - 2);
  }
  return canvas;
}

function rgb(text) {
  const digits = text.slice(1), long = digits.length === 3 ? [...digits].map(digit => digit + digit).join("") : digits;
  return [0, 2, 4].map(at => parseInt(long.slice(at, at + 2), 16));
}

// bands above the cells: tokens, IDs of the chosen level, marks
function drawBands(labels, cell) {
  const words = cell >= 11, high = (words ? 52 : 0) + 14 + 14;
  const [canvas, pen] = makeCanvas(labels.length * cell, high);
  pen.textBaseline = "middle";
  labels.forEach((label, place) => {
    const left = place * cell, middle = left + cell / 2;
    if (words) {
      pen.save();
      pen.translate(middle, high - 31);
      pen.rotate(-Math.PI / 2);
      pen.font = "11px ui-monospace, monospace";
      pen.fillStyle = colour("--ink");
      const text = label.word.length > 7 ? `${label.word.slice(0, 6)}…` : label.word;
      pen.fillText(text, 0, 0);
      pen.restore();
    }
    pen.fillStyle = label.hue;
    pen.fillRect(left, high - 27, cell - (cell >= 5 ? 1 : 0), 12);
    pen.textAlign = "center";
    if (cell >= 7 * String(label.id).length + 1) {
      pen.font = "600 10px system-ui, sans-serif";
      pen.fillStyle = label.hue === colour("--reserved") ? colour("--ink") : label.hue === colour("--c6") ? "#fff" : "#000";
      pen.fillText(String(label.id), middle, high - 20.5);
    }
    pen.font = "700 10px system-ui, sans-serif";
    if (cell >= 8) [...label.marks].slice(0, cell >= 16 ? 2 : 1).forEach((mark, number, all) => {
      pen.fillStyle = mark === "◆" ? colour("--need") : mark === "=" ? colour("--same") : colour("--ink");
      pen.fillText(mark, middle + (number - (all.length - 1) / 2) * 8, high - 6.5);
    });
    else if (label.marks) {
      pen.fillStyle = label.marks.includes("◆") ? colour("--need") : label.marks.includes("=") ? colour("--same") : colour("--ink");
      pen.fillRect(left, high - (label.marks.includes("◆") ? 13 : 7), Math.max(2, cell - 1), label.marks.includes("◆") ? 12 : 6);
    }
    pen.textAlign = "start";
  });
  return [canvas, high];
}
