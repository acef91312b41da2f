// A copy button that tells the truth: it says "copied" only after a copy that the
// browser confirmed. On plain http there is no clipboard interface; then the old
// command is tried, and when that fails too the text stays selected.

import { say } from "./words.js";

function textOf(source) {
  return "value" in source ? source.value : source.textContent;
}

function select(source) {
  if ("select" in source) {
    source.focus();
    source.select();
    return;
  }
  const range = document.createRange();
  range.selectNodeContents(source);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}

async function confirmed(text) {
  // Where reading back is not allowed, the resolved write is the best witness.
  try {
    const permission = await navigator.permissions.query({ name: "clipboard-read" });
    if (permission.state !== "granted") return true;
    return (await navigator.clipboard.readText()) === text;
  } catch {
    return true;
  }
}

async function copy(source) {
  const text = textOf(source);
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      if (await confirmed(text)) return true;
    } catch { /* refused: the fallback below */ }
  }
  return copyOld(source, text);
}

// The old command: what it put on the clipboard is what was handed to it here.
function copyOld(source, text) {
  let handed = false;
  const hand = (event) => {
    event.preventDefault();
    event.clipboardData.setData("text/plain", text);
    handed = event.clipboardData.getData("text/plain") === text;
  };
  select(source);
  document.addEventListener("copy", hand, { capture: true, once: true });
  const done = document.execCommand("copy");
  document.removeEventListener("copy", hand, { capture: true });
  return done && handed;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy-from]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copyFrom);
  const word = button.querySelector("[data-copy-word]");
  const usual = (word.dataset.usual ??= word.textContent);
  const done = await copy(source);
  if (done) button.focus();
  else select(source);
  word.textContent = say(done ? "copied" : "copy_failed");
  word.setAttribute("role", "status");
  button.classList.toggle("is-done", done);
  clearTimeout(button.timer);
  button.timer = setTimeout(() => {
    word.textContent = usual;
    button.classList.remove("is-done");
  }, done ? 3000 : 20000);
});
