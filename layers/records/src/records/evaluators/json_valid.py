"""JSON valid: whether the output is JSON.

A text passes when it parses as JSON (RFC 8259) as a whole; ``type`` also asks for an object or a list. An output that
is not a text is a JSON value already, and passes. Stricter than the RFC in two points: an escape for half a surrogate
pair fails, since no UTF-8 text can hold what it stands for, and so does a number beyond the range of a double.
"""

from typing import Literal

from pydantic import Field

from records.evaluators.contract import FAILED, NO_OUTPUT, Evaluator, Judge, Score, pass_or_fail
from records.evaluators.json_output import JsonOutputParams, NotJsonError
from records.record import Record

_TYPES: dict[str, type] = {"any": object, "object": dict, "array": list}


class JsonValidParams(JsonOutputParams):
    """Parameters of json_valid."""

    type: Literal["any", "object", "array"] = Field(
        default="any", description="What the JSON must be; any also takes texts, numbers, booleans and null."
    )


def build_judge(params: JsonValidParams) -> Judge:
    """Build the judge."""
    expected = _TYPES[params.type]

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        try:
            value = params.read_json(record.output)
        except NotJsonError:
            return FAILED
        return pass_or_fail(isinstance(value, expected))

    return judge


EVALUATOR = Evaluator(
    name="json_valid",
    version=1,
    kind="pass_fail",
    description="Whether the output is JSON.",
    score_meaning="1 when the output parses as JSON (of the type asked for), else 0. Skipped without an output.",
    params=JsonValidParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
