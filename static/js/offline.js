// Without a network a form is not sent: the browser's own error page would take what was
// typed away. Nothing is sent later by itself.

import { say } from "./words.js";

let told = null;

document.addEventListener("submit", (event) => {
  if (navigator.onLine) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  told?.remove();
  told = document.createElement("p");
  told.className = "banner banner-warn";
  told.setAttribute("role", "alert");
  const buttons = (event.submitter ?? event.target).closest(".buttons, .change-bar") ?? event.target.lastElementChild;
  buttons.before(told);
  told.textContent = say("offline_kept");
}, true);

window.addEventListener("online", () => {
  if (told?.isConnected) told.textContent = say("online_again");
});
