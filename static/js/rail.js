// On a narrow screen the menu is one row that scrolls: begin at where one is.

const here = document.querySelector(".rail [aria-current]");
const row = here?.closest("ul");
if (row) row.scrollLeft = here.offsetLeft - (row.clientWidth - here.offsetWidth) / 2;
