// Runs: the list, one run while it works, its report, and how to start one.

const ENDED = new Set(["succeeded", "failed", "error", "cancelled"]);

async function showRuns(view, project, query) {
  const filter = { state: query.get("state"), source: query.get("source"), label: query.get("label") };
  const list = cursor => readPage(`${api(project)}/runs`, { ...filter, cursor }, view.signal);
  const page = await list();
  const chosen = new Set(), open = new Map();
  const compare = button("Compare", () => {
    const [candidate, baseline] = [...body.querySelectorAll("input[name=compare]:checked")].map(box => box.value);
    view.go(`${hash(project, "compare")}?${new URLSearchParams({ baseline, candidate })}`);
  });
  const choose = (run, box) => {
    if (box.checked) chosen.add(run.id); else chosen.delete(run.id);
    compare.disabled = chosen.size !== 2;
  };
  compare.disabled = true;
  compare.title = "Choose two runs";
  const states = element("select", { "aria-label": "State", onchange: event => {
    const asked = new URLSearchParams(query);
    asked.set("state", event.target.value);
    view.go(`${hash(project, "runs")}?${asked}`);
  } }, ["", "pending", "running", "succeeded", "failed", "error", "cancelled"].map(state =>
    element("option", { value: state, selected: state === (filter.state || "") }, state || "any state")));
  const body = pagedTable(view, "Runs, newest first", [
    ["Run", run => element("div", { class: "row" }, ENDED.has(run.state) && element("input", { type: "checkbox", name: "compare",
      value: run.id, "aria-label": `Compare ${run.name}`, onchange: event => choose(run, event.target) }),
      link(hash(project, "runs", run.id), named(run.name), "name"))],
    ["State", run => badge(run.state)],
    ["Records", run => describeProgress(run)],
    ["Of", run => describeOrigin(project, run)],
    ["Created", run => instant(run.created_at), "nowrap"],
  ], page, list, filter.state || filter.source ? "No run is like that." : "No run yet. Publish a dataset, then start one.", {
    onrow: (run, cells) => { if (!ENDED.has(run.state)) open.set(run.id, cells); } });
  view.show("Runs", { project, actions: [states, compare, button("Start a run", () => startRun(view, project), "main")] },
    filter.source && element("p", {}, "Of the source ", named(filter.source), ". ", link(hash(project, "runs"), "All runs")), section(null, body));
  view.every(2000, async () => {
    if (!open.size) return;
    for (const run of (await list()).items) {
      const cells = open.get(run.id);
      if (!cells) continue;
      cells[1].replaceChildren(badge(run.state));
      cells[2].replaceChildren(describeProgress(run));
      if (ENDED.has(run.state)) open.delete(run.id);
    }
  });
}

function describeOrigin(project, run) {
  if (run.source) return link(hash(project, "sources", run.source.id), named(run.source.id));
  if (!run.dataset) return UNKNOWN;
  const version = `${run.dataset.name}@${run.dataset.version}`;
  return link(hash(project, "datasets", version), named(version));
}
function describeProgress(run) {
  const { done, total } = run.progress;
  return element("div", {}, element("span", { class: "small" }, `${count(done)} of ${count(total)}`),
    ENDED.has(run.state) ? null : progressBar(`Progress of ${run.name}`, done, total));
}

async function showRun(view, project, id) {
  const path = `${api(project)}/runs/${encode(id)}`;
  let run = await read(path, view.signal);
  const live = element("div", { class: "big" }, describeLive(run));
  const act = (title, words, word, method, suffix, then) => () =>
    confirmWrite(view, title, words, word, new Write(method, `${path}${suffix}`), then || (() => view.again(0)));
  const actions = [
    !ENDED.has(run.state) && button("Cancel", act("Cancel the run?", "What it has evaluated stays; it can be resumed.", "Cancel the run", "POST", "/cancel")),
    ["error", "cancelled"].includes(run.state) && button("Resume", act("Resume the run?", "Only what has no result yet is evaluated.", "Resume", "POST", "/resume"), "main"),
    ENDED.has(run.state) && button("Delete", act("Delete the run?", "Its results and its report go for good.", "Delete", "DELETE", "",
      () => view.go(hash(project, "runs"))), "danger"),
  ];
  view.show(run.name, { project, above: link(hash(project, "runs"), "Runs"), beside: badge(run.state), actions },
    run.error && element("div", { class: "problem" }, element("p", {}, element("code", {}, run.error.code), " ", run.error.detail)),
    ENDED.has(run.state) ? null : section("Progress", live));
  if (!ENDED.has(run.state)) {
    view.every(1000, async () => {
      run = await read(path, view.signal);
      live.replaceChildren(...describeLive(run));
      if (ENDED.has(run.state)) view.again(0);
    });
    view.append(describeConfig(project, run));
    return;
  }
  let units = new Map();
  try {
    const report = await read(`${path}/report?excerpts=true`, view.signal);
    units = unitsOf(report);
    view.append(...describeReport(view, report), section("Take it along", downloads(path, run)));
  } catch (error) {
    if (error.status !== 409) throw error;
    view.append(section("Report", element("p", { class: "muted" }, error.message)));
  }
  view.append(resultList(view, path, run, units), describeConfig(project, run));
}

function describeLive(run) {
  const { total, done, scored, skipped, errors } = run.progress;
  const words = `${count(done)} of ${count(total)} records`;
  return [element("p", {}, element("strong", {}, words), run.state === "pending" ? ", waiting to begin" : ""),
    progressBar("Records done", done, total),
    element("p", { class: "small muted" }, `${plural(scored, "result")} scored, ${count(skipped)} skipped, `,
      element("span", { class: errors ? "bad-text" : null }, plural(errors, "error")))];
}

function describeConfig(project, run) {
  const labels = Object.entries(run.labels).map(([name, value]) => `${name}=${value}`).join(", ");
  return section("Made from", pairs([
    [run.source ? "Source" : "Dataset", describeOrigin(project, run)],
    run.source && ["Window", instant(run.source.window_start), " to ", instant(run.source.window_end)],
    ["Run", element("code", {}, run.id)], ["Labels", labels ? named(labels) : UNKNOWN], ["Created", instant(run.created_at)],
    ["By", named(run.created_by)], ["Took", duration(run.started_at, run.finished_at)]]),
    element("details", {}, element("summary", {}, "Configuration"), json(run.config)));
}

const unitsOf = report => new Map(report.metrics.map(metric => [metric.id, metric.unit]));

function describeReport(view, report) {
  const results = report.metrics.reduce((sum, one) => sum + one.scored + one.skipped + one.errors, 0);
  const scored = report.metrics.reduce((sum, one) => sum + one.scored, 0);
  const usage = report.usage || {};
  const units = unitsOf(report);
  const measure = (value, metric) => withUnit(value, units.get(metric));
  const gatesOf = metric => report.gates.filter(gate => gate.metric === metric.id);
  const condition = gate => [`${gate.stat}`, gate.min !== null && `at least ${measure(gate.min, gate.metric)}`,
    gate.max !== null && `at most ${measure(gate.max, gate.metric)}`]
    .filter(Boolean).join(" ");
  const spread = report.metrics.filter(metric => metric.distribution);
  return [
    facts([["Records", count(report.records)], ["Coverage", share(results ? scored / results : null)],
      ["Took", duration(report.started_at, report.finished_at)], ["Tokens in", count(usage.input_tokens)],
      ["Tokens out", count(usage.output_tokens)], ["Cost", usage.cost_usd === null || usage.cost_usd === undefined ? UNKNOWN : `$${number(usage.cost_usd)}`]]),
    report.gates.length ? section("Gates", table("Gates", [
      ["Gate", gate => named(gate.metric, "name")], ["Asks for", condition], ["Value", gate => measure(gate.value, gate.metric), "number"],
      ["Outcome", gate => [badge(gate.passed ? "succeeded" : "failed", gate.passed ? "passed" : "failed"),
        gate.reason && element("span", { class: "small muted block" }, gate.reason)]]], report.gates)) : null,
    section("Metrics", table("Metrics with their means and 95 % intervals", [
      ["Metric", one => [named(one.id, "name"), one.evaluator !== one.id && element("span", { class: "small muted block" }, one.evaluator)]],
      ["Mean", one => element("strong", {}, withUnit(one.mean, one.unit)), "number"],
      ["95 % interval", one => drawInterval(one, gatesOf(one)), "wide"],
      ["n", one => count(one.n), "number"], ["Skipped", one => count(one.skipped), "number"],
      ["Errors", one => element("span", { class: one.errors ? "bad-text" : null }, count(one.errors)), "number"],
      ["Coverage", one => share(one.coverage), "number"]], report.metrics)),
    spread.length ? section("Scores", element("div", { class: "cards" }, spread.map(metric => element("div", {},
      named(metric.id, "name"), metric.unit && metric.unit !== metric.id && muted(` in ${metric.unit}`), drawHistogram(metric))))) : null,
    report.worst.length ? section("Look at these first", describeWorst(view, report, measure)) : null,
    report.slices.length ? section("Slices", table("Metrics by a metadata key", [
      ["Where", one => named(`${one.key} = ${typeof one.value === "string" ? one.value : JSON.stringify(one.value)}`)],
      ["Metric", one => named(one.metric.id)], ["Mean", one => withUnit(one.metric.mean, one.metric.unit), "number"],
      ["95 % interval", one => interval(one.metric.ci_low, one.metric.ci_high, one.metric.unit)], ["n", one => count(one.metric.n), "number"],
    ], report.slices.flatMap(slice => slice.metrics.map(metric => ({ ...slice, metric }))))) : null,
    Object.keys(report.redactions).length ? section("Redactions", pairs(Object.entries(report.redactions).map(([kind, times]) =>
      [kind, count(times)]))) : null,
  ].filter(Boolean);
}
function describeWorst(view, report, measure) {
  const groups = Map.groupBy(report.worst, one => one.evaluator);
  const missing = report.excerpts_missing;
  return [missing && element("p", { class: "small muted" }, `${plural(missing.results, "record")} not quoted: ${missing.detail}`),
    [...groups].map(([evaluator, results], place) => element("details", { class: "group", open: !place },
      element("summary", {}, named(evaluator)), results.some(one => one.excerpts)
        ? element("ol", { class: "records" }, results.map(one => quoteRecord(view, one, measure(one.score, evaluator))))
        : table(`Worst results of ${evaluator}`, [
          ["Record", one => named(one.record, "mono")], ["Outcome", describeOutcome], ["Score", one => measure(one.score, evaluator), "number"],
          ["Why", one => one.error || UNKNOWN, "wide"]], results)))];
}
function quoteRecord(view, one, score) {
  const { input, output, reference, record_path, output_path } = one.excerpts || {};
  const texts = [["Input", input], ["Output", output], ["Reference", reference]].filter(([, excerpt]) => excerpt);
  return element("li", {},
    element("div", { class: "row" }, named(one.record, "mono"), (one.score === null || one.passed !== null) && describeOutcome(one), one.score !== null && element("span", {}, `score ${score}`),
      one.trial > 1 && muted(`trial ${one.trial}`)),
    one.error && element("p", { class: "small muted" }, one.error),
    element("dl", { class: "texts" }, texts.map(([word, excerpt]) => element("div", {}, element("dt", {}, word),
      element("dd", { dir: "auto" }, excerpt.text, excerpt.is_cut && muted(" …"))))),
    showWhole(view, "Whole record", record_path), showWhole(view, "Whole output", output_path));
}
// What an excerpt is the beginning of, read when it is asked for.
function showWhole(view, word, path) {
  if (!path) return null;
  const place = element("div", {});
  const load = async () => {
    try {
      place.replaceChildren(json((await read(path, view.signal)).items[0]));
    } catch (error) {
      if (!view.signal.aborted) place.replaceChildren(describeProblem(error, load));
    }
  };
  const toggle = event => { if (event.target.open && !place.firstChild) load(); };
  return element("details", { class: "small", ontoggle: toggle }, element("summary", {}, word), place);
}
function describeOutcome(one) {
  if (one.status !== "scored") return badge(one.status === "error" ? "error" : "skipped", one.status);
  return one.passed === null ? muted("scored") : badge(one.passed ? "succeeded" : "failed", one.passed ? "passed" : "failed");
}

function downloads(path, run) {
  const kinds = [["Page", "text/html", "html"], ["Markdown", "text/markdown", "md"], ["JUnit XML", "application/xml", "xml"], ["JSON", "application/json", "json"]];
  return element("div", { class: "row" }, kinds.map(([word, type, ending]) => button(word, async event => {
    const pressed = event.target;
    try {
      const address = URL.createObjectURL(new Blob([await read(`${path}/report?baseline=previous&excerpts=true`, undefined, type)], { type }));
      element("a", { href: address, download: `report-${run.id}.${ending}` }).click();
      setTimeout(() => URL.revokeObjectURL(address), 10000);
    } catch (error) {
      pressed.closest("section").append(describeProblem(error));
    }
  })));
}

function resultList(view, path, run, units) {
  const place = element("div", {});
  const load = async () => {
    const query = { limit: 50, evaluator: which.value, status: status.value };
    const list = cursor => readPage(`${path}/results`, { ...query, cursor }, view.signal);
    place.replaceChildren(pagedTable(view, "Results", [
      ["Record", one => named(one.record, "mono")], ["Evaluator", one => named(one.evaluator)], ["Outcome", describeOutcome],
      ["Score", one => withUnit(one.score, units.get(one.evaluator)), "number"], ["Why", one => one.error || UNKNOWN, "wide"]], await list(), list, "No result is like that."));
  };
  const guarded = () => load().catch(error => { if (!view.signal.aborted) place.replaceChildren(describeProblem(error, guarded)); });
  const options = (all, values) => [element("option", { value: "" }, all), values.map(value => element("option", {}, value))];
  const which = element("select", { "aria-label": "Evaluator", onchange: guarded }, options("any evaluator", run.config.evaluators.map(one => one.id)));
  const status = element("select", { "aria-label": "Outcome", onchange: guarded }, options("any outcome", ["scored", "skipped", "error"]));
  return section("Results", element("div", { class: "row" }, which, status, button("Show", guarded)), place);
}

async function startRun(view, project, dataset) {
  let datasets, evaluators;
  try {
    [datasets, evaluators] = await Promise.all([readPage(`${api(project)}/datasets`, { limit: 200 }, view.signal), read("/v1/evaluators", view.signal)]);
  } catch (error) { return view.fail(error); }
  const wanted = dataset && `${dataset.name}@${dataset.version}`;
  const needs = one => (one.params_schema.required || []).length > 0;
  askFor(view, "Start a run", form => [
    element("label", {}, "Name", form.input("name", { required: true, maxlength: 200 })),
    element("label", {}, "Dataset", form.select("dataset", datasets.items.map(one => `${one.name}@${one.version}`), wanted)),
    element("fieldset", {}, element("legend", {}, "Evaluators"), element("div", { class: "choices", tabindex: "0", role: "group", "aria-label": "Evaluators" },
      evaluators.items.map(one => element("label", { class: "check" }, form.input(`evaluator.${one.name}`, { type: "checkbox" }),
        element("span", {}, element("strong", {}, one.name), " ", element("span", { class: "hint" }, one.score_meaning, needs(one) ? ` Needs ${one.params_schema.required.join(", ")}.` : "")))))),
    element("label", {}, "Parameters", form.area("params", '{}'), element("span", { class: "hint" }, 'JSON by evaluator, such as {"contains": {"text": "Paris"}}')),
    element("label", {}, "Gate, if any", form.input("gate", { placeholder: "exact_match ci_low >= 0.8", pattern: "\\S+ (mean|ci_low|ci_high) [<>]= -?[0-9.]+" }),
      element("span", { class: "hint" }, "metric, then mean, ci_low or ci_high, then >= or <= and a number")),
  ], values => {
    const names = evaluators.items.map(one => one.name).filter(name => values[`evaluator.${name}`]);
    if (!names.length) throw new SyntaxError("Choose at least one evaluator.");
    const params = JSON.parse(values.params || "{}");
    const [metric, stat, side, bound] = values.gate.split(" ");
    const at = values.dataset.lastIndexOf("@");
    return new Write("POST", `${api(project)}/runs`, { body: {
      name: values.name, dataset: { name: values.dataset.slice(0, at), version: Number(values.dataset.slice(at + 1)) },
      evaluators: names.map(name => ({ name, params: params[name] || {} })),
      gates: metric ? [{ metric, stat, [side === ">=" ? "min" : "max"]: Number(bound) }] : [] } });
  }, made => view.go(hash(project, "runs", made.id)));
}
