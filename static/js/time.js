// Ages that grow by themselves: every <time datetime> with a [data-age] inside.

import { say } from "./words.js";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

function ageText(seconds) {
  const size = Math.abs(seconds);
  for (const [unit, name] of UNITS) {
    if (size >= unit) {
      return say((seconds > 0 ? "ago_" : "in_") + name, { n: Math.floor(size / unit) });
    }
  }
  return say("now");
}

export function agesRefresh(root = document) {
  for (const age of root.querySelectorAll("[data-age]")) {
    const at = Date.parse(age.closest("time").dateTime);
    const text = ageText((Date.now() - at) / 1000);
    if (age.textContent !== text) age.textContent = text;
  }
}

setInterval(agesRefresh, 1000);
document.addEventListener("htmx:afterSwap", () => agesRefresh());
agesRefresh();
