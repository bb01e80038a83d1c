from typing import Any

import pytest
from records.gates import Gate, InvalidGatesError, evaluate_gates, find_unknown_metrics, parse_gates
from records.report import MetricAggregate, describe_metric
from records.statistics import Moments

METRICS = ("exact_match", "judge")


def metric(scores: list[float], *, errors: int = 0, skipped: int = 0, kind: Any = "pass_fail") -> dict[str, Any]:
    return describe_metric(
        MetricAggregate(
            id="exact_match",
            evaluator="exact_match",
            version=1,
            kind=kind,
            moments=Moments.of(scores),
            skipped=skipped,
            errors=errors,
        )
    )


def gate(**bounds: Any) -> Gate:
    return Gate.model_validate({"metric": "exact_match", "stat": "mean", **bounds})


@pytest.mark.parametrize(
    ("value", "pointer", "words"),
    [
        ({"metric": "exact_match"}, "/gates", "list"),
        (["exact_match"], "/gates/0", "JSON object"),
        ([{"stat": "mean", "min": 0.9}], "/gates/0/metric", "required"),
        ([{"metric": "exact_match", "min": 0.9}], "/gates/0/stat", "required"),
        ([{"metric": "exact_match", "stat": "median", "min": 0.9}], "/gates/0/stat", "'mean'"),
        ([{"metric": "exact_match", "stat": "mean"}], "/gates/0", "min, max or both"),
        ([{"metric": "exact_match", "stat": "mean", "min": None, "max": None}], "/gates/0", "min, max or both"),
        ([{"metric": "exact_match", "stat": "mean", "min": 0.9, "max": 0.1}], "/gates/0", "larger than max"),
        ([{"metric": "exact_match", "stat": "mean", "min": "0.9"}], "/gates/0/min", "number"),
        ([{"metric": "exact_match", "stat": "mean", "min": True}], "/gates/0/min", "number"),
        ([{"metric": "exact_match", "stat": "mean", "min": float("nan")}], "/gates/0/min", "finite"),
        ([{"metric": "exact_match", "stat": "mean", "max": float("inf")}], "/gates/0/max", "finite"),
        ([{"metric": "exact_match", "stat": "mean", "minimum": 1}], "/gates/0/minimum", "no such parameter"),
        ([{"metric": "latency", "stat": "mean", "max": 9}], "/gates/0/metric", "exact_match, judge"),
    ],
)
def test_a_gate_that_cannot_decide_is_refused_with_its_place(value: object, pointer: str, words: str) -> None:
    with pytest.raises(InvalidGatesError) as refusal:
        parse_gates(value, METRICS, at="/gates")
    assert pointer in [problem.pointer for problem in refusal.value.problems]
    assert any(words in problem.message for problem in refusal.value.problems)


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(InvalidGatesError) as refusal:
        parse_gates(
            [
                {"metric": "exact_match", "stat": "mean", "min": 1, "max": 0},
                {"metric": "exact_match", "stat": "mean", "min": 1},
                {"metric": "nope", "stat": "mean", "min": 1},
            ],
            METRICS,
            at="/gates",
        )
    assert [problem.pointer for problem in refusal.value.problems] == ["/gates/0", "/gates/2/metric"]
    assert "/gates/2/metric" in str(refusal.value)


def test_too_many_gates_are_refused() -> None:
    with pytest.raises(InvalidGatesError, match="at most 100"):
        parse_gates([{"metric": "exact_match", "stat": "mean", "min": 0}] * 101, METRICS)


def test_gates_are_kept_in_their_order() -> None:
    gates = parse_gates(
        [
            {"metric": "judge", "stat": "ci_low", "min": 0, "max": None},
            {"metric": "exact_match", "stat": "ci_high", "min": 0.5, "max": 0.5},
        ],
        METRICS,
    )
    assert [(item.metric, item.stat, item.min, item.max) for item in gates] == [
        ("judge", "ci_low", 0.0, None),
        ("exact_match", "ci_high", 0.5, 0.5),
    ]
    assert parse_gates([], METRICS) == parse_gates(None, METRICS) == ()


def test_unknown_metrics_are_found_in_gates_that_are_parsed_already() -> None:
    problems = find_unknown_metrics([gate(min=0)], ["latency"], at="/gates")
    assert [problem.pointer for problem in problems] == ["/gates/0/metric"]
    assert not find_unknown_metrics([gate(min=0)], METRICS)


@pytest.mark.parametrize(
    ("bounds", "passed"),
    [
        ({"min": 0.75}, True),
        ({"min": 0.76}, False),
        ({"max": 0.75}, True),
        ({"max": 0.74}, False),
        ({"min": 0.75, "max": 0.75}, True),
        ({"min": 0.1, "max": 0.2}, False),
        ({"stat": "ci_low", "min": 0.30}, True),
        ({"stat": "ci_low", "min": 0.31}, False),
        ({"stat": "ci_high", "max": 0.96}, True),
        ({"stat": "ci_high", "max": 0.95}, False),
    ],
)
def test_bounds_are_inclusive(bounds: dict[str, Any], passed: bool) -> None:
    (outcome,) = evaluate_gates([gate(**bounds)], [metric([1, 1, 1, 0])])
    assert outcome.passed is passed
    assert (outcome.reason is None) is passed


def test_a_mean_of_zero_is_a_value() -> None:
    (low, high) = evaluate_gates([gate(min=0), gate(min=0.1)], [metric([0, 0])])
    assert (low.value, low.passed) == (0.0, True)
    assert (high.value, high.passed, high.reason) == (0.0, False, "0 is less than 0.1")


def test_a_metric_without_a_score_fails_its_gate() -> None:
    (outcome,) = evaluate_gates([gate(max=1)], [metric([], skipped=3)])
    assert (outcome.value, outcome.passed, outcome.reason) == (None, False, "no record was scored")


def test_an_interval_that_does_not_exist_fails_its_gate() -> None:
    (outcome,) = evaluate_gates([gate(stat="ci_low", min=0)], [metric([5.0], kind="number")])
    assert (outcome.value, outcome.passed) == (None, False)
    assert outcome.reason is not None
    assert "interval" in outcome.reason


def test_an_error_fails_the_gate_though_the_mean_is_perfect() -> None:
    described = metric([1.0], errors=1)
    (outcome,) = evaluate_gates([gate(min=0.9)], [described])
    assert (described["mean"], described["coverage"]) == (1.0, 0.5)
    assert (outcome.value, outcome.passed) == (1.0, False)
    assert outcome.reason is not None
    assert outcome.reason.startswith("1 of the metric's rows")


def test_skipped_rows_do_not_fail_the_gate() -> None:
    (outcome,) = evaluate_gates([gate(min=0.9)], [metric([1.0], skipped=1)])
    assert outcome.passed


def test_a_gate_on_a_metric_that_is_not_there_fails() -> None:
    (outcome,) = evaluate_gates([Gate(metric="other", stat="mean", min=0)], [metric([1.0])])
    assert (outcome.value, outcome.passed, outcome.reason) == (None, False, "the run has no such metric")
