"use strict";
// Runs a report's own script over its data, without a browser: `node page_reader.js FILE HASH`
// prints what is shown then as JSON. An element is [name, class, children], a text a string.
const { readFileSync } = require("node:fs");
const { runInThisContext } = require("node:vm");

const html = readFileSync(process.argv[2], "utf8");

class Element {
  constructor(name) {
    Object.assign(this, { name, className: "", children: [], style: {}, value: "", attributes: {} });
  }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  setAttribute(name, value) { this.attributes[name] = value; }
  addEventListener() {}
  showModal() { this.open = true; }
  close() { this.open = false; }
  scrollIntoView() {}
  set textContent(text) { this.children = [text]; }
  get textContent() { return this.children.join(""); }
  tree() {
    return [this.name, this.className, this.children.map((each) => (each instanceof Element ? each.tree() : each))];
  }
}

const known = new Map();
function byId(id) {
  if (!known.has(id)) {
    known.set(id, new Element("div"));
    const block = html.match(new RegExp(`<script type="text/plain" id="${id}">([^<]*)<`));
    if (block) known.get(id).textContent = block[1];
  }
  return known.get(id);
}

Object.assign(globalThis, {
  location: { hash: process.argv[3] },
  history: { replaceState() {} },
  addEventListener() {},
  document: {
    createElement: (name) => new Element(name),
    getElementById: byId,
    querySelector: byId,
  },
});
runInThisContext(html.match(/<script>([^]*?)<\/script>/)[1]);
process.on("exit", () => {
  const shown = { sheet: byId("sheet").tree(), list: byId("#items-table tbody").tree(), found: byId("found").textContent };
  console.log(JSON.stringify(shown));
});
