// The last lines of a log: coloured by level, filtered, and still while one reads.

import { isFresh } from "./live.js";
import { say } from "./words.js";

const LINES_MOST = 200;
const EVERY_MS = 3000;
const ERROR = /\b(error|err|fatal|critical|panic|traceback|exception)\b|^\S*\s?E\s/i;
const WARNING = /\bwarn(ing)?\b|^\S*\s?W\s/i;

const root = document.querySelector("[data-log]");
const view = root?.querySelector("[data-log-lines]");
const newer = root?.querySelector("[data-log-newer]");
let lines = [];
let unread = 0;
let asking = false;

function levelOf(line) {
  if (ERROR.test(line)) return "err";
  return WARNING.test(line) ? "warn" : "info";
}

const isAtEnd = () => view.scrollHeight - view.scrollTop - view.clientHeight < 24;

function paragraph(line) {
  const made = document.createElement("p");
  made.textContent = line;
  made.className = `line-${levelOf(line)}`;
  return made;
}

function toEnd() {
  unread = 0;
  newer.hidden = true;
  view.scrollTop = view.scrollHeight;
}

// How many lines at the end of the answer were not there before.
function added(fresh) {
  if (!lines.length) return fresh.length;
  const last = lines.at(-1);
  for (let at = fresh.length - 1; at >= 0; at -= 1) {
    if (fresh[at] === last && (at === 0 || lines.length < 2 || fresh[at - 1] === lines.at(-2))) {
      return fresh.length - 1 - at;
    }
  }
  return fresh.length;
}

function show(fresh) {
  const count = added(fresh);
  if (!count && lines.length) return;
  const follow = isAtEnd() || !lines.length;
  const old = lines.length ? view.childElementCount : 0;
  if (!old) view.replaceChildren();
  view.append(...fresh.slice(fresh.length - count).map(paragraph));
  // Whoever reads further up keeps their place: only then may it grow, and not for ever.
  const most = follow ? LINES_MOST : 5 * LINES_MOST;
  while (view.childElementCount > most) view.firstElementChild.remove();
  lines = fresh;
  if (follow) {
    toEnd();
    return;
  }
  unread += count;
  newer.textContent = say(unread === 1 ? "log_newer_one" : "log_newer", { n: unread });
  newer.hidden = false;
}

async function ask() {
  if (asking || document.hidden || (lines.length && !isFresh())) return;
  asking = true;
  try {
    const answer = await fetch(root.dataset.log, { redirect: "error", signal: AbortSignal.timeout(8000) });
    if (answer.status === 200) {
      const text = await answer.text();
      if (text) show(text.replace(/\n$/, "").split("\n"));
    }
  } catch { /* the pill says that the page is not fresh; the lines stay */ } finally {
    asking = false;
  }
}

if (root) {
  root.querySelector("[data-log-level]").addEventListener("change", (event) => {
    view.dataset.level = event.target.value;
    toEnd();
  });
  root.querySelector("[data-log-wrap]").addEventListener("change", (event) => {
    view.classList.toggle("is-unwrapped", !event.target.checked);
  });
  newer.addEventListener("click", toEnd);
  view.addEventListener("scroll", () => isAtEnd() && unread && toEnd());
  setInterval(ask, EVERY_MS);
  ask();
}
