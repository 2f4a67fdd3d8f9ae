// Shows the values at one place of a drawing as text below it, for the pointer and the arrow keys.
// The drawing itself has a title at each mark and needs no script.

const SVG = "http://www.w3.org/2000/svg";

// The marks of a drawing by their curve, from left to right. Bars are one curve together.
function curvesOf(drawing) {
  const curves = new Map();
  for (const mark of drawing.querySelectorAll("circle, rect.bar")) {
    const text = mark.querySelector("title")?.textContent;
    if (!text) continue;
    const isBar = mark.tagName === "rect";
    const x = isBar
      ? Number(mark.getAttribute("x")) + Number(mark.getAttribute("width")) / 2
      : Number(mark.getAttribute("cx"));
    const name = isBar ? "" : text.split(": ")[0];
    if (!curves.has(name)) curves.set(name, []);
    curves.get(name).push({ x, text });
  }
  for (const marks of curves.values()) marks.sort((first, second) => first.x - second.x);
  return [...curves.values()];
}

function nearestTo(x, marks) {
  return marks.reduce((best, mark) => (Math.abs(mark.x - x) < Math.abs(best.x - x) ? mark : best));
}

// The last place shown in each chart, by chart id: a chart that is drawn again shows it again.
const read = new Map();

function placeOf(text) {
  return text.slice(text.lastIndexOf(" at "));
}

function watch(figure) {
  const drawing = figure.querySelector("svg");
  const curves = curvesOf(drawing);
  if (!curves.length) return;
  const places = [...new Set(curves.flat().map((mark) => mark.x))].sort((a, b) => a - b);
  const readout = document.createElement("p");
  readout.className = "readout";
  readout.setAttribute("role", "status");
  drawing.after(readout);
  const line = document.createElementNS(SVG, "line");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", "0");
  line.setAttribute("y2", String(drawing.viewBox.baseVal.height - 44));
  line.setAttribute("visibility", "hidden");
  drawing.prepend(line);
  let current = -1;

  function show(at) {
    current = Math.max(0, Math.min(places.length - 1, at));
    const x = places[current];
    line.setAttribute("x1", String(x));
    line.setAttribute("x2", String(x));
    line.setAttribute("visibility", "visible");
    readout.textContent = curves.slice(0, 12).map((marks) => nearestTo(x, marks).text).join(" · ");
    if (figure.id) read.set(figure.id, { place: placeOf(textAt(x)), isLast: current === places.length - 1 });
  }

  function textAt(x) {
    return curves.flat().find((mark) => mark.x === x).text;
  }

  // A reader at the end of the curves stays at their end; any other place is found by its name.
  const before = read.get(figure.id);
  const again = before?.isLast
    ? places.length - 1
    : places.findIndex((x) => placeOf(textAt(x)) === before?.place);
  if (again >= 0) show(again);

  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
    let nearest = 0;
    for (let at = 1; at < places.length; at++) {
      if (Math.abs(places[at] - x) < Math.abs(places[nearest] - x)) nearest = at;
    }
    if (nearest !== current) show(nearest);
  });
  figure.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: places.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key]);
  });
}

for (const figure of document.querySelectorAll("[data-chart]")) watch(figure);
document.addEventListener("refreshed", (event) => {
  for (const figure of event.target.querySelectorAll("[data-chart]")) watch(figure);
});
