// The split editor. The number fields are the form; everything else here moves them.
//
// A gesture is a run of edits of one row. Each edit is computed from the weights at
// the gesture's start, so going out and back restores them exactly. Nothing is sent
// before Apply; the draft survives a reload and somebody else's change.

import { bounds, even, redistribute, TOTAL } from "./redistribute.js";
import { say } from "./words.js";

const JUMP_BP = 2500;
const LABEL_BP = 1400;

const data = JSON.parse(document.getElementById("editor").textContent);
const form = document.getElementById("split");
const storageKey = `sluice.draft:${data.model}`;
const names = data.versions.map((version) => version.name);

const rows = data.versions.map((version, index) => {
  const element = form.querySelectorAll("[data-version]")[index];
  const part = (name) => element.querySelector(`[data-${name}]`);
  return {
    version,
    element,
    slider: part("slider"),
    amount: part("amount"),
    lock: part("lock"),
    limit: part("limit"),
    error: part("row-error"),
    slice: form.querySelectorAll('[data-bar="wanted"] [data-slice]')[index],
  };
});

const part = (name) => form.querySelector(`[data-${name}]`);
const conflictBanner = part("conflict");
const apply = part("apply");
const jump = part("jump");

let saved = data.versions.map((version) => version.weight);
let draft = [...saved];
let caps = data.versions.map((version) => version.most);
let gesture = null;
let conflict = data.conflict;
// The generation that the draft was made from.
let seen = Number(form.elements.generation.value);
let jumpAgreed = false;

const locked = () => rows.map((row) => row.lock.checked);
const share = (bp) => say("percent", { share: String(bp / 100) });
const same = (a, b) => a.every((value, index) => value === b[index]);

// Basis points in a field, or null while it holds no percentage.
function parse(text) {
  const match = /^\s*(\d{1,3})(?:[.,](\d{0,2}))?\s*%?\s*$/.exec(text);
  if (!match) return null;
  const bp = Number(match[1]) * 100 + Number((match[2] ?? "").padEnd(2, "0"));
  return bp <= TOTAL ? bp : null;
}

// Editing ------------------------------------------------------------------

function edit(row, value, { keepField = false } = {}) {
  if (gesture?.row !== row) gesture = { row, start: [...draft] };
  draft = redistribute(gesture.start, row, value, locked(), caps);
  show(keepField ? row : -1);
  keep();
}

function replace(weights) {
  gesture = null;
  draft = [...weights];
  show();
  keep();
}

function keep() {
  try {
    if (same(draft, saved) && !conflict) sessionStorage.removeItem(storageKey);
    else sessionStorage.setItem(storageKey, JSON.stringify({
      generation: seen,
      weights: Object.fromEntries(names.map((name, index) => [name, draft[index]])),
    }));
  } catch { /* storage may be forbidden; the draft then lives as long as the page */ }
}

// Showing ------------------------------------------------------------------

function showBar() {
  let x = 0;
  rows.forEach((row, index) => {
    const width = draft[index] / 100;
    for (const rect of row.slice.querySelectorAll("rect")) {
      rect.setAttribute("x", `${x}%`);
      rect.setAttribute("width", `${width}%`);
    }
    const text = row.slice.querySelector("text");
    // The outer labels stand at the ends of the bar and fit whatever the width.
    const outer = text.getAttribute("text-anchor") !== "middle";
    if (!outer) text.setAttribute("x", `${x + width / 2}%`);
    const shown = outer ? draft[index] > 0 : draft[index] >= LABEL_BP;
    text.textContent = shown ? `${names[index]} ${share(draft[index])}` : "";
    x += width;
  });
}

function showRow(row, index, keepField) {
  const bp = draft[index];
  const base = gesture?.row === index ? gesture.start : draft;
  const { least, most } = bounds(base, index, locked(), caps);
  const stuck = least === most;
  row.slider.value = String(bp);
  row.slider.setAttribute("aria-valuetext", say("slider", {
    version: names[index], share: String(bp / 100), was: String(saved[index] / 100),
  }));
  row.slider.style.setProperty("--value", bp / TOTAL);
  row.slider.style.setProperty("--least", least / TOTAL);
  row.slider.style.setProperty("--most", most / TOTAL);
  row.slider.disabled = stuck;
  row.amount.readOnly = stuck;
  if (!keepField) row.amount.value = String(bp / 100);
  for (const step of row.element.querySelectorAll("[data-step]")) {
    const beyond = Number(step.dataset.step) > 0 ? bp >= most : bp <= least;
    step.setAttribute("aria-disabled", String(beyond));
  }
  row.element.classList.toggle("is-changed", bp !== saved[index]);
  const why = limitText(index, least, most, stuck);
  // Where there is a cap, its line is kept free: it comes and goes without moving a row.
  row.limit.hidden = !why && !data.capped;
  row.limit.textContent = why;
}

function limitText(index, least, most, stuck) {
  if (caps[index] < TOTAL && most <= Math.max(caps[index], draft[index])) {
    return say("capped", { share: share(most) });
  }
  if (rows.length === 1) return "";
  if (stuck) return say("others_locked");
  return least > 0 ? say("floor", { share: share(least) }) : "";
}

function readyText(ready) {
  if (ready === null) return say("ready_unknown");
  if (ready === 0) return say("ready_none");
  return ready === 1 ? say("ready_one") : say("ready_many", { n: ready });
}

function moved() {
  return draft.reduce((total, bp, index) => total + Math.max(0, bp - saved[index]), 0);
}

// The polled region knows the rate of the last minutes.
function rateText() {
  const rate = parseFloat(document.getElementById("applied")?.dataset.rate);
  if (Number.isNaN(rate)) return say("rate_unknown");
  if (rate === 0) return say("rate_none");
  const whole = (n) => String(n < 10 ? Number(n.toFixed(1)) : Math.round(n));
  return say("rate", { moved: whole((rate * moved()) / TOTAL), all: whole(rate) });
}

function showPreview() {
  const lines = [];
  if (same(draft, saved)) {
    lines.push(say("unchanged"));
  } else {
    lines.push(say("moved", { share: share(moved()) }));
    rows.forEach(({ version }, index) => {
      if (draft[index] === saved[index]) return;
      lines.push(say(draft[index] > saved[index] ? "gains" : "keeps", {
        version: version.name,
        before: share(saved[index]),
        after: share(draft[index]),
        ready: readyText(version.ready),
      }));
    });
    lines.push(rateText());
  }
  part("preview").replaceChildren(...lines.map((line) => {
    const item = document.createElement("li");
    item.textContent = line;
    return item;
  }));
}

function sharesText() {
  return names.map((name, index) => `${name} ${share(draft[index])}`).join(", ");
}

const inForce = part("change").textContent;

function showChangeBar() {
  const changed = !same(draft, saved);
  form.classList.toggle("has-draft", changed || conflict);
  part("draft-mark").hidden = !changed;
  part("change").textContent = changed ? say("shares", { shares: sharesText() }) : inForce;
  apply.setAttribute("aria-disabled", String(!changed || conflict));
  apply.title = changed ? "" : say("unchanged");
  part("discard").classList.toggle("idle", !changed);
}

function show(keepFieldOf = -1) {
  rows.forEach((row, index) => {
    showRow(row, index, index === keepFieldOf);
    row.error.hidden = true;
    if (index !== keepFieldOf) row.amount.removeAttribute("aria-invalid");
  });
  showBar();
  showPreview();
  showChangeBar();
}

function announce() {
  part("announce").textContent = say("shares", { shares: sharesText() });
}

// Input --------------------------------------------------------------------

rows.forEach((row, index) => {
  // A drag is a gesture of its own, whatever was done to the row before.
  row.slider.addEventListener("pointerdown", () => { gesture = null; });
  row.slider.addEventListener("input", () => edit(index, Number(row.slider.value)));
  row.slider.addEventListener("change", announce);
  row.slider.addEventListener("keydown", (event) => {
    const sign = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!sign || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    edit(index, draft[index] + sign * (event.shiftKey ? 1000 : 100));
    announce();
  });
  row.amount.addEventListener("focus", () => row.amount.select());
  row.amount.addEventListener("input", () => {
    const bp = parse(row.amount.value);
    row.amount.toggleAttribute("aria-invalid", bp === null);
    if (bp !== null) edit(index, bp, { keepField: true });
  });
  row.amount.addEventListener("keydown", (event) => {
    const sign = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!sign || event.isComposing) return;
    event.preventDefault();
    edit(index, draft[index] + sign * (event.shiftKey ? 100 : 1));
  });
  row.amount.addEventListener("change", () => { show(); announce(); });
  row.lock.addEventListener("change", () => { gesture = null; show(); });
  row.element.addEventListener("click", (event) => {
    const step = event.target.closest("[data-step]");
    if (!step || step.getAttribute("aria-disabled") === "true") return;
    edit(index, draft[index] + Number(step.dataset.step));
    announce();
  });
  row.element.addEventListener("focusin", () => { part("preset-target").selectedIndex = index; });
});

part("presets").addEventListener("click", (event) => {
  const preset = event.target.closest("[data-preset]")?.dataset.preset;
  if (!preset) return;
  if (preset === "even") replace(even(draft, locked(), caps));
  else edit(part("preset-target").selectedIndex, Number(preset));
  announce();
});

part("discard").addEventListener("click", (event) => {
  if (conflict || data.fromServer) return;
  event.preventDefault();
  replace(saved);
  announce();
});

// Apply --------------------------------------------------------------------

form.addEventListener("submit", (event) => {
  const keepsMine = event.submitter?.matches("[data-keep-mine]") ?? false;
  const stays = apply.getAttribute("aria-disabled") === "true" && !keepsMine;
  if (stays || form.dataset.sent) {
    event.preventDefault();
    return;
  }
  if (moved() > JUMP_BP && !jumpAgreed && !keepsMine) {
    event.preventDefault();
    part("jump-text").textContent = `${say("jump", { share: share(moved()) })} ${sharesText()}`;
    jump.showModal();
    return;
  }
  form.dataset.sent = "1";
});

part("jump-apply").addEventListener("click", () => { jumpAgreed = true; });
jump.addEventListener("close", () => { jumpAgreed = false; });

// Somebody else ------------------------------------------------------------

function conflictShow(theirs, generation) {
  conflict = true;
  part("conflict-theirs").textContent = theirs;
  part("keep-mine").value = String(generation);
  conflictBanner.hidden = false;
  showChangeBar();
}

function weightsOf(region) {
  const weights = JSON.parse(region.dataset.weights);
  return names.map((name) => weights[name] ?? 0);
}

function listText(weights) {
  return names.map((name, index) => `${name} ${share(weights[index])}`).join(", ");
}

// The polled region names the generation in force. An untouched editor follows it;
// a draft is kept, and its author chooses.
document.addEventListener("htmx:afterSwap", () => {
  const region = document.getElementById("applied");
  const generation = Number(region?.dataset.generation);
  if (!region || generation <= data.generation) return;
  if (Object.keys(JSON.parse(region.dataset.weights)).length !== names.length) {
    location.reload();
    return;
  }
  data.generation = generation;
  const theirs = weightsOf(region);
  if (same(draft, saved)) {
    location.reload();
    return;
  }
  saved = theirs;
  show();
  conflictShow(listText(theirs), generation);
});

// Start --------------------------------------------------------------------

function storedDraft() {
  try {
    const stored = JSON.parse(sessionStorage.getItem(storageKey) ?? "null");
    const weights = names.map((name) => stored?.weights?.[name] ?? 0);
    const sum = weights.reduce((total, bp) => total + bp, 0);
    return stored && sum === TOTAL ? { ...stored, weights } : null;
  } catch {
    return null;
  }
}

function start() {
  // Seen before this script runs, they would be moved without it.
  for (const control of form.querySelectorAll("[data-slider], [data-step], [data-lock], [data-preset], [data-preset-target]")) {
    control.disabled = false;
  }
  // The links that give a draft up say so in their address, and not by a handler:
  // they may be pressed before this script has run.
  if (new URLSearchParams(location.search).has("theirs")) {
    sessionStorage.removeItem(storageKey);
    history.replaceState(null, "", location.pathname);
  }
  const fields = rows.map((row) => parse(row.amount.value));
  const sum = fields.reduce((total, bp) => total + (bp ?? NaN), 0);
  if (data.fromServer) {
    // Refused or restored fields stay as they were typed until someone edits them.
    if (sum === TOTAL) draft = fields;
    showBar();
    if (sum === TOTAL) show();
    return;
  }
  const stored = storedDraft();
  if (stored && !same(stored.weights, saved)) {
    draft = stored.weights;
    if (stored.generation !== data.generation) {
      seen = stored.generation;
      conflictShow(listText(saved), data.generation);
    } else {
      part("draft-kept").textContent = say("draft_kept");
      part("draft-kept").hidden = false;
    }
  } else {
    sessionStorage.removeItem(storageKey);
  }
  show();
}

start();
