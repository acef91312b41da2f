// Says so when the clock of this browser and that of the server differ: every age on
// the page would be wrong by as much.

import { say } from "./words.js";

const MOST_MS = 2000;
const line = document.querySelector("[data-clock]");

// The header tells whole seconds, the way takes time: only what neither explains counts.
async function apartMs() {
  const before = Date.now();
  const answer = await fetch("/livez", { cache: "no-store", signal: AbortSignal.timeout(8000) });
  const after = Date.now();
  const server = Date.parse(answer.headers.get("Date"));
  if (before > server + 1000 + MOST_MS) return before - server - 1000;
  if (after < server - MOST_MS) return after - server;
  return 0;
}

async function look() {
  // As the page came: rendering and the way are in it, so this alone proves nothing.
  const cameAt = Date.now() - performance.now() + (performance.getEntriesByType("navigation")[0]?.responseStart ?? 0);
  if (Math.abs(cameAt - Number(line.dataset.clock)) <= MOST_MS) return;
  try {
    const apart = await apartMs();
    if (!apart) return;
    line.querySelector("span").textContent = say(apart > 0 ? "clock_fast" : "clock_slow", { n: Math.round(Math.abs(apart) / 1000) });
    line.hidden = false;
  } catch { /* who does not answer cannot be compared with */ }
}

if (line) look();
