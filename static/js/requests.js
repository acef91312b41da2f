// The list goes on by itself, but not under somebody's hands: it holds while it is
// paused, pointed at, or has the focus, and says so.

import "./live.js";

const pause = document.querySelector("[data-pause]");
const note = document.querySelector("[data-held]");
const words = document.querySelector("[data-held-text]");
const pill = document.querySelector('[data-freshness="request-rows"]');

const list = () => document.getElementById("request-rows");
const isPaused = () => pause?.getAttribute("aria-pressed") === "true";
const isPointed = () => list().matches(":hover") || list().contains(document.activeElement);

let held = false;

function look() {
  const before = held;
  held = isPaused() || isPointed();
  const text = isPaused() ? words.dataset.paused : words.dataset.pointed;
  if (words.textContent !== text) words.textContent = text;
  list().toggleAttribute("data-still", held);
  pill.hidden = held;
  note.hidden = !held;
  if (before && !held) window.htmx.trigger(list(), "again");
}

function hold(event) {
  if (event.detail.elt !== list() || !held) return;
  if (event.type === "htmx:beforeRequest") event.preventDefault();
  else event.detail.shouldSwap = false;
}

if (pause) {
  pause.addEventListener("click", () => {
    pause.setAttribute("aria-pressed", String(!isPaused()));
    look();
  });
  for (const name of ["pointerover", "pointerout", "focusin", "focusout"]) {
    document.addEventListener(name, () => requestAnimationFrame(look));
  }
  document.addEventListener("htmx:beforeRequest", hold);
  document.addEventListener("htmx:beforeSwap", hold);
}
