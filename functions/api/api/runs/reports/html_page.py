"""A report as one self-contained HTML page: no script, nothing loaded; for a screen, a phone, the dark and paper."""

from collections.abc import Sequence
from itertools import groupby

from api.runs.models import ComparedMetric, Comparison, Metric, Report, WorstResult
from api.runs.reports.markup import Child, Html, element, join
from api.runs.reports.page_style import STYLE
from api.runs.reports.plots import draw_histogram, draw_interval, draw_outcomes
from api.runs.reports.wording import (
    SHOWN_REGRESSIONS,
    UNKNOWN,
    find_unit,
    list_texts,
    write_baseline,
    write_change,
    write_condition,
    write_cost,
    write_difference,
    write_duration,
    write_instant,
    write_interval,
    write_latency,
    write_missing,
    write_number,
    write_outcome,
    write_share,
    write_value,
    write_verdict,
)

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page needs, and nothing else: were a value ever not escaped, no script of it would run."""


def render_html(report: Report) -> str:
    """Write the page. Every value is escaped by construction (`api.runs.reports.markup`)."""
    title = report.name or f"run {report.run}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{'Passed' if report.passed else 'Failed'}: {title}"),
        element("style", STYLE),
    )
    main = element(
        "main",
        _header(report, title),
        _facts(report),
        _gates(report),
        _moved(report.comparison),
        _metrics(report),
        _distributions(report.metrics),
        _worst(report),
        _slices(report),
        _redactions(report),
        _provenance(report),
    )
    return f"<!doctype html>\n{element('html', head, element('body', main), lang='en')}\n"


def _header(report: Report, title: str) -> Html:
    kind, word = ("good", "Passed") if report.passed else ("bad", "Failed")
    return element(
        "header",
        element("p", "evaluation report", class_="brand"),
        element("div", element("h1", element("bdi", title)), _badge(kind, word), class_="headline"),
        element("p", write_verdict(report), class_="verdict"),
    )


def _badge(kind: str, word: str) -> Html:
    mark = {"good": "✓", "bad": "✕"}[kind]
    return element("span", element("span", mark, aria_hidden="true"), f" {word}", class_=f"badge {kind}")


def _facts(report: Report) -> Html:
    usage = report.usage
    facts = [
        ("Records", f"{report.records:,}"),
        ("Coverage", write_share(_coverage(report.metrics))),
        ("Duration", write_duration(report)),
        ("Input tokens", write_number(usage.input_tokens)),
        ("Output tokens", write_number(usage.output_tokens)),
        ("Cost", write_cost(usage.cost_usd)),
        *([("Latency", write_latency(usage.latency_ms))] if usage.latency_ms else []),
    ]
    return element("dl", [element("div", element("dt", name), element("dd", value)) for name, value in facts],
                   class_="facts")  # fmt: skip


def _coverage(metrics: Sequence[Metric]) -> float | None:
    results = sum(metric.scored + metric.skipped + metric.errors for metric in metrics)
    return sum(metric.scored for metric in metrics) / results if results else None


def _section(title: str, *children: Child, note: str | None = None) -> Html:
    return element(
        "section",
        element("h2", title),
        element("p", note, class_="muted") if note else None,
        *children,
    )


def _table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[Child]], caption: str) -> Html:
    """Make a table whose rows become cards on a narrow screen; the roles keep it a table for a screen reader then."""
    head = element(
        "tr",
        [element("th", name, scope="col", role="columnheader", class_=kind or None) for name, kind in columns],
        role="row",
    )
    body = [
        element(
            "tr",
            [
                element("td", element("div", cell), role="cell", data_label=name, class_=kind or None)
                for (name, kind), cell in zip(columns, row, strict=True)
            ],
            role="row",
        )
        for row in rows
    ]
    return element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head, role="rowgroup"),
        element("tbody", body, role="rowgroup"),
        role="table",
    )


def _gates(report: Report) -> Html | None:
    if not report.gates:
        return None
    columns = (("Gate", ""), ("Asks for", ""), ("Value", "number"), ("Outcome", ""))
    rows: list[Sequence[Child]] = [
        (
            element("bdi", gate.metric, class_="name"),
            write_condition(gate, find_unit(report, gate.metric)),
            write_number(gate.value, find_unit(report, gate.metric)),
            join(
                (
                    _badge("good", "passed") if gate.passed else _badge("bad", "failed"),
                    element("span", f" {gate.reason}", class_="reason") if gate.reason else None,
                )
            ),
        )
        for gate in report.gates
    ]
    return _section("Gates", _table(columns, rows, "Gates, what they ask for and whether they passed"))


def _moved(comparison: Comparison | None) -> Html | None:
    if comparison is None:
        return None
    columns = (
        ("Metric", ""), ("Change", ""), ("Difference", "number"), ("Before", "number"), ("Now", "number"),
        ("Pairs", "number"), ("Regressions", "number"), ("Fixes", "number"),
    )  # fmt: skip
    rows: list[Sequence[Child]] = [
        (
            element("bdi", metric.id, class_="name"),
            _change(metric),
            _difference(metric),
            write_number(metric.baseline_mean, metric.unit),
            write_number(metric.candidate_mean, metric.unit),
            f"{metric.n:,}",
            element("span", f"{metric.regressions_count:,}", class_="bad-text" if metric.regressions_count else None),
            f"{metric.fixes_count:,}",
        )
        for metric in comparison.metrics
    ]
    regressions: list[Html] = []
    for metric in comparison.metrics:
        if metric.regressions:
            regressions += [element("h3", "Regressions of ", element("bdi", metric.id)), _regressions(metric)]
    left_out = [
        element("p", element("bdi", one.id), f" is left out: {one.reason}.", class_="muted small")
        for one in comparison.not_compared
    ]
    return _section(
        "What moved",
        _table(columns, rows, "What moved in each metric"),
        element("div", regressions, class_="worst") if regressions else None,
        *left_out,
        note=f"{write_baseline(comparison)} Below a difference is its 95 % interval.",
    )


def _difference(metric: ComparedMetric) -> Html:
    difference, interval = write_difference(metric)
    return join((element("strong", difference), element("span", interval, class_="muted small block")))


def _change(metric: ComparedMetric) -> Html:
    word = write_change(metric)
    kind = {"better": "good", "worse": "bad"}.get(word)
    return _badge(kind, word) if kind else element("span", word, class_="muted")


def _regressions(metric: ComparedMetric) -> Html:
    shown = metric.regressions[:SHOWN_REGRESSIONS]
    rows: list[Sequence[Child]] = [
        (
            element("bdi", one.record, class_="id"),
            write_number(one.baseline, metric.unit),
            write_number(one.candidate, metric.unit),
        )
        for one in shown
    ]
    columns = (("Record", ""), ("Before", "number"), ("Now", "number"))
    left = metric.regressions_count - len(shown)
    return join(
        (
            _table(columns, rows, f"Regressions of {metric.id}"),
            element("p", f"and {left:,} more", class_="muted small") if left else None,
        )
    )


def _metrics(report: Report) -> Html:
    columns = (
        ("Metric", ""), ("Mean", "number"), ("95 % interval", "wide"), ("n", "number"), ("Skipped", "number"),
        ("Errors", "number"), ("Coverage", "number"),
    )  # fmt: skip
    rows: list[Sequence[Child]] = []
    for metric in report.metrics:
        gates = [gate for gate in report.gates if gate.metric == metric.id]
        name = [element("bdi", metric.id, class_="name")]
        if metric.evaluator != metric.id:
            name.append(element("span", element("bdi", metric.evaluator), class_="muted small block"))
        rows.append(
            (
                join(name),
                element("strong", write_number(metric.mean, metric.unit)),
                draw_interval(metric, gates),
                f"{metric.n:,}",
                f"{metric.skipped:,}",
                element("span", f"{metric.errors:,}", class_="bad-text" if metric.errors else None),
                write_share(metric.coverage),
            )
        )
    note = "Wilson intervals for pass/fail, Student's t for numbers. A dashed line is a gate."
    return _section("Metrics", _table(columns, rows, "Metrics with their means and intervals"), note=note)


def _distributions(metrics: Sequence[Metric]) -> Html | None:
    cards = [_distribution(metric) for metric in metrics if metric.scored or metric.skipped or metric.errors]
    return _section("Scores", element("div", cards, class_="cards")) if cards else None


def _distribution(metric: Metric) -> Html:
    passed, failed = metric.passed or 0, metric.failed or 0
    parts = [("good-fill", "passed", passed), ("bad-fill", "failed", failed)]
    parts += [("scored-fill", "scored", metric.scored - passed - failed)]
    parts += [("skipped-fill", "skipped", metric.skipped), ("error-fill", "errors", metric.errors)]
    legend = [
        element("li", element("span", class_=f"key {kind}", aria_hidden="true"), f"{count:,} {name}")
        for kind, name, count in parts
        if count
    ]
    return element(
        "figure",
        element(
            "figcaption",
            element("bdi", metric.id, class_="name"),
            element("span", f" in {metric.unit}", class_="muted") if metric.unit not in (None, metric.id) else None,
        ),
        draw_histogram(metric.distribution, metric.mean) if metric.distribution else None,
        draw_outcomes(parts),
        element("ul", legend, class_="legend"),
        class_="card",
    )


def _worst(report: Report) -> Html | None:
    if not report.worst:
        return None
    parts: list[Html] = []
    is_quoted = False
    for evaluator, group in groupby(report.worst, key=lambda result: result.evaluator):
        results, unit = list(group), find_unit(report, evaluator)
        has_texts = any(result.excerpts is not None for result in results)
        is_quoted |= has_texts
        parts += [
            element("h3", element("bdi", evaluator)),
            _quoted_records(results, unit) if has_texts else _named_records(results, unit),
        ]
    note = "At most ten a metric: errors first, then failures, then the worst scores."
    if is_quoted:
        note += " Long texts are cut; the report as JSON says where each is whole."
    missing = report.excerpts_missing
    return _section(
        "Worst records",
        element("p", write_missing(missing), class_="muted small") if missing else None,
        element("div", parts, class_="worst"),
        note=note,
    )


def _named_records(results: Sequence[WorstResult], unit: str | None) -> Html:
    # A column of dashes tells nothing, and on a phone takes a line of each card.
    has_reasons = any(result.error for result in results)
    columns = (("Record", ""), ("Outcome", ""), ("Score", "number"), *([("Why", "wide")] if has_reasons else []))
    rows: list[Sequence[Child]] = [
        (
            element("bdi", result.record, class_="id"),
            _outcome(result),
            write_number(result.score, unit),
            *([result.error or UNKNOWN] if has_reasons else []),
        )
        for result in results
    ]
    return _table(columns, rows, f"Worst records of {results[0].evaluator}")


def _quoted_records(results: Sequence[WorstResult], unit: str | None) -> Html:
    return element("ol", [_quoted_record(result, unit) for result in results], class_="records")


def _quoted_record(result: WorstResult, unit: str | None) -> Html:
    texts = [
        element(
            "div",
            element("dt", word),
            # Whose text is written from right to left is shown so, whatever the page around it is.
            element("dd", excerpt.text, element("span", " …", class_="muted") if excerpt.is_cut else None, dir="auto"),
        )
        for word, excerpt in list_texts(result.excerpts)
    ]
    facts: list[Html] = []
    # That a record was scored its score says.
    if result.score is None or result.passed is not None:
        facts.append(_outcome(result))
    if result.score is not None:
        facts.append(element("span", f"score {write_number(result.score, unit)}"))
    if result.trial > 1:
        facts.append(element("span", f"trial {result.trial}", class_="muted"))
    return element(
        "li",
        element("p", element("bdi", result.record, class_="id"), facts, class_="record"),
        element("p", result.error, class_="reason") if result.error else None,
        element("dl", texts, class_="texts") if texts else None,
    )


def _outcome(result: WorstResult) -> Html:
    is_bad = result.status == "error" or result.passed is False
    return element("span", write_outcome(result), class_="bad-text" if is_bad else "muted")


def _slices(report: Report) -> Html | None:
    if not report.slices:
        return None
    tables: list[Html] = []
    for key, parts in groupby(report.slices, key=lambda part: part.key):
        columns = (("Value", ""), ("Records", "number"), *((metric.id, "number") for metric in report.metrics))
        rows: list[Sequence[Child]] = []
        for part in parts:
            metrics = {metric.id: metric for metric in part.metrics}
            means = [_slice_mean(metrics.get(metric.id)) for metric in report.metrics]
            rows.append((element("bdi", write_value(part.value)), f"{part.records:,}", *means))
        tables += [element("h3", element("bdi", key)), _table(columns, rows, f"Metrics by {key}")]
    note = "Means by the value of a metadata key, below them 95 % intervals; at most the 20 most frequent values."
    return _section("Slices", *tables, note=note)


def _slice_mean(metric: Metric | None) -> Html | str:
    if metric is None:
        return UNKNOWN
    interval = element("span", write_interval(metric), class_="muted small block")
    return join((element("strong", write_number(metric.mean, metric.unit)), interval))


def _redactions(report: Report) -> Html | None:
    if not report.redactions:
        return None
    columns = (("What", ""), ("Replaced", "number"))
    rows: list[Sequence[Child]] = [(kind, f"{count:,}") for kind, count in sorted(report.redactions.items())]
    return _section("Redactions", _table(columns, rows, "What was replaced in the records, and how often"))


def _provenance(report: Report) -> Html:
    versions = ", ".join(f"{name} v{version}" for name, version in sorted(report.evaluator_versions.items()))
    facts = [
        ("Project", report.project),
        ("Run", report.run),
        ("Dataset", report.dataset or UNKNOWN),
        ("Dataset SHA-256", report.dataset_sha256),
        ("Config SHA-256", report.config_sha256),
        ("Evaluators", versions or UNKNOWN),
        *([("Excluded traces", ", ".join(report.excluded_traces))] if report.excluded_traces else []),
        ("Created", write_instant(report.created_at)),
        ("Started", write_instant(report.started_at)),
        ("Finished", write_instant(report.finished_at)),
    ]
    pairs = [element("div", element("dt", name), element("dd", element("bdi", value))) for name, value in facts]
    return _section("Made from", element("dl", pairs, class_="provenance"))
