// Links that ask first: [data-dialog] opens the <dialog> of that id; without this
// script the link leads to the same question on a page of its own.

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) {
    const dialog = document.getElementById(opener.dataset.dialog);
    if (!dialog) return;
    event.preventDefault();
    dialog.close();
    dialog.showModal();
    return;
  }
  const closer = event.target.closest("[data-dialog-close]");
  if (closer) {
    event.preventDefault();
    closer.closest("dialog").close();
  }
});

// A link that looks like a button is pressed like one.
document.addEventListener("keydown", (event) => {
  if (event.key === " " && event.target.matches('a[role="button"]')) {
    event.preventDefault();
    event.target.click();
  }
});
