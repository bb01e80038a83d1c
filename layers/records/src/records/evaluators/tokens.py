"""Tokens: how many tokens the answer took.

``usage.input_tokens`` and ``usage.output_tokens`` as the record carries them: counted by the model's provider, not
here. The total is known only when both are.
"""

from typing import Literal

from pydantic import Field

from records.evaluators.bounds import BoundsParams, read_usage
from records.evaluators.contract import Evaluator, Judge, Score, skipped
from records.record import Record

_FIELDS = {
    "total": ("input_tokens", "output_tokens"),
    "input": ("input_tokens",),
    "output": ("output_tokens",),
}


class TokensParams(BoundsParams):
    """Parameters of tokens."""

    count: Literal["total", "input", "output"] = Field(
        default="total", description="Which tokens are counted; the total needs both counts."
    )


def build_judge(params: TokensParams) -> Judge:
    """Build the judge."""
    fields = _FIELDS[params.count]
    unknown = skipped(f"the record has no {' or no '.join(f'usage.{field}' for field in fields)}")

    def judge(record: Record) -> Score:
        total = 0.0
        for field in fields:
            count = read_usage(record.usage, field)
            if count is None:
                return unknown
            total += count
        return params.score(total)

    return judge


EVALUATOR = Evaluator(
    name="tokens",
    version=1,
    kind="number",
    description="How many tokens the answer took.",
    score_meaning="Tokens (input and output, or one of them: count), 0 or more. With min or max, a record passes "
    "within them. Skipped when a count is not known.",
    params=TokensParams,
    build=build_judge,
    minimum=0.0,
    unit="tokens",
    better="lower",
)
