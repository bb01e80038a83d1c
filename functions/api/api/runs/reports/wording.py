"""How reports of every form write numbers, conditions and the verdict."""

from datetime import datetime
from typing import Any, Literal

import orjson

from api.runs.models import (
    ComparedMetric,
    Comparison,
    Excerpt,
    Excerpts,
    GateOutcome,
    Latency,
    Metric,
    MissingExcerpts,
    Report,
    WorstResult,
)

UNKNOWN = "\u2013"
SHOWN_REGRESSIONS = 5
"""How many of a metric's regressions a report names; the comparison lists more."""
_NAMED_FAILURES = 3
_STATS = {"mean": "mean", "ci_low": "lower bound", "ci_high": "upper bound"}


def write_number(number: float | None, unit: str | None = None) -> str:
    """Write a number with four significant digits and its unit; a dash when it is not known. Zero is 0."""
    if number is None:
        return UNKNOWN
    if unit is not None:
        # They stay on one line.
        return f"{write_number(number)}\N{NO-BREAK SPACE}{unit}"
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    if 10_000 <= abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def write_interval(metric: Metric | ComparedMetric) -> str:
    """Write a confidence interval with its unit; a dash when there is none."""
    if metric.ci_low is None or metric.ci_high is None:
        return UNKNOWN
    return f"{write_number(metric.ci_low)} to {write_number(metric.ci_high, metric.unit)}"


def write_difference(metric: ComparedMetric) -> tuple[str, str]:
    """Write a difference with its sign, and its interval: `+0.1` and `0.02 to 0.18`; dashes for what is not known."""
    sign = "+" if metric.difference is not None and metric.difference > 0 else ""
    return f"{sign}{write_number(metric.difference, metric.unit)}", write_interval(metric)


def write_change(metric: ComparedMetric) -> Literal["better", "worse", "higher", "lower", "no clear change", "no pair"]:
    """Name a difference in a word; only one whose interval leaves out zero is called a change."""
    if metric.difference is None:
        return "no pair"
    if metric.ci_low is None or metric.ci_high is None or metric.ci_low <= 0 <= metric.ci_high:
        return "no clear change"
    is_up = metric.ci_low > 0
    if metric.better is None:
        return "higher" if is_up else "lower"
    return "better" if is_up == (metric.better == "higher") else "worse"


def write_baseline(comparison: Comparison) -> str:
    """Say what a run is compared with, and how far the two can be compared."""
    baseline = comparison.baseline
    text = f"Since {baseline.name}, run {baseline.id}; records that both scored are paired by their ids."
    return text if comparison.same_dataset else f"{text} The runs evaluated different data."


def write_share(share: float | None) -> str:
    """Write a share as a percentage. What is not quite all never reads 100 %, what is not quite nothing never 0 %."""
    if share is None:
        return UNKNOWN
    text = f"{share * 100:.1f}"
    if text == "100.0":
        text = "100" if share == 1 else "99.9"
    elif text == "0.0":
        text = "0" if share == 0 else "<0.1"
    return f"{text} %"


def write_cost(cost_usd: float | None) -> str:
    """Write an amount of US dollars."""
    return UNKNOWN if cost_usd is None else f"${cost_usd:,.2f}" if cost_usd >= 1 else f"${cost_usd:.4g}"


def write_latency(latency: Latency) -> str:
    """Write how long a target took: its median and its 95th percentile."""
    return f"{latency.p50:,.0f} ms (p95 {latency.p95:,.0f} ms)"


def find_unit(report: Report, metric: str) -> str | None:
    """Return the unit of a metric of a report."""
    return next((one.unit for one in report.metrics if one.id == metric), None)


def write_condition(gate: GateOutcome, unit: str | None = None) -> str:
    """Write what a gate asks for: `mean ≥ 0.8`."""
    stat = _STATS.get(gate.stat, gate.stat)
    if gate.min is not None and gate.max is not None:
        return f"{write_number(gate.min)} ≤ {stat} ≤ {write_number(gate.max, unit)}"
    if gate.min is not None:
        return f"{stat} ≥ {write_number(gate.min, unit)}"
    return f"{stat} ≤ {write_number(gate.max, unit)}"


def write_verdict(report: Report) -> str:
    """Say in one sentence whether the run passed, and by what."""
    if not report.gates:
        return "No gate was set, so nothing could fail."
    failed = [gate for gate in report.gates if not gate.passed]
    total = len(report.gates)
    if not failed:
        return "Its gate passed." if total == 1 else f"All {total} gates passed."
    what = "The gate" if total == 1 else f"{len(failed)} of {total} gates"
    named = [
        f"{gate.metric} ({gate.reason or write_condition(gate, find_unit(report, gate.metric))})"
        for gate in failed[:_NAMED_FAILURES]
    ]
    if len(failed) > _NAMED_FAILURES:
        named.append(f"and {len(failed) - _NAMED_FAILURES} more")
    return f"{what} failed: {', '.join(named)}."


def write_value(value: Any) -> str:
    """Write the value of a metadata key: a text as it is, everything else as JSON has it."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def write_outcome(result: WorstResult) -> str:
    """Name what became of a result in one word."""
    if result.status != "scored":
        return result.status
    return {True: "passed", False: "failed", None: "scored"}[result.passed]


def list_texts(excerpts: Excerpts | None) -> list[tuple[str, Excerpt]]:
    """Return what there is of a record's input, output and reference, with the word for each."""
    if excerpts is None:
        return []
    texts = (("Input", excerpts.input), ("Output", excerpts.output), ("Reference", excerpts.reference))
    return [(word, excerpt) for word, excerpt in texts if excerpt is not None]


def write_missing(missing: MissingExcerpts) -> str:
    """Say why worst records come without their texts."""
    return f"{missing.results:,} {'record is' if missing.results == 1 else 'records are'} not quoted: {missing.detail}"


def write_duration(report: Report) -> str:
    """Write how long a run took from its start to its end."""
    if report.started_at is None or report.finished_at is None:
        return UNKNOWN
    seconds = (datetime.fromisoformat(report.finished_at) - datetime.fromisoformat(report.started_at)).total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def write_instant(instant: str | None) -> str:
    """Write a time to the second: `2026-01-31 12:00:00 UTC`."""
    if instant is None:
        return UNKNOWN
    return f"{datetime.fromisoformat(instant):%Y-%m-%d %H:%M:%S} UTC"
