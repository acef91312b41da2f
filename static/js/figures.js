// Live numbers: texts that are patched in place, so that nothing around them moves.
//
// [data-figure="name"] shows one value; inside [data-figures-of="id"] it belongs to
// that row of a list. A value that nobody collects is said to be so.

import { say } from "./words.js";

const page = {};
const rows = new Map();

export const figure = (name) => page[name] ?? null;

function figureText(value, digits, none) {
  if (value === null || value === undefined) return none ?? say("not_collected");
  return value.toLocaleString(document.documentElement.lang, {
    minimumFractionDigits: digits, maximumFractionDigits: digits,
  });
}

function patch(element, value) {
  const text = figureText(value, Number(element.dataset.digits ?? 0), element.dataset.none);
  if (element.textContent !== text) element.textContent = text;
  element.classList.toggle("is-none", value === null || value === undefined);
}

function show(root, values) {
  for (const [name, value] of Object.entries(values)) {
    for (const element of root.querySelectorAll(`[data-figure="${name}"]`)) {
      if (root !== document || !element.closest("[data-figures-of]")) patch(element, value);
    }
  }
}

function showRow(id) {
  const root = document.querySelector(`[data-figures-of="${CSS.escape(id)}"]`);
  if (root) show(root, rows.get(id));
}

document.addEventListener("live:figures", (event) => {
  const { values, rows: changed } = event.detail;
  if (values) {
    Object.assign(page, values);
    show(document, values);
  }
  for (const [id, news] of Object.entries(changed ?? {})) {
    rows.set(id, { ...rows.get(id), ...news });
    showRow(id);
  }
});

// An answer that was under way while a number came may hold the older one.
document.addEventListener("htmx:afterSwap", () => {
  for (const id of rows.keys()) showRow(id);
});

document.addEventListener("live:state", (event) => {
  if (!event.detail.open) rows.clear();
});
