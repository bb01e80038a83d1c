"""Whatever comes back from outside makes an output, a score or a failure in words, and nothing else."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from coordination.ports.remote_calls import CallFailedError
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators.json_values import find_flaw
from records.evaluators.llm_judge import LlmJudgeParams
from records.record import Record
from run_evaluation.llm_judge import read_verdict, write_material
from run_evaluation.targets import read_answer, to_messages

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PARAMS = LlmJudgeParams(provider="bedrock", model="m", rubric="r")
USAGE_NAMES = st.sampled_from(["input_tokens", "output_tokens", "cost_usd", "latency_ms", "other"])


def write_loosely(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:
        return b"1e999"


def attempt[Result](make: Callable[[], Result]) -> tuple[Result | None, CallFailedError | None]:
    try:
        return make(), None
    except CallFailedError as failure:
        return None, failure


@given(st.binary(max_size=40) | JSON_VALUES.map(write_loosely))
def test_any_bytes_are_an_output_or_a_failure(body: bytes) -> None:
    produced, failure = attempt(lambda: read_answer(body))
    if produced is None:
        assert failure is not None
        assert not failure.may_pass
        return
    assert find_flaw(produced.output) is None
    assert orjson.loads(orjson.dumps(produced.output)) == produced.output


@given(st.dictionaries(USAGE_NAMES, JSON_VALUES, max_size=5))
def test_usage_holds_only_what_can_be_summed(usage: Any) -> None:
    body = write_loosely({"output": 1, "usage": usage})
    if body == b"1e999":
        return
    read = read_answer(body).usage
    assert set(read) <= {"input_tokens", "output_tokens", "cost_usd", "latency_ms"}
    assert all(isinstance(number, int | float) and 0 <= number < 2**53 for number in read.values())
    assert all(isinstance(read.get(name, 0), int) for name in ("input_tokens", "output_tokens"))


@given(JSON_VALUES)
def test_verdict_is_a_score_from_0_to_1_or_asked_for_again(verdict: Any) -> None:
    score, failure = attempt(lambda: read_verdict(PARAMS, verdict))
    if score is None:
        assert failure is not None
        assert failure.may_pass
        return
    assert score.score is not None
    assert 0 <= score.score <= 1


@pytest.mark.parametrize("grade", [1, 2, 3, 4, 5])
def test_grade_is_its_place_between_the_lowest_and_the_highest(grade: int) -> None:
    assert read_verdict(PARAMS, {"reasoning": "r", "grade": grade}).score == (grade - 1) / 4


@given(st.text(), st.text(), JSON_VALUES)
def test_material_is_one_line_whatever_a_record_holds(text: str, other: str, metadata: Any) -> None:
    record = Record(id="r", input=text, output=other, metadata={"m": metadata})
    try:
        material = write_material(record, ["input", "output", "metadata"])
    except TypeError:
        # Half a surrogate pair or a number beyond 64 bits: a published row has neither.
        return
    assert not any(line_break in material for line_break in (b"\n", b"\r"))
    assert orjson.loads(material)["input"] == text


@given(JSON_VALUES)
def test_any_input_is_a_conversation_that_can_be_sent(value: Any) -> None:
    if find_flaw(value) is not None:
        return
    try:
        system, messages = to_messages(value)
    except (TypeError, ValueError, OverflowError):
        # A number that canonical JSON does not have: a published row has none.
        return
    assert messages
    assert all(isinstance(text, str) for text in system)
    assert {message["role"] for message in messages} <= {"user", "assistant"}
