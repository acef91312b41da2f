// The page that shows a key once: leaving it asks until the key was put away.

const form = document.querySelector("[data-secret]");
const stored = form.querySelector("input[type=checkbox]");

window.addEventListener("beforeunload", (event) => {
  if (!stored.checked) event.preventDefault();
});

document.getElementById("secret").addEventListener("focus", (event) => event.target.select());
