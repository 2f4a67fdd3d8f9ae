// Reads a drawing aloud: what is drawn at one place is written below it, for a pointer that passes
// over and for the arrow keys. The drawing itself, with a title at each mark, needs no script.

const SVG = "http://www.w3.org/2000/svg";

// The marks of a drawing by their place, from left to right.
function columnsOf(drawing) {
  const columns = new Map();
  for (const mark of drawing.querySelectorAll("circle, rect.bar")) {
    const title = mark.querySelector("title");
    if (!title) continue;
    const x = mark.hasAttribute("cx")
      ? Number(mark.getAttribute("cx"))
      : Number(mark.getAttribute("x")) + Number(mark.getAttribute("width")) / 2;
    if (!columns.has(x)) columns.set(x, []);
    columns.get(x).push(title.textContent);
  }
  return [...columns].sort((first, second) => first[0] - second[0]);
}

function watch(figure) {
  const drawing = figure.querySelector("svg");
  const columns = columnsOf(drawing);
  if (!columns.length) return;
  const readout = document.createElement("p");
  readout.className = "readout";
  readout.setAttribute("role", "status");
  drawing.after(readout);
  const line = document.createElementNS(SVG, "line");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", "0");
  line.setAttribute("y2", String(drawing.viewBox.baseVal.height));
  line.setAttribute("visibility", "hidden");
  drawing.append(line);
  let current = -1;

  function show(at) {
    current = Math.max(0, Math.min(columns.length - 1, at));
    const [x, texts] = columns[current];
    line.setAttribute("x1", String(x));
    line.setAttribute("x2", String(x));
    line.setAttribute("visibility", "visible");
    readout.textContent = texts.slice(0, 12).join(" · ");
  }

  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
    let nearest = 0;
    for (let at = 1; at < columns.length; at++) {
      if (Math.abs(columns[at][0] - x) < Math.abs(columns[nearest][0] - x)) nearest = at;
    }
    if (nearest !== current) show(nearest);
  });
  figure.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: current - 1, ArrowRight: current + 1, Home: 0, End: columns.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key]);
  });
}

for (const figure of document.querySelectorAll("[data-chart]")) watch(figure);
