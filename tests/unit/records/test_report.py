import json
from dataclasses import replace
from typing import Any

import pytest
from records.gates import Gate
from records.report import Distribution, MetricAggregate, RunFacts, Slice, build_report, describe_metric
from records.statistics import Moments

FACTS = RunFacts(
    run="0198f5a0-0000-7000-8000-000000000000",
    project="p1",
    name="nightly",
    dataset_sha256="ab" * 32,
    config_sha256="cd" * 32,
    records=2,
    created_at="2026-01-01T00:00:00Z",
    input_tokens=0,
    cost_usd=0.0,
    redactions={"email": 0},
)
METRIC_KEYS = [
    "id",
    "evaluator",
    "kind",
    "n",
    "mean",
    "std",
    "ci_low",
    "ci_high",
    "scored",
    "skipped",
    "errors",
    "coverage",
    "passed",
    "failed",
    "minimum",
    "maximum",
    "unit",
    "distribution",
]


def aggregate(scores: list[float], *, skipped: int = 0, errors: int = 0, **changes: Any) -> MetricAggregate:
    values: dict[str, Any] = {"id": "em", "evaluator": "exact_match", "version": 3, "kind": "pass_fail", **changes}
    return MetricAggregate(moments=Moments.of(scores), skipped=skipped, errors=errors, **values)


def test_a_metric_keeps_every_key_and_writes_zero_as_zero() -> None:
    described = describe_metric(aggregate([0.0, 0.0]))
    assert list(described) == METRIC_KEYS
    assert described == {
        "id": "em",
        "evaluator": "exact_match",
        "kind": "pass_fail",
        "n": 2,
        "mean": 0.0,
        "std": 0.0,
        "ci_low": 0.0,
        "ci_high": pytest.approx(0.6576197724933469),
        "scored": 2,
        "skipped": 0,
        "errors": 0,
        "coverage": 1.0,
        "passed": 0,
        "failed": 0,
        "minimum": None,
        "maximum": None,
        "unit": None,
        "distribution": None,
    }


def test_rows_that_are_all_in_error_have_no_mean() -> None:
    described = describe_metric(aggregate([], errors=4))
    assert [described[key] for key in ("n", "mean", "std", "ci_low", "ci_high")] == [0, None, None, None, None]
    assert (described["errors"], described["coverage"]) == (4, 0.0)


@pytest.mark.parametrize(
    ("kind", "passed", "failed", "shown"),
    [
        ("number", 0, 0, (None, None)),
        ("number", 0, 2, (0, 2)),
        ("number", 2, 0, (2, 0)),
        ("pass_fail", 0, 0, (0, 0)),
    ],
)
def test_what_neither_passes_nor_fails_has_no_count_of_either(
    kind: Any, passed: int, failed: int, shown: tuple[int | None, int | None]
) -> None:
    described = describe_metric(
        aggregate([0.5, 0.5] if kind == "number" else [0.0], kind=kind, passed=passed, failed=failed)
    )
    assert (described["passed"], described["failed"]) == shown


def test_a_distribution_is_shown_as_it_was_counted() -> None:
    described = describe_metric(
        aggregate([0.5], kind="number", distribution=Distribution(low=0, high=1, counts=(0, 1)))
    )
    assert described["distribution"] == {"low": 0, "high": 1, "counts": [0, 1]}


def test_coverage_counts_skipped_rows_and_errors() -> None:
    assert describe_metric(aggregate([1.0], errors=1, skipped=2))["coverage"] == 0.25


def test_a_metric_without_results_has_no_coverage() -> None:
    assert describe_metric(aggregate([]))["coverage"] is None


def test_an_interval_stays_inside_the_bounds_of_the_evaluator() -> None:
    described = describe_metric(aggregate([0.0, 1.0], kind="number", minimum=0.0, maximum=1.0))
    assert (described["ci_low"], described["ci_high"]) == (0.0, 1.0)


def test_report_of_a_run_whose_gate_fails() -> None:
    report = build_report(
        FACTS,
        [
            aggregate([1.0], errors=1),
            aggregate(
                [200.0, 300.0], id="latency", evaluator="latency", version=1, kind="number", minimum=0.0, unit="ms"
            ),
        ],
        [Gate(metric="em", stat="mean", min=0.9), Gate(metric="latency", stat="mean", max=250)],
        slices=[Slice(key="lang", value="de", records=1, aggregates=[aggregate([0.0])])],
        worst=[{"record": "r1", "score": 0.0}],
    )
    assert report["run"] == FACTS.run
    assert report["passed"] is False
    assert [list(metric) for metric in report["metrics"]] == [METRIC_KEYS, METRIC_KEYS]
    assert report["gates"] == [
        {
            "metric": "em",
            "stat": "mean",
            "min": 0.9,
            "max": None,
            "value": 1.0,
            "passed": False,
            "reason": "1 of the metric's rows ended in an error and could not be judged",
        },
        {
            "metric": "latency",
            "stat": "mean",
            "min": None,
            "max": 250.0,
            "value": 250.0,
            "passed": True,
            "reason": None,
        },
    ]
    assert report["usage"] == {"input_tokens": 0, "output_tokens": None, "cost_usd": 0.0, "latency_ms": None}
    assert report["redactions"] == {"email": 0}
    assert report["slices"][0]["metrics"][0]["mean"] == 0.0
    assert report["worst"] == [{"record": "r1", "score": 0.0}]
    assert (report["dataset_sha256"], report["config_sha256"]) == ("ab" * 32, "cd" * 32)
    assert report["evaluator_versions"] == {"exact_match": 3, "latency": 1}


def test_reason_of_a_failed_gate_says_the_unit() -> None:
    slow = aggregate([200.0, 300.0], id="latency", evaluator="latency", kind="number", minimum=0.0, unit="ms")
    gates = [Gate(metric="latency", stat="mean", max=200), Gate(metric="em", stat="mean", min=1.0)]
    report = build_report(FACTS, [slow, aggregate([0.0, 1.0])], gates)
    assert [gate["reason"] for gate in report["gates"]] == ["250 ms is more than 200 ms", "0.5 is less than 1"]


@pytest.mark.parametrize(
    ("summed", "told"),
    [(0.1 + 0.2, 0.3), (0.0, 0.0), (None, None), (1e-9 / 3, 3.33333333333e-10), (12345.67, 12345.67)],
)
def test_cost_is_told_without_the_noise_of_a_sum(summed: float | None, told: float | None) -> None:
    assert build_report(replace(FACTS, cost_usd=summed), [], [])["usage"]["cost_usd"] == told


def test_report_without_gates_has_passed_and_is_json() -> None:
    report = build_report(FACTS, [], [])
    assert report["passed"] is True
    assert report["finished_at"] is None
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_the_same_aggregates_make_the_same_bytes() -> None:
    first, second = (json.dumps(build_report(FACTS, [aggregate([0.1, 0.2], kind="number")], [])) for _ in range(2))
    assert first == second
