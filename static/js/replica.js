// The page of one replica: its numbers, charts, open requests and log.

import "./actions.js";
import "./copy.js";
import "./log.js";
import { Chart, Series } from "./chart.js";
import { figure } from "./figures.js";
import { isFresh } from "./live.js";

// Charts -------------------------------------------------------------------

const history = JSON.parse(document.getElementById("history")?.textContent ?? "{}");
const series = new Map(Object.entries(history).map(([name, points]) => [name, new Series(points)]));
const charts = new Map();
const pause = document.querySelector("[data-charts-pause]");
const asTable = document.querySelector("[data-charts-table]");

const isPressed = (button) => button?.getAttribute("aria-pressed") === "true";

// A chart exists while it can be seen; its series goes on without it.
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const chart = charts.get(target);
    if (isIntersecting && !chart) {
      const made = new Chart(target, series.get(target.dataset.chart));
      made.showTable(isPressed(asTable));
      charts.set(target, made);
      target.classList.add("is-drawn");
    } else if (!isIntersecting && chart && !target.contains(document.activeElement)) {
      // Its place stays as high as it was: nothing on the page jumps.
      chart.destroy();
      charts.delete(target);
    }
  }
}, { rootMargin: "200px" });

for (const target of document.querySelectorAll("[data-chart]")) seen.observe(target);

setInterval(() => {
  const now = Date.now();
  for (const [name, one] of series) one.push(now, isFresh() ? figure(name) : null);
  if (document.hidden || isPressed(pause)) return;
  for (const chart of charts.values()) chart.draw(now);
}, 1000);

for (const button of [pause, asTable].filter(Boolean)) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", String(!isPressed(button)));
    for (const chart of charts.values()) {
      chart.showTable(isPressed(asTable));
      if (!isPressed(pause)) chart.draw();
    }
  });
}

// Open requests ------------------------------------------------------------

const table = document.querySelector("[data-requests]");
const none = document.querySelector("[data-requests-none]");
const unknown = document.querySelector("[data-requests-unknown]");
const blank = document.querySelector("template[data-request]");

function fill(row, request) {
  for (const cell of row.querySelectorAll("[data-cell]")) {
    let value = request[cell.dataset.cell];
    if (cell.dataset.cell === "age_s") value = Math.round(value);
    if (cell.dataset.yes) value = value ? cell.dataset.yes : cell.dataset.no;
    if (cell.textContent !== String(value)) cell.textContent = value;
  }
}

function requestsShow(requests) {
  const body = table.tBodies[0];
  while (body.rows.length > requests.length) body.rows[body.rows.length - 1].remove();
  while (body.rows.length < requests.length) body.append(blank.content.firstElementChild.cloneNode(true));
  requests.forEach((request, index) => fill(body.rows[index], request));
}

document.addEventListener("live:figures", ({ detail }) => {
  if (!table) return;
  if (detail.requests) requestsShow(detail.requests);
  const count = figure("in_flight");
  table.hidden = table.tBodies[0].rows.length === 0;
  none.hidden = count !== 0;
  unknown.hidden = count !== null;
});

