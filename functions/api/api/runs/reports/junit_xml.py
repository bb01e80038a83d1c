"""A report as JUnit XML, which CI systems show as test results: a suite a metric, a case a gate."""

import re
from xml.sax.saxutils import escape, quoteattr

from api.runs.models import GateOutcome, Metric, Report
from api.runs.reports.wording import (
    UNKNOWN,
    write_condition,
    write_cost,
    write_interval,
    write_number,
    write_share,
    write_value,
)

# XML 1.0, 2.2: characters that no document may hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: Report) -> str:
    """Write the report. A metric without gates is a suite of one case that passes, and says what the metric is."""
    suites = [_suite(report, metric) for metric in report.metrics]
    tests = sum(count for _, count, _ in suites)
    failures = sum(count for _, _, count in suites)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites{_attributes(name=report.name or report.run, tests=tests, failures=failures, errors=0)}>",
        *(text for text, _, _ in suites),
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _suite(report: Report, metric: Metric) -> tuple[str, int, int]:
    """Return the suite, its number of cases and of failures."""
    gates = [gate for gate in report.gates if gate.metric == metric.id]
    failures = sum(not gate.passed for gate in gates)
    properties = {
        "run": report.run,
        "evaluator": metric.evaluator,
        "mean": write_number(metric.mean, metric.unit),
        "95 % interval": write_interval(metric),
        "n": metric.n,
        "skipped": metric.skipped,
        "errors": metric.errors,
        "coverage": write_share(metric.coverage),
        "dataset": report.dataset or UNKNOWN,
        "dataset_sha256": report.dataset_sha256,
        "config_sha256": report.config_sha256,
        "evaluator_version": report.evaluator_versions.get(metric.evaluator, UNKNOWN),
        "input_tokens": write_number(report.usage.input_tokens),
        "output_tokens": write_number(report.usage.output_tokens),
        "cost": write_cost(report.usage.cost_usd),
    }
    properties |= {f"redacted {kind}": count for kind, count in sorted(report.redactions.items())}
    properties |= {
        f"mean where {part.key} is {write_value(part.value)}": f"{write_number(mine.mean, mine.unit)} (n {mine.n})"
        for part in report.slices
        for mine in part.metrics
        if mine.id == metric.id
    }
    cases = [_case(metric, gate) for gate in gates]
    if not cases:
        name = f"mean {write_number(metric.mean, metric.unit)} (no gate)"
        cases.append(f"    <testcase{_attributes(classname=metric.id, name=name)}/>")
    head = _attributes(
        name=metric.id, tests=len(cases), failures=failures, errors=0, skipped=0, timestamp=report.finished_at
    )
    lines = [
        f"  <testsuite{head}>",
        "    <properties>",
        *(f"      <property{_attributes(name=name, value=value)}/>" for name, value in properties.items()),
        "    </properties>",
        *cases,
        "  </testsuite>",
    ]
    return "\n".join(lines), len(cases), failures


def _case(metric: Metric, gate: GateOutcome) -> str:
    head = f"    <testcase{_attributes(classname=metric.id, name=write_condition(gate, metric.unit))}"
    if gate.passed:
        return f"{head}/>"
    reason = gate.reason or "the gate failed"
    detail = (
        f"{write_condition(gate, metric.unit)}: {reason}\n"
        f"mean {write_number(metric.mean, metric.unit)}, 95 % interval {write_interval(metric)}, n {metric.n}, "
        f"skipped {metric.skipped}, errors {metric.errors}"
    )
    failure = f"<failure{_attributes(message=reason, type='gate')}>{_text(detail)}</failure>"
    return f"{head}>\n      {failure}\n    </testcase>"


def _attributes(**values: str | float | None) -> str:
    written = {name: _FORBIDDEN.sub("\ufffd", str(value)) for name, value in values.items() if value is not None}
    return "".join(f" {name}={quoteattr(value)}" for name, value in written.items())


def _text(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))
