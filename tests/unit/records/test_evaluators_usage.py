from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record


def judge(name: str, usage: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build(name, params)(Record(id="r", usage=usage))
    return score.status, score.score, score.passed


@pytest.mark.parametrize(
    ("name", "usage", "params", "expected"),
    [
        ("latency", {"latency_ms": 12.5}, {}, ("scored", 12.5, None)),
        ("latency", {"latency_ms": 0}, {}, ("scored", 0.0, None)),
        ("latency", {"latency_ms": 12.5}, {"max": 12.5}, ("scored", 12.5, True)),
        ("latency", {"latency_ms": 12.6}, {"max": 12.5}, ("scored", 12.6, False)),
        ("latency", {"latency_ms": 1}, {"min": 2, "max": 3}, ("scored", 1.0, False)),
        ("latency", {"latency_ms": -1}, {}, ("error", None, None)),
        ("latency", {"latency_ms": "12"}, {}, ("error", None, None)),
        ("latency", {"latency_ms": True}, {}, ("error", None, None)),
        ("latency", {"latency_ms": 1e300}, {}, ("error", None, None)),
        ("latency", {"latency_ms": None}, {}, ("skipped", None, None)),
        ("latency", {"cost_usd": 1}, {}, ("skipped", None, None)),
        ("latency", None, {"max": 1}, ("skipped", None, None)),
        ("cost", {"cost_usd": 0.0}, {"max": 0}, ("scored", 0.0, True)),
        ("cost", {"cost_usd": 0.02}, {"max": 0.01}, ("scored", 0.02, False)),
        ("cost", {"cost_usd": -0.02}, {}, ("error", None, None)),
        ("cost", {}, {}, ("skipped", None, None)),
        ("tokens", {"input_tokens": 10, "output_tokens": 5}, {}, ("scored", 15.0, None)),
        ("tokens", {"input_tokens": 10, "output_tokens": 5}, {"count": "input"}, ("scored", 10.0, None)),
        ("tokens", {"input_tokens": 10, "output_tokens": 0}, {"count": "output"}, ("scored", 0.0, None)),
        ("tokens", {"input_tokens": 10, "output_tokens": 5}, {"max": 14}, ("scored", 15.0, False)),
        ("tokens", {"input_tokens": 10}, {}, ("skipped", None, None)),
        ("tokens", {"input_tokens": 10}, {"count": "input"}, ("scored", 10.0, None)),
        ("tokens", {"input_tokens": 10, "output_tokens": -5}, {}, ("error", None, None)),
        ("tokens", None, {}, ("skipped", None, None)),
    ],
)
def test_usage_is_scored_as_the_record_carries_it(
    name: str, usage: Any, params: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    assert judge(name, usage, **params) == expected


@pytest.mark.parametrize(
    ("output", "params", "expected"),
    [
        ("héllo 😀", {}, ("scored", 7.0, None)),
        ("", {}, ("scored", 0.0, None)),
        (" one  two\nthree ", {"unit": "words"}, ("scored", 3.0, None)),
        ({"b": 1.0, "a": 2}, {}, ("scored", 13.0, None)),
        ("abc", {"min": 3, "max": 3}, ("scored", 3.0, True)),
        ("abcd", {"max": 3}, ("scored", 4.0, False)),
        (None, {}, ("skipped", None, None)),
    ],
)
def test_length_counts_the_output(output: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    score = catalogue.build("length", params)(Record(id="r", output=output))
    assert (score.status, score.score, score.passed) == expected


@pytest.mark.parametrize("name", ["latency", "cost", "tokens", "length"])
@pytest.mark.parametrize(
    ("params", "pointer"),
    [
        ({"min": 2, "max": 1}, ""),
        ({"max": "1"}, "/max"),
        ({"min": float("nan")}, "/min"),
        ({"threshold": 1}, "/threshold"),
    ],
)
def test_bounds_that_cannot_decide_are_refused(name: str, params: dict[str, Any], pointer: str) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate(name, params)
    assert [problem.pointer for problem in refusal.value.problems] == [pointer]


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_total_is_the_sum(input_tokens: int, output_tokens: int) -> None:
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    assert judge("tokens", usage)[1] == input_tokens + output_tokens
