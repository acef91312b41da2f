// One websocket for the page, and whether what it shows can still be believed.
//
// The socket says what changed; a region ([data-live], filled by htmx) then fetches
// itself. Regions with [data-topics] hang on the socket, which beats every 5 s; without
// it they ask every 10 s. Other regions poll by themselves. A region that was not heard
// of keeps its data, dimmed, and says since when. A fetch that brings the same text
// changes nothing in the document: a selection, the focus, a half-read line survive.

import { say } from "./words.js";

const STALE_S = 12;
const OFFLINE_S = 30;
const CONNECT_MS = 10_000;
const POLL_MS = 10_000;
const RESYNC_MS = 30_000;
const SPACING_MS = 400;
const PAUSE_MS = 1000;
const PAUSE_MOST_MS = 30_000;
const LOGGED_OUT = 4401;

let socket = null;
let seq = 0;
let pauseMs = PAUSE_MS;
let drops = 0;
let retry = 0;
let socketHeardAt = Date.now();
let askedAt = Date.now();

const regions = new Map();
const lastText = new Map();

// What is known of a region: when it was heard, whether it must be fetched again.
function of(region) {
  if (!regions.has(region.id)) regions.set(region.id, { heardAt: Date.now(), dirtyAt: 0, changes: 0, asked: 0, sentAt: 0, busy: false, failures: 0 });
  return regions.get(region.id);
}

const onSocket = () => document.querySelectorAll("[data-live][data-topics]");
const topicsOf = (region) => region.dataset.topics.split(" ");
const topics = () => [...new Set([...onSocket()].flatMap(topicsOf))];

export const isOpen = () => socket?.readyState === WebSocket.OPEN && seq > 0;
export const isFresh = () => isOpen() && Date.now() - socketHeardAt < STALE_S * 1000;

// Fetching -----------------------------------------------------------------

function dirty(chosen) {
  for (const state of [...chosen].map(of)) {
    state.dirtyAt ||= Date.now();
    state.changes += 1;
  }
  pump();
  setTimeout(pump, SPACING_MS);
}

function pump() {
  const now = Date.now();
  for (const region of onSocket()) {
    const state = of(region);
    if (!state.dirtyAt || document.hidden || (state.busy && now - state.sentAt < CONNECT_MS)) continue;
    if (now - state.sentAt < Math.min(SPACING_MS * 2 ** state.failures, POLL_MS)) continue;
    state.busy = true;
    state.sentAt = now;
    region.dispatchEvent(new CustomEvent("live"));
  }
}

document.addEventListener("htmx:beforeRequest", (event) => {
  const { elt } = event.detail.requestConfig;
  if (elt.matches?.("[data-live]")) of(elt).asked = of(elt).changes;
});

document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, xhr, isError } = event.detail;
  if (isError || !target?.matches("[data-live]")) return;
  const state = of(target);
  state.heardAt = Date.now();
  state.failures = 0;
  // What changed after the question went out may be missing in the answer.
  state.dirtyAt = state.changes === state.asked ? 0 : Date.now();
  if (lastText.get(target.id) === xhr.responseText) event.detail.shouldSwap = false;
  lastText.set(target.id, xhr.responseText);
  // The white space around a region would stay beside the next one, for ever.
  event.detail.serverResponse = xhr.responseText.trim();
});

document.addEventListener("htmx:afterRequest", (event) => {
  // The region that asked may have been replaced by now: its name goes on.
  const { elt } = event.detail.requestConfig;
  if (!elt.matches?.("[data-live]")) return;
  const state = of(elt);
  state.busy = false;
  if (!event.detail.successful) state.failures += 1;
  setTimeout(pump, SPACING_MS);
});

// The socket ---------------------------------------------------------------

function connect() {
  clearTimeout(retry);
  if (socket || document.hidden || !onSocket().length) return;
  const mine = new WebSocket(`${location.origin.replace(/^http/, "ws")}/live`);
  socket = mine;
  seq = 0;
  mine.late = setTimeout(() => drop(mine), CONNECT_MS);
  mine.onopen = () => mine.send(JSON.stringify({ subscribe: topics() }));
  mine.onmessage = (event) => heard(mine, JSON.parse(event.data));
  mine.onclose = (event) => {
    if (event.code === LOGGED_OUT) dirty(onSocket());
    drop(mine);
  };
}

function drop(mine, { again = true } = {}) {
  clearTimeout(mine.late);
  mine.onopen = mine.onmessage = mine.onclose = null;
  mine.close();
  if (socket !== mine) return;
  socket = null;
  drops += 1;
  announce();
  if (!again) return;
  retry = setTimeout(connect, pauseMs * (0.5 + Math.random() / 2));
  pauseMs = Math.min(pauseMs * 2, PAUSE_MOST_MS);
}

function heard(mine, message) {
  clearTimeout(mine.late);
  socketHeardAt = Date.now();
  const lost = message.seq !== seq + 1;
  seq = message.seq;
  // First the whole, then what differs: after a loss and at the start alike.
  if (lost || message.type === "subscribed") dirty(onSocket());
  if (message.type === "subscribed") {
    pauseMs = PAUSE_MS;
    announce();
  } else if (message.type === "changed") {
    dirty([...onSocket()].filter((region) => topicsOf(region).includes(message.topic)));
  } else if (message.type === "figures") {
    document.dispatchEvent(new CustomEvent("live:figures", { detail: message }));
  }
  show();
}

function announce() {
  document.dispatchEvent(new CustomEvent("live:state", { detail: { open: isOpen() } }));
}

// Freshness ----------------------------------------------------------------

function quietMs(region) {
  const state = of(region);
  const now = Date.now();
  if (!region.dataset.topics) return now - state.heardAt;
  const heardAt = Math.max(socketHeardAt, state.heardAt);
  // A living socket does not help a region that could not be fetched since.
  return Math.max(now - heardAt, state.dirtyAt ? now - Math.max(state.dirtyAt, state.heardAt) : 0);
}

function freshness(region) {
  const quietS = Math.floor(quietMs(region) / 1000);
  if (quietS >= OFFLINE_S) return ["offline", "err", quietS];
  if (quietS >= STALE_S) return ["stale", "stale", quietS];
  if (region.dataset.topics && !isOpen()) return drops ? ["reconnecting", "info", quietS] : null;
  return ["live", "ok", quietS];
}

function show() {
  for (const pill of document.querySelectorAll("[data-freshness]")) {
    const region = document.getElementById(pill.dataset.freshness);
    // A region that is held still on purpose is not stale.
    if (region?.hasAttribute("data-still")) of(region).heardAt = Date.now();
    const found = region && freshness(region);
    if (!found) continue;
    const [name, shape, n] = found;
    const label = pill.querySelector("[data-freshness-text]");
    const text = say(name, { n });
    if (label.textContent !== text) label.textContent = text;
    const bad = name === "stale" || name === "offline";
    pill.classList.toggle("is-stale", bad);
    document.documentElement.classList.toggle("is-quiet", bad);
    region.classList.toggle("is-stale", bad);
    if (pill.dataset.shown === name) continue;
    pill.dataset.shown = name;
    const use = pill.querySelector("use");
    use.setAttribute("href", use.getAttribute("href").replace(/#.*/, `#state-${shape}`));
  }
}

function tick() {
  const now = Date.now();
  // A frozen server keeps its sockets open: only its silence tells.
  if (isOpen() && now - socketHeardAt >= STALE_S * 1000) drop(socket);
  if (now - askedAt >= (isOpen() ? RESYNC_MS : POLL_MS)) {
    askedAt = now;
    dirty(onSocket());
  }
  pump();
  show();
}

function wake() {
  if (document.hidden) {
    if (socket) drop(socket, { again: false });
    return;
  }
  connect();
  dirty(onSocket());
  show();
}

for (const region of document.querySelectorAll("[data-live]")) of(region);
setInterval(tick, 1000);
document.addEventListener("visibilitychange", wake);
addEventListener("pagehide", () => isOpen() && drop(socket, { again: false }));
addEventListener("pageshow", (event) => event.persisted && wake());
connect();
show();
