// The offer to undo goes by itself, but never from under a pointer or a focus.

import { say } from "./words.js";

for (const offer of document.querySelectorAll("[data-undo-s]")) {
  const told = offer.querySelector("[data-undo-left]");
  let left = Number(offer.dataset.undoS);
  const tell = () => { told.textContent = say("undo_left", { n: left }); };
  const timer = setInterval(() => {
    if (offer.matches(":hover, :focus-within")) return;
    left -= 1;
    if (left > 0) return tell();
    clearInterval(timer);
    offer.remove();
  }, 1000);
  tell();
}
