// What can be done to a replica now. The buttons stay where they are; whether they may be
// pressed, why not, and the numbers beside them follow the replica. Without a websocket
// the page's numbers come this way too.

import { isOpen } from "./live.js";

const EVERY_MS = 10_000;
const ASKING_MS = 2000;

const root = document.querySelector("[data-actions]");
let askedAt = Date.now();
let busy = false;

function factsShow(list, facts) {
  if (!list || list.textContent === facts.join("")) return;
  list.replaceChildren(...facts.map((fact) => {
    const item = document.createElement("li");
    item.textContent = fact;
    return item;
  }));
}

function verbShow(item, { effect, blocked, facts }) {
  const can = item.querySelector("[data-can]");
  const cannot = item.querySelector("[data-cannot]");
  const moved = can.hidden !== Boolean(blocked) && item.contains(document.activeElement);
  can.hidden = Boolean(blocked);
  cannot.hidden = !blocked;
  can.querySelector("p").textContent = effect;
  if (blocked) cannot.querySelector("[data-why]").textContent = blocked;
  // Whoever stood on the button stands on its other form.
  if (moved) (blocked ? cannot : can).querySelector("a, button").focus();
  factsShow(document.getElementById(`facts-${item.dataset.verb}`), facts);
}

async function ask() {
  if (busy || document.hidden) return;
  busy = true;
  askedAt = Date.now();
  try {
    const answer = await fetch(root.dataset.actions, { redirect: "error", signal: AbortSignal.timeout(8000) });
    if (answer.ok) {
      const { facts, verbs, ...figures } = await answer.json();
      if (!isOpen()) document.dispatchEvent(new CustomEvent("live:figures", { detail: figures }));
      factsShow(root.querySelector("[data-peer-facts]"), facts);
      for (const item of root.querySelectorAll("[data-verb]")) verbShow(item, verbs[item.dataset.verb]);
    }
  } catch { /* the pill says that the page is not fresh */ } finally {
    busy = false;
  }
}

if (root) {
  document.addEventListener("htmx:afterSwap", ({ detail }) => detail.target.id === "replica-state" && ask());
  document.addEventListener("click", ({ target }) => target.closest("[data-dialog]") && ask());
  setInterval(() => {
    const everyMs = document.querySelector("dialog[open]") ? ASKING_MS : EVERY_MS;
    if (Date.now() - askedAt >= everyMs) ask();
  }, 1000);
}
