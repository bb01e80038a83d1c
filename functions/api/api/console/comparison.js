// Plots, and what changed between two runs.

function scaleOf(values, low, high) {
  const known = values.filter(value => value !== null && value !== undefined);
  const least = Math.min(...known), most = Math.max(...known);
  const margin = (most - least) * 0.15 || Math.abs(most) * 0.15 || 1;
  const from = low ?? least - margin, to = high ?? most + margin;
  return { from, to: to > from ? to : from + 1, place(value) {
    return `${Math.min(1, Math.max(0, (value - this.from) / (this.to - this.from))) * 100}%`;
  } };
}

function drawInterval(metric, gates) {
  if (metric.mean === null) return muted("nothing was scored");
  const bounds = gates.flatMap(gate => [gate.min, gate.max]);
  const scale = scaleOf([metric.mean, metric.ci_low, metric.ci_high, ...bounds], metric.minimum, metric.maximum);
  const words = interval(metric.ci_low, metric.ci_high, metric.unit);
  return drawLine(scale, metric, words, `mean ${withUnit(metric.mean, metric.unit)}, 95 % interval ${words}`,
    gates.flatMap(gate => [gate.min, gate.max].filter(bound => bound !== null).map(bound => shape("line", { class: `gate ${gate.passed ? "good" : ""}`,
      x1: scale.place(bound), x2: scale.place(bound), y1: 1, y2: 23 }))));
}
function drawLine(scale, { mean, ci_low: low, ci_high: high }, words, label, marks) {
  const has = low !== null && high !== null;
  return element("div", {}, shape("svg", { role: "img", "aria-label": label, width: "100%", height: 24 },
    shape("line", { class: "axis", x1: "0%", x2: "100%", y1: 12, y2: 12 }), marks.filter(mark => mark.classList.contains("zero")),
    has && shape("line", { class: "range", x1: scale.place(low), x2: scale.place(high), y1: 12, y2: 12 }),
    marks.filter(mark => !mark.classList.contains("zero")), shape("circle", { class: "dot", cx: scale.place(mean), cy: 12, r: 5 })),
    element("div", { class: "ends", "aria-hidden": "true" }, element("span", {}, number(scale.from)), element("span", {}, words), element("span", {}, number(scale.to))));
}

function drawHistogram(metric) {
  const { low, high, counts } = metric.distribution;
  const most = Math.max(...counts, 1), width = 100 / counts.length;
  return element("div", {}, shape("svg", { role: "img", width: "100%", height: 84, "aria-label": `${plural(metric.scored, "score")} from ${number(low)} to ${number(high)}` },
    counts.map((times, bin) => shape("rect", { class: "column", x: `${bin * width + width * 0.06}%`, width: `${width * 0.88}%`,
      y: 84 - (times / most) * 80, height: (times / most) * 80 }))),
    element("div", { class: "ends" }, element("span", {}, number(low)), element("span", {}, plural(metric.scored, "score")), element("span", {}, number(high))));
}

async function showComparison(view, project, query) {
  const sides = { baseline: query.get("baseline"), candidate: query.get("candidate") };
  const found = await readPage(`${api(project)}/runs:compare`, sides, view.signal);
  const swap = () => view.go(`${hash(project, "compare")}?${new URLSearchParams({ baseline: sides.candidate, candidate: sides.baseline })}`);
  const side = run => [link(hash(project, "runs", run.id), named(run.name), "name"), " ", badge(run.state), element("span", { class: "block small muted" },
    run.dataset ? named(`${run.dataset.name}@${run.dataset.version}`) : "a window of a source", ", ", instant(run.finished_at))];
  const verdict = one => {
    if (one.difference === null) return badge("skipped", "nothing to compare");
    const [low, high] = [one.ci_low, one.ci_high];
    if (low === null || (low <= 0 && high >= 0)) return badge("skipped", "no clear change");
    const isUp = low > 0;
    if (!one.better) return badge("running", isUp ? "higher" : "lower");
    return isUp === (one.better === "higher") ? badge("succeeded", "better") : badge("failed", "worse");
  };
  view.show("Comparison", { project, above: link(hash(project, "runs"), "Runs"), actions: [button("Swap sides", swap)] },
    section(null, pairs([["Baseline", side(found.baseline)], ["Candidate", side(found.candidate)]]),
      !found.same_dataset && element("p", { class: "warn-text" }, "The runs evaluate different records: only those with the same id are paired.")),
    section("Metrics", table("What changed", [
      ["Metric", one => named(one.id, "name")], ["Verdict", verdict],
      ["Difference, 95 % interval", one => drawDifference(one), "wide"],
      ["Baseline", one => withUnit(one.baseline_mean, one.unit), "number"], ["Candidate", one => withUnit(one.candidate_mean, one.unit), "number"],
      ["Pairs", one => count(one.n), "number"], ["Regressions", one => count(one.regressions_count), "number"], ["Fixes", one => count(one.fixes_count), "number"],
    ], found.metrics, { empty: "The runs have no metric in common." })),
    found.metrics.map(one => changes(one)).filter(Boolean),
    found.not_compared.length ? section("Left out", pairs(found.not_compared.map(one => [one.id, one.reason]))) : null);
}
function drawDifference(one) {
  if (one.difference === null) return muted("no pair");
  const reach = Math.max(...[one.difference, one.ci_low, one.ci_high, 0.01].map(value => Math.abs(value || 0))) * 1.2;
  const scale = scaleOf([0], -reach, reach);
  const words = `${one.difference > 0 ? "+" : ""}${withUnit(one.difference, one.unit)} (${interval(one.ci_low, one.ci_high)})`;
  return drawLine(scale, { mean: one.difference, ci_low: one.ci_low, ci_high: one.ci_high }, words, `difference ${words}`,
    [shape("line", { class: "zero", x1: "50%", x2: "50%", y1: 1, y2: 23 })]);
}
function changes(one) {
  const list = (title, items) => items.length ? element("details", {}, element("summary", {}, `${title}: ${count(items.length)} shown`), table(`${title} of ${one.id}`, [
    ["Record", item => named(item.record, "mono")], ["Baseline", item => withUnit(item.baseline, one.unit), "number"], ["Candidate", item => withUnit(item.candidate, one.unit), "number"]], items)) : null;
  if (!one.regressions.length && !one.fixes.length) return null;
  return section(null, element("h2", {}, named(one.id)), list("Regressions", one.regressions), list("Fixes", one.fixes));
}
