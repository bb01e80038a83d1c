"""The tool calls that a record made, those that were expected, and which of them match."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import orjson
from pydantic import Field

from records.evaluators.contract import EvaluatorParams, UnscorableError
from records.evaluators.json_values import json_equal
from records.record import Record

MAX_CALLS = 500
"""Calls of one record that are matched with each other; the work grows with the cube."""

_TOOL_STEPS = frozenset({"tool", "tool_call", "execute_tool", "function_call"})


class ToolCall(NamedTuple):
    """A call of a tool.

    Parameters
    ----------
    name
        Of the tool.
    arguments
        A JSON value; ``None`` when the call has none, or, of an expected call, when any will do.
    """

    name: str
    arguments: Any = None


class ToolCallParams(EvaluatorParams):
    """What evaluators of tool calls compare beside the names of the tools."""

    arguments: Literal["exact", "subset", "ignore"] = Field(
        default="exact",
        description="exact: arguments are the same JSON value; subset: the expected ones are among those of the call; "
        "ignore: only names count. An expected call without arguments takes any.",
    )

    def matches(self, made: ToolCall, expected: ToolCall) -> bool:
        """Whether a call is the expected one."""
        if made.name != expected.name:
            return False
        if self.arguments == "ignore" or expected.arguments is None:
            return True
        if self.arguments == "subset" and isinstance(made.arguments, dict) and isinstance(expected.arguments, dict):
            had = cast("dict[str, Any]", made.arguments)
            wanted = cast("dict[str, Any]", expected.arguments)
            return all(name in had and json_equal(had[name], value) for name, value in wanted.items())
        return json_equal(made.arguments, expected.arguments)


def read_made_calls(record: Record) -> list[ToolCall] | None:
    """Return the calls a record made in their order, ``None`` when it does not say.

    They are the tool steps of its trajectory; without a trajectory the ``tool_calls`` of its output, where that is a
    message or a list of messages.

    Raises
    ------
    UnscorableError
        A call has no name, or there are more than `MAX_CALLS`.
    """
    if record.trajectory is not None:
        steps = cast("list[dict[str, Any]]", record.trajectory.get("steps") or [])
        return _limit([
            _read_call({"name": step.get("name"), "arguments": step.get("input")})
            for step in steps
            if str(step.get("type") or "").lower() in _TOOL_STEPS
        ])  # fmt: skip
    messages: Any = record.output if isinstance(record.output, list) else [record.output]
    found: list[ToolCall] = []
    for message in cast("list[Any]", messages):
        if not isinstance(message, dict) or not ({"role", "tool_calls"} & message.keys()):
            return None
        calls: Any = cast("dict[str, Any]", message).get("tool_calls") or []
        if not isinstance(calls, list):
            raise UnscorableError("tool_calls is not a list")
        found += [_read_call(call) for call in cast("list[Any]", calls)]
    return _limit(found)


def read_expected_calls(reference: Any) -> list[list[ToolCall]]:
    """Return the sequences of calls of which any one will do; empty when the record has no reference.

    A reference is a list of calls, or an object with ``tool_calls``; a list of these is a choice. A call is an object
    with ``name`` and ``arguments``, one as OpenAI writes it (``function``), or the name of a tool alone.

    Raises
    ------
    UnscorableError
        It is none of these, or there are more calls than `MAX_CALLS`.
    """
    if reference is None:
        return []
    if isinstance(reference, list):
        items = cast("list[Any]", reference)
        if items and all(isinstance(item, list) or (isinstance(item, dict) and "tool_calls" in item) for item in items):
            return [_read_sequence(item) for item in items]
    return [_read_sequence(reference)]


def _read_sequence(value: Any) -> list[ToolCall]:
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("tool_calls")
    if not isinstance(value, list):
        raise UnscorableError("the reference holds no tool calls: a list of calls, or an object with tool_calls")
    return _limit([_read_call(call) for call in cast("list[Any]", value)])


def _read_call(value: Any) -> ToolCall:
    if isinstance(value, str):
        return ToolCall(value)
    if isinstance(value, dict):
        call = cast("dict[str, Any]", value)
        inner: Any = call.get("function", call)
        if isinstance(inner, dict):
            named = cast("dict[str, Any]", inner)
            if isinstance(named.get("name"), str):
                return ToolCall(named["name"], _read_arguments(named.get("arguments", named.get("args"))))
    raise UnscorableError("a tool call has no name")


def _read_arguments(value: Any) -> Any:
    """Models write arguments as JSON text; a text that is no JSON is compared as it is."""
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _limit(calls: list[ToolCall]) -> list[ToolCall]:
    if len(calls) > MAX_CALLS:
        raise UnscorableError(f"{len(calls)} tool calls are too many to match; at most {MAX_CALLS} are taken")
    return calls


type Matches = Callable[[ToolCall, ToolCall], bool]


def count_matches_in_order(made: Sequence[ToolCall], expected: Sequence[ToolCall], matches: Matches) -> int:
    """Count the most calls that can be matched without crossing: a longest common subsequence."""
    row = [0] * (len(expected) + 1)
    for call in made:
        before = 0
        for at, wanted in enumerate(expected, 1):
            above = row[at]
            row[at] = before + 1 if matches(call, wanted) else max(above, row[at - 1])
            before = above
    return row[-1]


def count_matches(made: Sequence[ToolCall], expected: Sequence[ToolCall], matches: Matches) -> int:
    """Count the most calls that can be matched one to one in any order: a maximum bipartite matching."""
    choices = [[at for at, wanted in enumerate(expected) if matches(call, wanted)] for call in made]
    taken_by: dict[int, int] = {}
    place_of: dict[int, int] = {}

    def place(call: int) -> bool:
        """Find the call a place, if need be along an augmenting path on which others move."""
        came_from: dict[int, int] = {}
        pending = [call]
        for current in pending:
            for at in choices[current]:
                if at in came_from:
                    continue
                came_from[at] = current
                if at not in taken_by:
                    move(came_from, at)
                    return True
                pending.append(taken_by[at])
        return False

    def move(came_from: dict[int, int], free: int) -> None:
        at: int | None = free
        while at is not None:
            mover = came_from[at]
            left = place_of.get(mover)
            taken_by[at], place_of[mover] = mover, at
            at = left

    return sum(place(call) for call in range(len(made)))
