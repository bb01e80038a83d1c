"""Length: how long the output is.

Characters are Unicode code points, words are what white space separates. An output that is not a text is measured in
its canonical JSON text (RFC 8785).
"""

from typing import Literal

from pydantic import Field

from records.evaluators.bounds import BoundsParams
from records.evaluators.contract import NO_OUTPUT, Evaluator, Judge, Score
from records.evaluators.texts import read_text
from records.record import Record


class LengthParams(BoundsParams):
    """Parameters of length."""

    unit: Literal["characters", "words"] = Field(default="characters", description="What is counted.")


def build_judge(params: LengthParams) -> Judge:
    """Build the judge."""
    counts_words = params.unit == "words"

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        text = read_text(record.output)
        return params.score(len(text.split()) if counts_words else len(text))

    return judge


EVALUATOR = Evaluator(
    name="length",
    version=1,
    kind="number",
    description="How long the output is.",
    score_meaning="Characters (Unicode code points) or words of the output, 0 or more. With min or max, a record "
    "passes within them. Skipped without an output.",
    params=LengthParams,
    build=build_judge,
    minimum=0.0,
    better=None,
)
