// What was typed outlives a session that ends: it lies in this tab's storage and comes
// back when the login returns to the page. Only fields that were changed, so that a form
// never takes back what others changed meanwhile; passwords and hidden fields never.

import { say } from "./words.js";

const PREFIX = "draft:";
const LEFT_OUT = ["password", "hidden", "file", "submit", "button"];
const person = document.querySelector(".user")?.textContent ?? "";

const forms = [...document.querySelectorAll("form[data-draft]")];
const keyOf = (form) => `${PREFIX}${person}:${location.pathname}${location.search}:${forms.indexOf(form)}`;
const fieldsOf = (form) => [...form.elements].filter((field) => field.name && !LEFT_OUT.includes(field.type));
const isTick = (field) => field.type === "checkbox" || field.type === "radio";

function isChanged(field) {
  if (isTick(field)) return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((one) => one.selected !== one.defaultSelected);
  return field.value !== field.defaultValue;
}

function keep(form) {
  const typed = fieldsOf(form).filter(isChanged)
    .map((field) => [field.name, field.value, isTick(field) ? field.checked : null]);
  try {
    if (typed.length) sessionStorage.setItem(keyOf(form), JSON.stringify(typed));
    else sessionStorage.removeItem(keyOf(form));
  } catch { /* storage is full or forbidden: the form works without */ }
}

function restore(form, typed) {
  for (const [name, value, checked] of typed) {
    const field = fieldsOf(form).find((one) => one.name === name && (!isTick(one) || one.value === value));
    if (!field) continue;
    if (isTick(field)) field.checked = checked;
    else field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
  const line = document.createElement("p");
  line.className = "banner banner-info";
  line.setAttribute("role", "status");
  form.prepend(line);
  requestAnimationFrame(() => { line.textContent = say("typed_kept"); });
}

function clear() {
  for (const key of Object.keys(sessionStorage)) if (key.startsWith(PREFIX)) sessionStorage.removeItem(key);
}

const cameFromLogin = () => {
  try {
    return new URL(document.referrer).pathname === "/login";
  } catch {
    return false;
  }
};

function start() {
  const drafts = forms.map((form) => JSON.parse(sessionStorage.getItem(keyOf(form)) ?? "null"));
  clear();
  if (cameFromLogin()) forms.forEach((form, index) => drafts[index] && restore(form, drafts[index]));
  document.addEventListener("input", ({ target }) => target.form?.matches("[data-draft]") && keep(target.form));
  document.addEventListener("submit", ({ target }) => {
    if (target.matches("[data-draft]")) keep(target);
    else if (target.matches(".who")) clear();
  });
}

try {
  start();
} catch { /* no storage: nothing is kept, and nothing else breaks */ }
