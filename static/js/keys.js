// Shortcuts. Those of a single letter never fire where somebody writes, and can be
// turned off; none of them changes anything.

import { seekOpen } from "./seek.js";

const NEXT_MS = 1500;
const WRITES = 'input:not([type="checkbox"], [type="radio"], [type="range"], [type="button"]), textarea, select, [contenteditable]';

const allowed = document.body.dataset.shortcuts !== "off";
let goUntil = 0;

function help() {
  const dialog = document.getElementById("shortcuts");
  if (dialog && !dialog.open) dialog.showModal();
}

function letter(event) {
  const { key } = event;
  if (Date.now() < goUntil) {
    goUntil = 0;
    const link = document.querySelector(`[data-go="${CSS.escape(key)}"]`);
    if (link) location.assign(link.href);
    return;
  }
  if (key === "g") goUntil = Date.now() + NEXT_MS;
  else if (key === "?") help();
  else if (key === "/") {
    event.preventDefault();
    seekOpen();
  }
}

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
    event.preventDefault();
    seekOpen();
  } else if (allowed && !event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest?.(WRITES)) {
    letter(event);
  }
});

document.addEventListener("click", (event) => event.target.closest("[data-shortcuts-open]") && help());
