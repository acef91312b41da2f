// What a person must know of answers that do not come: a region that takes longer says
// that it is busy, one that was not refreshed says why. And the title says the worst
// that is on the page, for who has it in a tab behind others.

import { say } from "./words.js";

const BUSY_MS = 300;

const line = document.querySelector("[data-not-refreshed]");
const title = document.title;
const timers = new WeakMap();
const failed = new Map();

function failureShow() {
  if (!line) return;
  line.hidden = failed.size === 0;
  const text = failed.size ? say("not_refreshed", { why: [...failed.values()].at(-1) }) : "";
  const words = line.querySelector("span");
  if (words.textContent !== text) words.textContent = text;
}

function reason({ type, detail }) {
  if (type === "htmx:timeout") return say("no_answer");
  if (type === "htmx:sendError") return say("no_connection");
  return say("answered", { status: detail.xhr.status });
}

document.addEventListener("htmx:beforeSend", ({ detail }) => {
  const region = detail.target;
  clearTimeout(timers.get(region));
  timers.set(region, setTimeout(() => region.setAttribute("aria-busy", "true"), BUSY_MS));
});

document.addEventListener("htmx:afterRequest", ({ detail }) => {
  clearTimeout(timers.get(detail.target));
  detail.target.removeAttribute("aria-busy");
  document.getElementById(detail.target.id)?.removeAttribute("aria-busy");
  if (detail.successful && failed.delete(detail.target.id)) failureShow();
});

for (const name of ["htmx:timeout", "htmx:sendError", "htmx:responseError"]) {
  document.addEventListener(name, (event) => {
    const region = event.detail.target;
    if (!region?.matches("[data-live]")) return;
    failed.set(region.id, reason(event));
    failureShow();
  });
}

function titleShow() {
  const worst = ["err", "warn"].find((token) => document.querySelector(`main .verdict-${token}, main .banner-${token}:not([hidden])`));
  const text = worst ? `${say(`title_${worst}`)}: ${title}` : title;
  if (document.title !== text) document.title = text;
}

document.addEventListener("htmx:afterSwap", titleShow);
titleShow();
