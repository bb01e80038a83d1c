"""Tool call accuracy: which share of the tool calls is right.

The calls that a record made are matched one to one with those that its reference expects: the score is the number of
matches over the larger of both numbers, so that a missing call costs as much as one too many. Both without a call: 1.
Which calls count, and what a reference may look like: ``records.evaluators.tool_calls``.
"""

from typing import Literal

from pydantic import Field

from records.evaluators.contract import NO_REFERENCE, Evaluator, Judge, Score, scored, skipped
from records.evaluators.tool_calls import (
    ToolCallParams,
    count_matches,
    count_matches_in_order,
    read_expected_calls,
    read_made_calls,
)
from records.record import Record

NO_CALLS = skipped("the record has no trajectory, and its output is no message that could hold tool calls")


class ToolCallAccuracyParams(ToolCallParams):
    """Parameters of tool_call_accuracy."""

    order: Literal["any", "same"] = Field(
        default="any", description="Whether calls must come in the expected order; those out of order do not match."
    )
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Share from which a record passes; unset: nothing passes or fails."
    )


def build_judge(params: ToolCallAccuracyParams) -> Judge:
    """Build the judge."""
    count = count_matches if params.order == "any" else count_matches_in_order

    def judge(record: Record) -> Score:
        expected = read_expected_calls(record.reference)
        if not expected:
            return NO_REFERENCE
        made = read_made_calls(record)
        if made is None:
            return NO_CALLS
        shares = [
            count(made, calls, params.matches) / max(len(made), len(calls)) if made or calls else 1.0
            for calls in expected
        ]
        return scored(max(shares), at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="tool_call_accuracy",
    version=1,
    kind="number",
    description="Which share of the tool calls is right: the expected tools and arguments, none too many.",
    score_meaning="0 (no call is right) to 1 (all expected calls and no other); the best of a choice of references. "
    "With threshold, a record passes from that share on. Skipped without a reference, or without a trajectory or a "
    "message that could hold calls.",
    params=ToolCallAccuracyParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
