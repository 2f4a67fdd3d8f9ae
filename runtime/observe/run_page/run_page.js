"use strict";
// Folding only; the page shows everything without it.

function fold(open) {
  for (const each of document.querySelectorAll("details.candidate, details.others")) each.open = open;
}

function follow() {
  const place = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
  if (!place) return;
  for (let each = place; each; each = each.parentElement) {
    if (each instanceof HTMLDetailsElement) each.open = true;
  }
  place.scrollIntoView();
}

document.getElementById("open-all")?.addEventListener("click", () => fold(true));
document.getElementById("close-all")?.addEventListener("click", () => fold(false));
addEventListener("hashchange", follow);
follow();
