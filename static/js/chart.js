// Line charts of the last half hour, as SVG in the colours of the style sheet.
//
// A series keeps at most POINTS_MOST points: old ones are thinned out, the newest stay.
// Missing data is a gap. All charts of a page share one cursor, moved by the pointer
// or the arrow keys. What a chart shows also stands in words, and as a table.

import { say } from "./words.js";

export const POINTS_MOST = 600;
const SPAN_MS = 30 * 60_000;
const GAP_MS = 90_000;
const HEIGHT = 112;
const PAD = { left: 40, right: 8, top: 8, bottom: 18 };
const NS = "http://www.w3.org/2000/svg";

export class Series {
  constructor(points) {
    this.points = points;
  }

  push(at, value) {
    const last = this.points.at(-1);
    if (value === null && (!last || last[1] === null)) return;
    this.points.push([at, value]);
    while (this.points.length && this.points[0][0] < at - SPAN_MS) this.points.shift();
    if (this.points.length <= POINTS_MOST) return;
    const half = POINTS_MOST / 2;
    this.points = this.points.filter(([, one], index) => index > half || index % 2 === 0 || one === null);
    while (this.points.length > POINTS_MOST) this.points.shift();
  }

  // The point nearest to a time, or null.
  near(at) {
    let best = null;
    for (const point of this.points) {
      if (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
    }
    return best;
  }

  known() {
    return this.points.filter(([, value]) => value !== null).map(([, value]) => value);
  }
}

// Cursor -------------------------------------------------------------------

const drawn = new Set();
let cursorAt = null;

function cursorSet(at) {
  cursorAt = at;
  for (const chart of drawn) chart.showCursor();
}

function element(name, attributes, parent) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

// The next of 1, 2, 5, 10 … above a value.
function niceCeil(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

const clock = (at) => new Date(at).toISOString().slice(11, 19);

// Chart --------------------------------------------------------------------

export class Chart {
  constructor(figure, series) {
    this.figure = figure;
    this.series = series;
    this.digits = Number(figure.dataset.digits);
    this.limit = figure.dataset.limit ? Number(figure.dataset.limit) : null;
    this.unit = figure.dataset.unit;
    this.title = figure.querySelector("figcaption b").textContent;
    this.build();
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(figure);
    drawn.add(this);
    this.draw();
  }

  destroy() {
    drawn.delete(this);
    this.observer.disconnect();
    this.svg.remove();
    this.text.remove();
    this.table?.remove();
  }

  build() {
    this.svg = element("svg", { class: "chart", role: "img", tabindex: "0", height: HEIGHT });
    this.grid = element("g", { class: "chart-grid-lines" }, this.svg);
    this.area = element("path", { class: "chart-area" }, this.svg);
    this.line = element("path", { class: "chart-line" }, this.svg);
    this.cursor = element("line", { class: "chart-cursor", y1: PAD.top, y2: HEIGHT - PAD.bottom }, this.svg);
    this.dot = element("circle", { class: "chart-dot", r: 3 }, this.svg);
    this.text = document.createElement("p");
    this.text.className = "chart-text";
    this.figure.append(this.svg, this.text);
    this.svg.addEventListener("pointermove", (event) => {
      const x = event.clientX - this.svg.getBoundingClientRect().left;
      cursorSet(this.series.near(this.timeAt(x))?.[0] ?? null);
    });
    this.svg.addEventListener("pointerleave", () => cursorSet(null));
    this.svg.addEventListener("blur", () => cursorSet(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") cursorSet(null);
    if (!step || !this.series.points.length) return;
    event.preventDefault();
    const { points } = this.series;
    const last = points.length - 1;
    const here = cursorAt === null ? last + 1 : points.indexOf(this.series.near(cursorAt));
    cursorSet(points[Math.max(0, Math.min(last, here + step))][0]);
  }

  timeAt(x) {
    return this.from + ((x - PAD.left) / this.inner) * SPAN_MS;
  }

  x(at) {
    return PAD.left + ((at - this.from) / SPAN_MS) * this.inner;
  }

  y(value) {
    return PAD.top + (1 - value / this.most) * (HEIGHT - PAD.top - PAD.bottom);
  }

  number(value, digits = this.digits) {
    return value.toLocaleString(document.documentElement.lang, { maximumFractionDigits: digits });
  }

  draw(now = Date.now()) {
    const width = Math.floor(this.figure.clientWidth);
    if (!width) return;
    this.svg.setAttribute("width", width);
    this.inner = width - PAD.left - PAD.right;
    this.from = now - SPAN_MS;
    const known = this.series.known();
    this.most = this.limit !== null ? 100 : niceCeil(Math.max(...known, 1));
    this.drawGrid(now, width);
    this.drawLine();
    this.showCursor();
    this.showText(known);
    if (this.table && now - this.tabledAt > 10_000) this.showTable(true);
  }

  drawGrid(now, width) {
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const y = this.y(this.most * share);
      parts.push(element("line", { x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }));
      const label = element("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end" });
      // Half of a small scale is no whole number.
      label.textContent = this.number(this.most * share, 1);
      parts.push(label);
    }
    for (const [minutes, anchor] of [[30, "start"], [15, "middle"], [0, "end"]]) {
      const at = now - minutes * 60_000;
      const label = element("text", { x: this.x(at), y: HEIGHT - 4, "text-anchor": anchor });
      label.textContent = clock(at).slice(0, 5);
      parts.push(label);
    }
    if (this.limit !== null) {
      const y = this.y(this.limit);
      parts.push(element("line", { class: "chart-limit", x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }));
      const label = element("text", { class: "chart-limit-text", x: width - PAD.right, y: y + 12, "text-anchor": "end" });
      label.textContent = say("chart_limit", { n: `${this.limit} ${this.unit}` });
      parts.push(label);
    }
    this.grid.replaceChildren(...parts);
  }

  drawLine() {
    let line = "";
    let area = "";
    let run = [];
    const close = () => {
      if (run.length) {
        const points = run.map(([at, value]) => `${this.x(at).toFixed(1)},${this.y(value).toFixed(1)}`);
        // A lone point is still seen: a line of no length with round ends.
        line += `M${points.join("L")}${points.length === 1 ? `L${points[0]}` : ""}`;
        const base = this.y(0);
        area += `M${this.x(run[0][0]).toFixed(1)},${base}L${points.join("L")}L${this.x(run.at(-1)[0]).toFixed(1)},${base}Z`;
      }
      run = [];
    };
    for (const point of this.series.points) {
      if (point[0] < this.from) continue;
      if (point[1] === null || (run.length && point[0] - run.at(-1)[0] > GAP_MS)) close();
      if (point[1] !== null) run.push(point);
    }
    close();
    this.line.setAttribute("d", line);
    this.area.setAttribute("d", area);
  }

  showCursor() {
    const point = cursorAt === null ? null : this.series.near(cursorAt);
    const shown = point !== null && this.inner > 0;
    this.cursor.classList.toggle("is-off", !shown);
    this.dot.classList.toggle("is-off", !shown || point[1] === null);
    if (shown) {
      const x = this.x(point[0]);
      this.cursor.setAttribute("x1", x);
      this.cursor.setAttribute("x2", x);
      this.dot.setAttribute("cx", x);
      if (point[1] !== null) this.dot.setAttribute("cy", this.y(point[1]));
    }
    this.showText(this.series.known(), point);
  }

  showText(known, point = cursorAt === null ? null : this.series.near(cursorAt)) {
    const last = this.series.points.at(-1)?.[1] ?? null;
    const value = (one) => (one === null ? say("not_collected") : `${this.number(one)} ${this.unit}`.trim());
    let text = known.length
      ? say("chart_text", { now: value(last), min: this.number(Math.min(...known)), max: this.number(Math.max(...known)) })
      : say("not_collected");
    this.svg.setAttribute("aria-label", `${this.title}: ${text}`);
    if (point) text = `${clock(point[0])} UTC: ${value(point[1])}`;
    if (this.text.textContent !== text) this.text.textContent = text;
  }

  // One row a minute, the newest first.
  showTable(wanted) {
    this.table?.remove();
    this.table = null;
    if (!wanted) return;
    this.tabledAt = Date.now();
    const minutes = new Map(this.series.points.map((point) => [clock(point[0]).slice(0, 5), point]));
    const table = document.createElement("table");
    table.createCaption().textContent = this.title;
    const head = table.createTHead().insertRow();
    for (const name of [say("chart_time"), this.unit || this.title]) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = name;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const [minute, [, value]] of [...minutes].reverse()) {
      const row = body.insertRow();
      row.insertCell().textContent = `${minute} UTC`;
      row.insertCell().textContent = value === null ? say("not_collected") : this.number(value);
    }
    this.table = document.createElement("div");
    this.table.className = "chart-table";
    this.table.tabIndex = 0;
    this.table.append(table);
    this.figure.append(this.table);
  }
}
