"""tool_call_accuracy and trajectory_match: which calls count, how they are matched, what references may look like."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue, tool_calls
from records.evaluators.contract import Score
from records.evaluators.tool_calls import ToolCall, ToolCallParams, count_matches, count_matches_in_order
from records.record import Record

SEARCH = {"name": "search", "arguments": {"q": "cats", "limit": 3}}
OPEN = {"name": "open", "arguments": {"id": 1}}


def steps(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"steps": [{"type": "tool", "name": call["name"], "input": call.get("arguments")} for call in calls]}


def judge(name: str, reference: Any, *, made: Any = None, output: Any = "done", **params: Any) -> Score:
    record = Record(id="r", output=output, reference=reference, trajectory=made)
    return catalogue.build(name, params)(record)


@pytest.mark.parametrize(
    ("reference", "made", "params", "score"),
    [
        ([SEARCH, OPEN], [SEARCH, OPEN], {}, 1.0),
        ([SEARCH, OPEN], [OPEN, SEARCH], {}, 1.0),
        ([SEARCH, OPEN], [OPEN, SEARCH], {"order": "same"}, 0.5),
        ([SEARCH, OPEN], [SEARCH], {}, 0.5),
        ([SEARCH], [SEARCH, OPEN], {}, 0.5),
        ([SEARCH], [SEARCH, SEARCH, SEARCH], {}, pytest.approx(1 / 3)),
        ([SEARCH], [{"name": "search", "arguments": {"q": "dogs", "limit": 3}}], {}, 0.0),
        ([SEARCH], [{"name": "search", "arguments": {"q": "dogs"}}], {"arguments": "ignore"}, 1.0),
        ([{"name": "search", "arguments": {"q": "cats"}}], [SEARCH], {}, 0.0),
        ([{"name": "search", "arguments": {"q": "cats"}}], [SEARCH], {"arguments": "subset"}, 1.0),
        ([SEARCH], [{"name": "search", "arguments": {"q": "cats"}}], {"arguments": "subset"}, 0.0),
        ([{"name": "search"}], [SEARCH], {}, 1.0),
        (["search", "open"], [SEARCH, OPEN], {}, 1.0),
        ([], [], {}, 1.0),
        ([], [SEARCH], {}, 0.0),
        ([SEARCH], [], {}, 0.0),
        ({"tool_calls": [SEARCH]}, [SEARCH], {}, 1.0),
        ([{"tool_calls": [OPEN]}, {"tool_calls": [SEARCH]}], [SEARCH], {}, 1.0),
        ([[OPEN, SEARCH], [SEARCH]], [SEARCH], {}, 1.0),
        ([{"type": "function", "function": {"name": "open", "arguments": '{"id": 1.0}'}}], [OPEN], {}, 1.0),
    ],
)
def test_tool_call_accuracy(reference: Any, made: list[Any], params: dict[str, Any], score: Any) -> None:
    result = judge("tool_call_accuracy", reference, made=steps(*made), **params)
    assert (result.status, result.score) == ("scored", score)


@pytest.mark.parametrize(
    ("made", "strict", "unordered", "superset", "subset"),
    [
        (["a", "b"], 1, 1, 1, 1),
        (["b", "a"], 0, 1, 1, 1),
        (["a", "b", "c"], 0, 0, 1, 0),
        (["a"], 0, 0, 0, 1),
        ([], 0, 0, 0, 1),
        (["a", "a"], 0, 0, 0, 0),
        (["c"], 0, 0, 0, 0),
    ],
)
def test_trajectory_match_in_each_mode(
    made: list[str], strict: int, unordered: int, superset: int, subset: int
) -> None:
    expected = {"strict": strict, "unordered": unordered, "superset": superset, "subset": subset}
    for mode, score in expected.items():
        calls = steps(*({"name": name, "arguments": {"any": 1}} for name in made))
        assert judge("trajectory_match", ["a", "b"], made=calls, mode=mode).score == score, mode


def test_trajectory_match_compares_arguments_when_asked_to() -> None:
    other = steps({"name": "open", "arguments": {"id": 2}})
    assert judge("trajectory_match", [OPEN], made=other).passed is True
    assert judge("trajectory_match", [OPEN], made=other, arguments="exact").passed is False


def test_only_tool_steps_count() -> None:
    made = {
        "steps": [{"type": "llm", "name": "open"}, {"type": "TOOL_CALL", "name": "search", "input": '{"q": 1}'}, {}]
    }
    assert judge("tool_call_accuracy", [{"name": "search", "arguments": {"q": 1}}], made=made).score == 1.0


def test_calls_are_read_from_messages_where_there_is_no_trajectory() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "open", "arguments": '{"id": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    for output in (message, [{"role": "user", "content": "x"}, message]):
        assert judge("tool_call_accuracy", [OPEN], output=output).score == 1.0
    assert judge("tool_call_accuracy", [OPEN], output={"role": "assistant", "content": "no"}).score == 0.0


@pytest.mark.parametrize("name", ["tool_call_accuracy", "trajectory_match"])
def test_records_that_cannot_be_judged_are_skipped(name: str) -> None:
    assert judge(name, None, made=steps(OPEN)).status == "skipped"
    for output in (None, "text", 1, ["text"], {"answer": 1}):
        assert judge(name, [OPEN], output=output).status == "skipped"


@pytest.mark.parametrize(
    ("reference", "made", "words"),
    [
        ("open", steps(OPEN), "holds no tool calls"),
        ({"calls": []}, steps(OPEN), "holds no tool calls"),
        ([{"tool": "open"}], steps(OPEN), "has no name"),
        ([1], steps(OPEN), "has no name"),
        ([OPEN], {"steps": [{"type": "tool"}]}, "has no name"),
        (["a"] * 501, steps(), "too many"),
    ],
)
def test_what_is_no_tool_call_is_an_error_that_quotes_nothing(reference: Any, made: Any, words: str) -> None:
    for name in ("tool_call_accuracy", "trajectory_match"):
        score = judge(name, reference, made=made)
        assert score.status == "error"
        assert words in (score.message or "")


def test_tool_calls_of_a_message_that_are_no_list_are_an_error() -> None:
    assert judge("tool_call_accuracy", [OPEN], output={"role": "assistant", "tool_calls": {}}).score == 0.0
    assert judge("tool_call_accuracy", [OPEN], output={"role": "assistant", "tool_calls": "x"}).status == "error"


CALLS = st.lists(
    st.builds(ToolCall, st.sampled_from("ab"), st.sampled_from([None, {"x": 1}, {"x": 1, "y": 2}, {"y": 2}])),
    max_size=5,
)


@given(CALLS, CALLS)
def test_no_pairing_matches_more_calls(made: list[ToolCall], expected: list[ToolCall]) -> None:
    """Against all pairings there are, tried one by one."""
    matches = ToolCallParams(arguments="subset").matches
    small, large = sorted((range(len(made)), range(len(expected))), key=len)
    is_made_smaller = len(made) <= len(expected)
    best = 0
    for places in itertools.permutations(large, len(small)):
        pairs = zip(small, places, strict=True)
        best = max(
            best,
            sum(matches(made[i], expected[j]) if is_made_smaller else matches(made[j], expected[i]) for i, j in pairs),
        )
    assert count_matches(made, expected, matches) == best
    assert count_matches_in_order(made, expected, matches) <= best


def test_many_calls_are_matched_without_deep_recursion() -> None:
    """Each call fits two places, so that the last one moves all others."""
    limit = tool_calls.MAX_CALLS
    made = [ToolCall("t", at) for at in range(limit)]
    count = count_matches(made, made, lambda call, wanted: wanted.arguments in (call.arguments, call.arguments + 1))
    assert count == limit
