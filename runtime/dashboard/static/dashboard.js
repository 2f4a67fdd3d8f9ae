// Keeps the page up to date. Without it, the pages still show and do everything.

const lost = document.getElementById("lost");

// An element with data-refresh is fetched again every data-seconds while the page is visible.
// data-whole: the answer replaces the element, and decides whether refreshing continues.
async function refresh(element) {
  const seconds = Number(element.dataset.seconds) || 2;
  if (document.visibilityState === "visible" && !isBeingUsed(element)) {
    try {
      const answer = await fetch(element.dataset.refresh, { headers: { "x-fragment": "1" } });
      if (answer.status === 401) return location.reload();
      if (answer.ok) element = put(element, await answer.text());
      lost.hidden = answer.ok || answer.status < 500;
    } catch {
      lost.hidden = false;
    }
  }
  if (element.isConnected && element.dataset.refresh) setTimeout(refresh, seconds * 1000, element);
}

// An element with a focused control is not replaced.
function isBeingUsed(element) {
  const active = document.activeElement;
  return element.contains(active) && active.matches("input, select, textarea, button");
}

function put(element, html) {
  if (element.lastHtml === html) return element;
  const focused = element.contains(document.activeElement) ? document.activeElement.id : "";
  const open = new Set([...element.querySelectorAll("details[open][id]")].map((item) => item.id));
  let current = element;
  if ("whole" in element.dataset) {
    const page = new DOMParser().parseFromString(html, "text/html");
    current = page.querySelector(element.dataset.select || `#${element.id}`);
    if (!current) return element;
    element.replaceWith(current);
  } else {
    element.innerHTML = html;
  }
  current.lastHtml = html;
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  current.dispatchEvent(new CustomEvent("refreshed", { bubbles: true }));
  return current;
}

// Shows what the models write while a run is active.
function follow(section) {
  const place = section.querySelector("#live");
  const events = new EventSource(section.dataset.events);
  let agent = "";
  events.onmessage = (message) => {
    const event = JSON.parse(message.data);
    if (event.kind === "tokens" || event.kind === "restart") {
      if (event.kind === "restart") place.append(`\n(${event.agent} begins again)\n`);
      if (event.agent !== agent) place.append(`${place.textContent ? "\n" : ""}${event.agent}: `);
      agent = event.agent;
      place.append(event.text);
      place.scrollTop = place.scrollHeight;
    } else if (event.kind === "ended") {
      events.close();
      location.reload();
    }
  };
}

for (const element of document.querySelectorAll("[data-refresh]")) {
  setTimeout(refresh, (Number(element.dataset.seconds) || 2) * 1000, element);
}
for (const section of document.querySelectorAll("[data-events]")) follow(section);
