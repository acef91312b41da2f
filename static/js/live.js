// Regions that htmx polls, and whether what they show can still be believed.
//
// A poll that brings the same text changes nothing in the document: a selection, the
// focus and a half-read line survive. A region that was not heard for STALE_S says so.

import { say } from "./words.js";

const STALE_S = 12;
const heardAt = new Map();
const lastText = new Map();

function shapeSet(pill, name) {
  const use = pill.querySelector("use");
  use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#state-${name}`));
}

function freshnessShow() {
  for (const pill of document.querySelectorAll("[data-freshness]")) {
    const id = pill.dataset.freshness;
    const region = document.getElementById(id);
    if (!region || !heardAt.has(id)) continue;
    const quietS = Math.floor((Date.now() - heardAt.get(id)) / 1000);
    const stale = quietS >= STALE_S;
    const text = stale ? say("stale", { n: quietS }) : say("live");
    const label = pill.querySelector("[data-freshness-text]");
    if (label.textContent !== text) label.textContent = text;
    if (pill.classList.contains("is-stale") !== stale || !pill.dataset.shown) {
      pill.dataset.shown = "1";
      shapeSet(pill, stale ? "stale" : "ok");
    }
    pill.classList.toggle("is-stale", stale);
    region.classList.toggle("is-stale", stale);
  }
}

document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr, isError } = event.detail;
  if (isError || !target?.matches("[data-live]")) return;
  heardAt.set(target.id, Date.now());
  if (lastText.get(target.id) === xhr.responseText) event.detail.shouldSwap = false;
  lastText.set(target.id, xhr.responseText);
});

// A focused link inside a region lives on under the same id.
for (const region of document.querySelectorAll("[data-live]")) heardAt.set(region.id, Date.now());
setInterval(freshnessShow, 1000);
document.addEventListener("visibilitychange", freshnessShow);
freshnessShow();
