// Sources and the ledger of their windows: a strip of days, then what became of each tick.

const TICKS = [
  ["done", "✓", "evaluated"], ["empty", "∅", "no traces"], ["working", "◐", "being tried"],
  ["failing", "!", "attempts fail"], ["missed", "✕", "missed"], ["skipped", "–", "skipped"],
];
const WORST_FIRST = ["missed", "failing", "working", "skipped", "done", "empty"];

function tickKind(entry) {
  if (entry.state.startsWith("missed")) return "missed";
  if (["working", "requested"].includes(entry.state)) return entry.error_code ? "failing" : "working";
  return entry.state;
}

async function showSources(view, project) {
  const list = cursor => readPage(`${api(project)}/sources`, { cursor }, view.signal);
  const page = await list();
  view.show("Sources", { project }, section(null, pagedTable(view, "Sources", [
    ["Source", one => link(hash(project, "sources", one.id), named(one.id), "name")],
    ["State", one => badge(one.paused ? "skipped" : "done", one.paused ? "paused" : "active")],
    ["Cron", one => element("code", {}, one.schedule.cron)],
    ["Store", one => one.connector],
    ["Next tick", one => instant(one.next_tick), "nowrap"],
    ["Missed", one => element("span", { class: one.missed_deadline + one.missed_overlap ? "bad-text" : null }, count(one.missed_deadline + one.missed_overlap)), "number"],
    ["Failed attempts", one => count(one.failed_attempts), "number"],
  ], page, list, "No source yet. The client makes one of a file: evalward sources apply -f source.yaml")));
}

async function showSource(view, project, id) {
  const path = `${api(project)}/sources/${encode(id)}`;
  const list = cursor => readPage(`${path}/windows`, { limit: 200, cursor }, view.signal);
  const [source, page] = await Promise.all([read(path, view.signal), list()]);
  const pause = () => act(view, new Write("POST", `${path}/${source.paused ? "resume" : "pause"}`), () => view.again(0));
  const ledger = element("div", {});
  const entries = [...page.items];
  let next = page.next_cursor, day = null, most = 15;
  const draw = () => {
    const chosen = day ? entries.filter(entry => entry.tick.startsWith(day)) : entries;
    const at = ledger.querySelector(".strip")?.scrollLeft;
    ledger.replaceChildren(drawStrip(entries, day, chosen => { day = day === chosen ? null : chosen; draw(); ledger.querySelector(`[data-day="${chosen}"]`)?.focus(); }),
      describeTicks(view, project, path, chosen.slice(0, most)),
      chosen.length > most ? button(`Show ${count(chosen.length - most)} more`, () => { most = Infinity; draw(); }) : "",
      next && !day && chosen.length <= most ? button("Older windows", async event => {
        event.target.disabled = true;
        try {
          const older = await list(next);
          entries.push(...older.items);
          next = older.next_cursor;
          draw();
        } catch (error) { view.fail(error); }
      }) : "");
    const strip = ledger.querySelector(".strip");
    if (strip) strip.scrollLeft = at ?? strip.scrollWidth;
  };
  view.show(source.id, { project, above: link(hash(project, "sources"), "Sources"),
    beside: badge(source.paused ? "skipped" : "done", source.paused ? "paused" : "active"),
    actions: [element("a", { class: "button", href: `${hash(project, "runs")}?source=${encode(id)}` }, "Its runs"), button(source.paused ? "Resume" : "Pause", pause)] },
    facts([["Missed deadline", count(source.missed_deadline)], ["Missed, last run open", count(source.missed_overlap)], ["Failed attempts", count(source.failed_attempts)]]),
    section("Windows", ledger),
    section("What it pulls", pairs([["Store", source.connector], ["Location", element("code", {}, source.location)],
      ["Cron, in UTC", element("code", {}, source.schedule.cron)], ["Window", `${count(source.window.seconds)} s before each tick, read ${count(source.window.settle_seconds)} s after it`],
      ["Starting deadline", `${count(source.starting_deadline_seconds)} s after the tick`], ["Next tick", instant(source.next_tick)],
      ["Decided up to", instant(source.cursor)], ["Traces at most", count(source.max_traces)],
      ["Evaluators", named(source.evaluators.map(one => one.id).join(", "))]])));
  draw();
}

function drawStrip(entries, chosen, choose) {
  const days = new Map();
  for (const entry of entries) {
    const day = entry.tick.slice(0, 10);
    if (!days.has(day)) days.set(day, []);
    days.get(day).push(entry);
  }
  const present = new Set(entries.map(tickKind));
  const drawDay = ([day, ticks]) => {
    const kinds = new Map();
    for (const tick of ticks) kinds.set(tickKind(tick), (kinds.get(tickKind(tick)) || 0) + tick.ticks);
    const words = TICKS.filter(([kind]) => kinds.has(kind)).map(([kind, , word]) => `${count(kinds.get(kind))} ${word}`).join(", ");
    const label = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" }).format(new Date(day));
    return element("li", {}, element("button", { type: "button", class: "day", "data-day": day, "aria-pressed": String(chosen === day),
      "aria-label": `${label}: ${words}`, title: words, onclick: () => choose(day) },
      element("span", { class: "stack" }, WORST_FIRST.toReversed().filter(kind => kinds.has(kind)).map(kind =>
        element("span", { class: `tick ${kind}`, grow: kinds.get(kind) }, TICKS.find(([name]) => name === kind)[1]))), label));
  };
  if (!entries.length) return "";
  return element("div", {}, element("ol", { class: "strip" }, [...days].reverse().map(drawDay)),
    element("ul", { class: "legend" }, TICKS.filter(([kind]) => present.has(kind)).map(([kind, mark, word]) =>
      element("li", {}, element("span", { class: `tick ${kind}`, "aria-hidden": "true" }, mark), word))));
}

function describeTicks(view, project, path, entries) {
  const start = entry => encode(entry.window.start);
  const run = entry => askFor(view, `Run the window of ${INSTANT.format(new Date(entry.tick))} UTC`, form => [
    element("p", {}, "It is pulled and evaluated as a new run; an earlier run stays."),
    element("label", {}, "Traces to pass over", form.area("excluded", entry.trace_id || ""), element("span", { class: "hint" }, "One trace id a line; the report names them.")),
  ], values => new Write("POST", `${path}/windows/${start(entry)}/run`, { body: { exclude_trace_ids: values.excluded.split(/\s+/).filter(Boolean) } }), () => view.again(0), "Run");
  const skip = entry => confirmWrite(view, "Give the window up?", "Its tick counts as decided; it can be run by hand later.", "Skip",
    new Write("POST", `${path}/windows/${start(entry)}/skip`), () => view.again(0));
  return table("Windows, newest first", [
    ["Tick", entry => entry.ticks > 1 ? [instant(entry.tick), element("span", { class: "block small muted" }, `and ${plural(entry.ticks - 1, "tick")} before it`)] : instant(entry.tick), "nowrap"],
    ["State", entry => badge(tickKind(entry) === "failing" ? "failing" : entry.state, tickKind(entry) === "failing" ? "attempts fail" : null)],
    ["Traces", entry => count(entry.traces), "number"],
    ["What happened", entry => [entry.error && element("span", {}, entry.error, entry.trace_id && [" ", element("code", {}, entry.trace_id)]),
      entry.attempts > 1 && element("span", { class: "block small muted" }, plural(entry.attempts, "attempt")),
      entry.run && link(hash(project, "runs", entry.run), "report", "block"),
      !entry.error && !entry.run && entry.attempts < 2 && muted(UNKNOWN)], "wide"],
    ["Do", entry => element("div", { class: "row" }, ["working", "requested"].includes(entry.state) && button("Skip", () => skip(entry)),
      entry.ticks === 1 && button("Run", () => run(entry)))],
  ], entries, { empty: "No tick was decided yet." });
}
