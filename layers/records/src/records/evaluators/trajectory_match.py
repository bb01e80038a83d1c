"""Trajectory match: whether an agent called the expected tools.

The modes are those under which LangChain's ``agentevals`` compares trajectories: ``strict``, the same calls in the same
order; ``unordered``, the same calls in any order; ``superset``, at least the expected calls; ``subset``, none but the
expected calls. Calls are matched one to one. Which calls count, and what a reference may look like:
``records.evaluators.tool_calls``.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from records.evaluators.contract import NO_REFERENCE, Evaluator, Judge, Score, pass_or_fail
from records.evaluators.tool_call_accuracy import NO_CALLS
from records.evaluators.tool_calls import ToolCall, ToolCallParams, count_matches, read_expected_calls, read_made_calls
from records.record import Record


class TrajectoryMatchParams(ToolCallParams):
    """Parameters of trajectory_match."""

    mode: Literal["strict", "unordered", "superset", "subset"] = Field(
        default="strict",
        description="strict: the expected calls in their order; unordered: in any order; superset: at least these; "
        "subset: none but these.",
    )
    arguments: Literal["exact", "subset", "ignore"] = Field(
        default="ignore",
        description="ignore: only names count; exact: arguments are the same JSON value; subset: the expected ones are "
        "among those of the call. An expected call without arguments takes any.",
    )

    def accepts(self, made: Sequence[ToolCall], expected: Sequence[ToolCall]) -> bool:
        """Whether the calls are the expected ones."""
        match self.mode:
            case "strict":
                return len(made) == len(expected) and all(map(self.matches, made, expected))
            case "unordered":
                return len(made) == len(expected) == count_matches(made, expected, self.matches)
            case "superset":
                return len(expected) == count_matches(made, expected, self.matches)
            case "subset":
                return len(made) == count_matches(made, expected, self.matches)


def build_judge(params: TrajectoryMatchParams) -> Judge:
    """Build the judge."""

    def judge(record: Record) -> Score:
        expected = read_expected_calls(record.reference)
        if not expected:
            return NO_REFERENCE
        made = read_made_calls(record)
        if made is None:
            return NO_CALLS
        return pass_or_fail(any(params.accepts(made, calls) for calls in expected))

    return judge


EVALUATOR = Evaluator(
    name="trajectory_match",
    version=1,
    kind="pass_fail",
    description="Whether the tools an agent called are the expected ones: in order, in any order, at least or at most.",
    score_meaning="1 when the calls match a reference in the mode asked for, else 0. Skipped without a reference, or "
    "without a trajectory or a message that could hold calls.",
    params=TrajectoryMatchParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
