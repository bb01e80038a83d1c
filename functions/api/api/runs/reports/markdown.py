"""A report as Markdown (GitHub's): for a pull request, a ticket or a chat."""

import re
from collections.abc import Sequence
from itertools import groupby

from api.runs.models import Comparison, Report, WorstResult
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

_SPECIAL = re.compile(r"[\\`*_\[\]|<>&~@#$]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_BREAKS = re.compile(r"\s+")
_CHANGES = {"better": "✅ better", "worse": "❌ worse"}


def render_markdown(report: Report) -> str:
    """Write the report. What users named (run, records, metrics) is escaped: it makes no markup, link or mention."""
    title = report.name or f"run {report.run}"
    parts = [
        f"# {'✅ Passed' if report.passed else '❌ Failed'}: {_escape(title)}",
        _escape(write_verdict(report)),
    ]
    if report.gates:
        rows = [
            (
                _escape(gate.metric),
                write_condition(gate, find_unit(report, gate.metric)),
                write_number(gate.value, find_unit(report, gate.metric)),
                "✅ passed" if gate.passed else f"❌ {_escape(gate.reason or 'failed')}",
            )
            for gate in report.gates
        ]
        parts += ["## Gates", _table(("Gate", "Asks for", "Value", "Outcome"), "llrl", rows)]
    if report.comparison:
        parts += _moved(report.comparison)
    rows = [
        (
            _escape(metric.id),
            write_number(metric.mean, metric.unit),
            write_interval(metric),
            f"{metric.n:,}",
            f"{metric.skipped:,}",
            f"{metric.errors:,}",
            write_share(metric.coverage),
        )
        for metric in report.metrics
    ]
    columns = ("Metric", "Mean", "95 % interval", "n", "Skipped", "Errors", "Coverage")
    parts += ["## Metrics", _table(columns, "lrrrrrr", rows)]
    if report.worst:
        parts += _worst(report)
    for key, slices in groupby(report.slices, key=lambda part: part.key):
        rows = [
            (
                _escape(write_value(part.value)),
                f"{part.records:,}",
                *(f"{write_number(metric.mean, metric.unit)} ({write_interval(metric)})" for metric in part.metrics),
            )
            for part in slices
        ]
        columns = ("Value", "Records", *(_escape(metric.id) for metric in report.metrics))
        parts += [f"## By {_escape(key)}", _table(columns, "lr" + "r" * len(report.metrics), rows)]
    if report.redactions:
        counts = [(_escape(kind), f"{count:,}") for kind, count in sorted(report.redactions.items())]
        parts += ["## Redactions", _table(("What", "Replaced"), "lr", counts)]
    usage = report.usage
    facts = [
        ("Records", f"{report.records:,}"),
        ("Duration", write_duration(report)),
        ("Input tokens", write_number(usage.input_tokens)),
        ("Output tokens", write_number(usage.output_tokens)),
        ("Cost", write_cost(usage.cost_usd)),
        *([("Latency", write_latency(usage.latency_ms))] if usage.latency_ms else []),
        ("Project", _escape(report.project)),
        ("Run", f"`{report.run}`"),
        ("Dataset", _escape(report.dataset or UNKNOWN)),
        ("Dataset SHA-256", f"`{report.dataset_sha256}`"),
        ("Config SHA-256", f"`{report.config_sha256}`"),
        ("Evaluators", _escape(", ".join(f"{name} v{at}" for name, at in sorted(report.evaluator_versions.items())))),
        *([("Excluded traces", _escape(", ".join(report.excluded_traces)))] if report.excluded_traces else []),
        ("Finished", write_instant(report.finished_at)),
    ]
    parts += ["## Made from", _table(("", ""), "ll", facts)]
    return "\n\n".join(parts) + "\n"


def _moved(comparison: Comparison) -> list[str]:
    rows = [
        (
            _escape(metric.id),
            _CHANGES.get(write_change(metric), write_change(metric)),
            *write_difference(metric),
            write_number(metric.baseline_mean, metric.unit),
            write_number(metric.candidate_mean, metric.unit),
            f"{metric.n:,}",
            f"{metric.regressions_count:,}",
            f"{metric.fixes_count:,}",
        )
        for metric in comparison.metrics
    ]
    columns = ("Metric", "Change", "Difference", "95 % interval", "Before", "Now", "Pairs", "Regressions", "Fixes")
    parts = ["## What moved", _escape(write_baseline(comparison)), _table(columns, "llrrrrrrr", rows)]
    for metric in comparison.metrics:
        changes = [
            (_escape(one.record), write_number(one.baseline, metric.unit), write_number(one.candidate, metric.unit))
            for one in metric.regressions[:SHOWN_REGRESSIONS]
        ]
        if changes:
            parts += [f"### Regressions of {_escape(metric.id)}", _table(("Record", "Before", "Now"), "lrr", changes)]
    return parts + [f"{_escape(one.id)} is left out: {_escape(one.reason)}." for one in comparison.not_compared]


def _worst(report: Report) -> list[str]:
    parts = ["## Worst records"]
    if report.excerpts_missing:
        parts.append(_escape(write_missing(report.excerpts_missing)))
    for evaluator, group in groupby(report.worst, key=lambda result: result.evaluator):
        results, unit = list(group), find_unit(report, evaluator)
        parts.append(f"### {_escape(evaluator)}")
        if any(result.excerpts for result in results):
            # Three texts beside each other make a table that nobody can read.
            parts.append("\n".join(_quote(result, unit) for result in results))
            continue
        rows = [
            (
                _escape(result.record),
                write_outcome(result),
                write_number(result.score, unit),
                _escape(result.error or UNKNOWN),
            )
            for result in results
        ]
        parts.append(_table(("Record", "Outcome", "Score", "Why"), "llrl", rows))
    return parts


def _quote(result: WorstResult, unit: str | None) -> str:
    """Write a worst result as an item of a list, and below it what its record says."""
    facts = [f"**{_escape(result.record)}**"]
    # That a record was scored its score says.
    if result.score is None or result.passed is not None:
        facts.append(write_outcome(result))
    if result.score is not None:
        facts.append(f"score {write_number(result.score, unit)}")
    if result.trial > 1:
        facts.append(f"trial {result.trial}")
    lines = [f"- {', '.join(facts)}"]
    if result.error:
        lines.append(f"  - Why: {_escape(result.error)}")
    lines += [
        f"  - {word}: {_escape(excerpt.text)}{' …' if excerpt.is_cut else ''}"
        for word, excerpt in list_texts(result.excerpts)
    ]
    return "\n".join(lines)


def _table(columns: Sequence[str], alignment: str, rows: Sequence[Sequence[str]]) -> str:
    rule = {"l": "---", "r": "---:"}
    lines = [columns, [rule[side] for side in alignment], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escape(text: str) -> str:
    """Escape all that Markdown or HTML in it could read; a line break becomes a space."""
    return _SPECIAL.sub(r"\\\g<0>", _BREAKS.sub(" ", text))
