// Small manners of forms: sent once, filters at once.

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-once]") || event.defaultPrevented) return;
  if (form.dataset.sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "1";
});

// Coming back with the Back button finds a form that can be sent again.
window.addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("[data-sent]")) delete form.dataset.sent;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit-on-change]")) event.target.form.requestSubmit();
});

document.addEventListener("click", (event) => {
  if (event.target.closest('[aria-disabled="true"]')) event.preventDefault();
});

// A live region speaks only of what is put into it after it was there.
const results = document.querySelector("[data-results]");
if (results?.firstElementChild) {
  const content = [...results.children];
  results.replaceChildren();
  requestAnimationFrame(() => results.replaceChildren(...content));
}
