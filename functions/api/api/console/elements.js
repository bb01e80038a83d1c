// Elements and words. Everything on the page is made of elements and text nodes: nothing is ever parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "width%") node.style.width = `${value}%`;
    else if (name === "grow") node.style.flexGrow = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return node;
}
const element = (name, attributes, ...children) => put(document.createElement(name), attributes, children);
const shape = (name, attributes, ...children) => put(document.createElementNS(SVG, name), attributes, children);

// What people named: kept apart from the direction of the text around it.
const named = (text, kind) => element("bdi", { class: kind }, String(text));
const link = (href, text, kind) => element("a", { href, class: kind }, text);
const button = (text, onclick, kind) => element("button", { type: "button", class: kind, onclick }, text);
const section = (title, ...children) => element("section", { class: "section" }, title && element("h2", {}, title), ...children);
const muted = (...children) => element("span", { class: "muted" }, ...children);

const UNKNOWN = "–";
const INSTANT = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short", year: "numeric",
  hour: "2-digit", minute: "2-digit" });
const COUNT = new Intl.NumberFormat("en-GB");
const DIGITS = new Intl.NumberFormat("en-GB", { maximumSignificantDigits: 4 });

const count = value => (value === null || value === undefined ? UNKNOWN : COUNT.format(value));
const number = value => (value === null || value === undefined ? UNKNOWN : DIGITS.format(value));
const withUnit = (value, unit) => (unit && value !== null && value !== undefined ? `${number(value)}\u00a0${unit}` : number(value));
const share = value => (value === null || value === undefined ? UNKNOWN : `${DIGITS.format(value * 100)} %`);
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;
const interval = (low, high, unit) => (low === null || high === null ? UNKNOWN : `${number(low)} to ${withUnit(high, unit)}`);

function instant(text) {
  if (!text) return UNKNOWN;
  return element("time", { datetime: text, title: text }, `${INSTANT.format(new Date(text))} UTC`);
}
function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${DIGITS.format(value)} ${units[unit]}`;
}
function duration(from, to) {
  const seconds = (new Date(to) - new Date(from)) / 1000;
  if (!from || !to || !(seconds >= 0)) return UNKNOWN;
  if (seconds < 60) return `${number(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// State -> colour and mark; no meaning is in the colour alone.
const MARKS = {
  pending: ["", "○"], queued: ["", "○"], requested: ["", "○"], running: ["busy", "◐"], working: ["busy", "◐"],
  succeeded: ["good", "✓"], done: ["good", "✓"], delivered: ["good", "✓"], resolved: ["good", "✓"], healthy: ["good", "✓"],
  failed: ["bad", "✕"], error: ["bad", "!"], unhealthy: ["bad", "✕"], unresolved: ["bad", "!"],
  missed_deadline: ["bad", "✕"], missed_overlap: ["bad", "✕"], failing: ["warn", "!"], investigating: ["warn", "◐"],
  cancelled: ["", "–"], skipped: ["", "–"], empty: ["", "∅"], wont_fix: ["", "–"],
};
function badge(state, word) {
  const [kind, mark] = MARKS[state] || ["", "·"];
  return element("span", { class: `badge ${kind}` }, element("span", { "aria-hidden": "true" }, mark),
    word || String(state).replaceAll("_", " "));
}

// columns: [head, cell of a row, kind]; rows become cards on a narrow screen, the roles keep them a table there.
function table(caption, columns, rows, { empty = "There is nothing here yet.", onrow } = {}) {
  if (!rows.length) return element("p", { class: "empty-note" }, empty);
  const body = element("tbody", { role: "rowgroup" });
  const append = items => items.forEach(item => {
    const cells = columns.map(([head, cell, kind], place) => element("td", { role: "cell", "data-label": head,
      class: `${kind || ""}${place ? "" : " first"}`.trim() || null }, element("div", {}, cell(item))));
    const row = element("tr", { role: "row" }, cells);
    if (onrow) onrow(item, cells.map(cell => cell.firstChild));
    body.append(row);
  });
  append(rows);
  const made = element("table", { role: "table" }, element("caption", { class: "hidden" }, caption),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, columns.map(([head, , kind]) =>
      element("th", { role: "columnheader", scope: "col", class: kind }, head)))), body);
  made.appendRows = append;
  return made;
}

const pairs = facts => element("dl", { class: "pairs" }, facts.filter(fact => fact).map(([name, ...value]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, ...value))));
const facts = values => element("dl", { class: "facts" }, values.map(([name, value]) =>
  element("div", {}, element("dt", {}, name), element("dd", {}, value))));
// JSON itself leaves controls beyond ASCII and marks of direction as they are.
const json = value => element("pre", { tabindex: "0" }, JSON.stringify(value, null, 2).replace(
  /[\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, found => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`));

function progressBar(label, done, total, kind) {
  const percent = total ? Math.min(100, (done / total) * 100) : 0;
  return element("span", { class: `bar ${kind || ""}`, role: "progressbar", "aria-label": label, "aria-valuemin": 0,
    "aria-valuemax": 100, "aria-valuenow": Math.round(percent) }, element("span", { "width%": percent }));
}
