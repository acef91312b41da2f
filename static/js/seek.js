// The search box of every page: hits appear under it while one writes. Arrows choose,
// Enter goes, Esc closes and gives the focus back. Without this script it is a form.

import { say } from "./words.js";

const PAUSE_MS = 150;

const form = document.querySelector("[data-seek]");
const box = form?.querySelector("input");
const list = form?.querySelector("[role=listbox]");
const count = form?.querySelector("[data-seek-count]");

let timer = 0;
let asking = null;
let before = null;

const options = () => [...list.querySelectorAll("[role=option]")];
const chosen = () => list.querySelector("[aria-selected=true]");

function close() {
  clearTimeout(timer);
  asking?.abort();
  list.hidden = true;
  box.setAttribute("aria-expanded", "false");
  box.removeAttribute("aria-activedescendant");
}

function choose(option) {
  chosen()?.setAttribute("aria-selected", "false");
  if (!option) return box.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  box.setAttribute("aria-activedescendant", option.id);
  return option.scrollIntoView({ block: "nearest" });
}

function show(html) {
  list.innerHTML = html;
  list.hidden = false;
  box.setAttribute("aria-expanded", "true");
  count.textContent = list.querySelector("[data-count]")?.dataset.count ?? "";
  choose(box.value.trim() ? options()[0] : null);
}

async function ask() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  const url = `${form.action}?list&q=${encodeURIComponent(box.value)}`;
  try {
    const answer = await fetch(url, { signal, redirect: "error", headers: { Accept: "text/html" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const html = await answer.text();
    if (!signal.aborted) show(html);
  } catch {
    if (signal.aborted) return;
    close();
    count.textContent = say("seek_failed");
  }
}

export function seekOpen() {
  if (document.activeElement !== box) before = document.activeElement;
  box.focus();
  box.select();
}

function move(step) {
  const all = options();
  if (!all.length) return;
  const at = all.indexOf(chosen());
  choose(all[at < 0 && step < 0 ? all.length - 1 : (at + step + all.length) % all.length]);
}

function pressed(event) {
  // Enter and arrows belong to the input method while it composes.
  if (event.isComposing || event.keyCode === 229) return;
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (list.hidden) ask();
    else move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Enter" && !list.hidden && chosen()) {
    event.preventDefault();
    location.assign(chosen().href);
  } else if (event.key === "Escape") {
    event.preventDefault();
    event.stopPropagation();
    box.value = "";
    close();
    (before?.isConnected ? before : document.getElementById("main")).focus();
  }
}

if (form) {
  box.addEventListener("input", () => {
    // What is on the list, or on its way, is not of what is written now.
    asking?.abort();
    choose(null);
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE_MS);
  });
  box.addEventListener("focus", () => list.hidden && ask());
  box.addEventListener("keydown", pressed);
  form.addEventListener("focusout", ({ relatedTarget }) => form.contains(relatedTarget) || close());
  // A press on a hit must not take the focus, and the list with it, before the click.
  list.addEventListener("pointerdown", (event) => event.preventDefault());
}
