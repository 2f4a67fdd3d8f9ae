"use strict";
// A model's text enters the page as text (textContent), never as markup, and only through `make`,
// which shows characters that would reverse or hide the text around them as code points.

const PAGE = 60;
const chunks = new Map();
let index = null;
let control = null; // characters that `runtime.terminal.harmless` also shows as code points
let shown = PAGE;

async function inflate(id) {
  const packed = atob(document.getElementById(id).textContent.trim());
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function transcripts(chunk) {
  if (!chunks.has(chunk)) chunks.set(chunk, inflate("chunk-" + chunk));
  return chunks.get(chunk);
}

function harmless(text) {
  return text.replace(control, (found) => "\\u" + found.charCodeAt(0).toString(16).padStart(4, "0"));
}

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) element.append(typeof child === "string" ? harmless(child) : child);
  }
  return element;
}

function seconds(value) {
  return value < 1 ? Math.round(value * 1000) + " ms" : value.toFixed(1) + " s";
}

function dollars(micro) {
  return micro === null ? "unknown cost" : micro ? "$" + (micro / 1e6).toPrecision(2) : "$0";
}

// ---- which items ----

function wanted() {
  const [place, query] = location.hash.slice(1).split("?");
  return { place, query: new URLSearchParams(query || "") };
}

function says(run, checker) {
  return Boolean(run) && run.d[index.checkers.indexOf(checker)] === 1;
}

function filters() {
  const value = (id) => document.getElementById(id).value;
  return {
    arm: value("by-arm"),
    kind: value("by-class"),
    text: value("by-text").trim().toLowerCase(),
    extra: extra,
  };
}

let extra = null; // a filter that only a link can set: {words, keep(item)}

function extraOf(query) {
  const cell = query.get("cell");
  if (cell) {
    const [a, b] = [query.get("a"), query.get("b")];
    const cells = { both: [true, true], only_a: [true, false], only_b: [false, true], neither: [false, false] };
    const [x, y] = cells[cell] || cells.both;
    return {
      words: a + (x ? " right, " : " wrong, ") + b + (y ? " right" : " wrong"),
      keep: (item) => item.r[a] && item.r[b] && says(item.r[a], index.checkers[0]) === x && says(item.r[b], index.checkers[0]) === y,
    };
  }
  const checker = query.get("checker");
  if (checker) {
    const arm = query.get("arm");
    const right = query.get("says") === "right";
    return {
      words: checker + " says " + (right ? "right" : "wrong"),
      keep: (item) => item.r[arm] && says(item.r[arm], checker) === right,
    };
  }
  const group = query.get("group");
  if (group) {
    const by = query.get("by");
    return { words: by + " " + group, keep: (item) => String((item.about || {})[by]) === group };
  }
  return null;
}

function fits(item, by) {
  const arms = by.arm ? [by.arm] : index.arms;
  if (by.arm && !item.r[by.arm]) return false;
  if (by.kind && !arms.some((arm) => item.r[arm] && (by.kind === "wrong" ? item.r[arm].c !== "right" : item.r[arm].c === by.kind))) return false;
  if (by.extra && !by.extra.keep(item)) return false;
  return !by.text || (item.id + " " + item.q).toLowerCase().includes(by.text);
}

// ---- the list ----

function answerCell(item, arm) {
  const run = item.r[arm];
  if (!run) return make("td", { class: "soft" }, "not asked");
  const right = run.c === "right";
  return make("td", { class: "left" },
    make("span", { class: "mark " + (right ? "yes" : "no") }, right ? "✓ " : "✗ "),
    run.a ? run.a.slice(0, 60) : "no answer",
    right ? null : make("div", { class: "small soft" }, run.c.replaceAll("_", " ")));
}

function list() {
  const by = filters();
  const found = index.items.filter((item) => fits(item, by));
  const body = document.querySelector("#items-table tbody");
  body.replaceChildren(...found.slice(0, shown).map((item) =>
    make("tr", { tabindex: "0", onclick: () => go(item), onkeydown: (e) => { if (e.key === "Enter") go(item); } },
      make("td", {}, make("a", { href: runLink(item) }, item.id), make("div", { class: "question small soft" }, item.q)),
      make("td", {}, item.gold),
      ...index.arms.map((arm) => answerCell(item, arm)))));
  document.getElementById("found").textContent =
    found.length + " of " + index.items.length + (index.items.length === 1 ? " question" : " questions") + (by.extra ? " (" + harmless(by.extra.words) + ")" : "");
  document.getElementById("clear").hidden = !(by.extra || by.arm || by.kind || by.text);
  const more = document.getElementById("more");
  more.hidden = found.length <= shown;
  more.textContent = "Show " + Math.min(PAGE * 4, found.length - shown) + " more";
}

function runLink(item) {
  return "#run?item=" + encodeURIComponent(item.id);
}

function go(item) {
  location.hash = runLink(item);
}

// ---- one question ----

const WHO = {
  solo: "The model answers", planner: "The big model plans", slm: "The small model solves", expert: "The big model steps in",
  umi_planner: "The planner thinks", umi_caller: "The caller calls", umi_summarizer: "The summarizer answers",
  umi_single: "The single model takes a step", completion: "The model answers",
};

function plainText(text) {
  return text.replace(/<tool_call>[\s\S]*?(<\/tool_call>|$)/g, "").trim();
}

function toolLine(tool) {
  const asked = typeof tool.arguments === "string" ? tool.arguments : JSON.stringify(tool.arguments);
  let answer = "";
  if (tool.output) {
    const output = tool.output.error !== undefined ? "error: " + tool.output.error
      : tool.output.result !== undefined ? String(tool.output.result) : JSON.stringify(tool.output);
    answer = " → " + output;
  }
  return make("div", { class: "tool" }, tool.name + "(" + asked + ")" + answer);
}

function callView(call) {
  const said = plainText(call.text);
  return [
    said ? make("div", { class: "said" }, said) : null,
    ...call.tools.map(toolLine),
    make("div", { class: "small soft" },
      call.model + ": " + call.tokens[0] + " + " + call.tokens[2] + " tokens" + (call.tokens[1] ? " (" + call.tokens[1] + " cached)" : "") +
      (call.micro ? ", " + dollars(call.micro) : "") + (call.finish === "length" ? ", cut off" : "")),
  ].filter(Boolean);
}

// The executed candidate, with the others folded. Older benches don't record it: then all, in order.
function callsView(step) {
  const executed = step.calls.filter((call) => call.candidate === step.selected);
  const aside = step.calls.filter((call) => call.candidate !== step.selected);
  const views = executed.flatMap(callView);
  if (!aside.length) return views;
  const numbers = [...new Set(aside.map((call) => call.candidate))];
  const noun = executed.length ? " other" : " candidate";
  const others = numbers.length + noun + (numbers.length === 1 ? "" : "s");
  if (executed.length) views.unshift(make("div", { class: "small soft" }, "candidate " + step.selected + ", executed"));
  views.push(make("details", { class: "aside" }, make("summary", { class: "small soft" }, others + ", not executed"),
    ...numbers.flatMap((number) => [
      make("div", { class: "small soft" }, "candidate " + number),
      ...aside.filter((call) => call.candidate === number).flatMap(callView)])));
  return views;
}

function stepView(step) {
  const known = Object.hasOwn(WHO, step.agent);
  const view = make("div", { class: "step" + (known ? " " + step.agent : "") },
    make("div", { class: "who" }, (known ? WHO[step.agent] : step.agent) + " ",
      make("span", { class: "when" }, "turn " + step.turn + (step.branch ? "." + step.branch : "") + ", " + seconds(step.end - step.start))));
  if (step.problem) view.append(make("div", { class: "small soft" }, "asked: " + step.problem));
  view.append(...callsView(step));
  if (step.reason) view.append(make("div", { class: "small soft" }, step.decision + ": " + step.reason));
  else if (step.answer && step.agent !== "solo" && step.agent !== "planner") view.append(make("div", { class: "small soft" }, "hands back: " + step.answer));
  return view;
}

function timeBar(run) {
  const bar = make("div", { class: "time" });
  const parts = [["part-queue", run.sec.queue, "waiting"], ...Object.entries(run.sec.pools).map(([pool, value]) =>
    [pool === "llm" || pool === "slm" ? "pool-" + pool : "pool-any", value, pool]), ["part-other", run.sec.other, "tools, hand-over"]];
  const total = parts.reduce((sum, part) => sum + part[1], 0) || 1;
  for (const [look, value, words] of parts) {
    if (value <= 0) continue;
    const piece = make("i", { class: look, title: words + " " + seconds(value) });
    piece.style.width = (100 * value / total) + "%";
    bar.append(piece);
  }
  return bar;
}

function runView(arm, run, script) {
  const right = run.c === "right";
  const view = make("section", { class: "run own-" + index.colours[arm] },
    make("h3", {}, arm + " ", make("span", { class: "mark " + (right ? "yes" : "no") }, (right ? "✓ " : "✗ ") + (run.a || "no answer"))),
    make("div", {}, right ? null : make("span", { class: "chip no" }, run.c.replaceAll("_", " ")),
      ...index.checkers.map((name) => make("span", { class: "chip " + (says(run, name) ? "yes" : "no") }, (says(run, name) ? "✓ " : "✗ ") + name))),
    make("div", { class: "small soft" }, run.t + " tokens, " + dollars(run.m) + ", " + seconds(run.s) + ", outcome " + run.o + (run.why ? ": " + run.why : "")),
    run.x ? make("div", { class: "small soft" }, "judged: " + run.x) : null,
    timeBar(run));
  if (script) for (const step of script.steps) view.append(stepView(step));
  else view.append(make("p", { class: "soft" }, "No transcript is stored for this run."));
  return view;
}

async function open(id) {
  const item = index.items.find((each) => each.id === id);
  const sheet = document.getElementById("sheet");
  const dialog = document.getElementById("dialog");
  if (!item) return;
  const scripts = await transcripts(item.k);
  const place = index.items.indexOf(item);
  const step = (by) => {
    const next = index.items[place + by];
    return make("button", next ? { onclick: () => go(next) } : { disabled: "" }, by < 0 ? "←" : "→");
  };
  sheet.replaceChildren(
    make("header", {}, make("div", {}, make("h3", {}, item.id), make("div", { class: "soft small" }, "gold answer " + item.gold)),
      make("div", { class: "tools" }, step(-1), step(1), make("button", { onclick: () => dialog.close(), autofocus: "" }, "Close"))),
    make("div", { class: "ask" }, item.q),
    make("div", { class: "runs" }, ...index.arms.filter((arm) => item.r[arm]).map((arm) => runView(arm, item.r[arm], scripts[item.r[arm].id]))));
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
}

function follow() {
  const { place, query } = wanted();
  const dialog = document.getElementById("dialog");
  if (place === "run") {
    open(query.get("item"));
    return;
  }
  if (dialog.open) dialog.close();
  if (place !== "items") return;
  extra = extraOf(query);
  document.getElementById("by-arm").value = query.get("arm") || "";
  document.getElementById("by-class").value = query.get("class") || "";
  document.getElementById("by-text").value = query.get("text") || "";
  shown = PAGE;
  list();
  document.getElementById("items").scrollIntoView();
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    document.getElementById("found").textContent = "This browser cannot unpack the transcripts (it lacks DecompressionStream); any browser of 2023 or later can.";
    return;
  }
  index = await inflate("index");
  control = new RegExp(index.control, "gu");
  for (const id of ["by-arm", "by-class"]) document.getElementById(id).addEventListener("change", () => { shown = PAGE; list(); });
  document.getElementById("by-text").addEventListener("input", () => { shown = PAGE; list(); });
  document.getElementById("more").addEventListener("click", () => { shown += PAGE * 4; list(); });
  document.getElementById("clear").addEventListener("click", () => {
    extra = null;
    for (const id of ["by-arm", "by-class", "by-text"]) document.getElementById(id).value = "";
    list();
  });
  document.getElementById("dialog").addEventListener("close", () => {
    if (wanted().place === "run") history.replaceState(null, "", "#items");
  });
  addEventListener("hashchange", follow);
  list();
  follow();
}

start();
