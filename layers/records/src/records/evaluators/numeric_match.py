"""Numeric match: whether the number in the output is the reference's number, within a tolerance.

The rule is that of ``math.isclose`` with the reference's side for the relative part: they match when
``|output - reference| <= max(tolerance, relative_tolerance * |reference|)``. The difference is taken in decimal, as
people wrote the numbers: 1.1 is within 0.1 of 1.0.

A text is a number when it is one as a whole: digits with an optional sign, thousands commas, fraction and exponent.
``extract`` finds one inside longer text, as is usual for worked answers (Cobbe et al., GSM8K, 2021: the last number).
An output without a number fails: a system that does not answer must not do better than one that answers wrongly. A
reference without one is skipped.
"""

import re
from collections import deque
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Literal

from pydantic import Field

from records.evaluators.contract import (
    FAILED,
    NO_OUTPUT,
    NO_REFERENCE,
    Evaluator,
    EvaluatorParams,
    Judge,
    Score,
    pass_or_fail,
    skipped,
)
from records.evaluators.texts import list_references
from records.record import Record

# The groups of thousands are bounded and possessive: text made of nothing else must not cost quadratic time.
_NUMBER = r"(?:(?:[0-9]{1,3}(?:,[0-9]{3}){1,100}+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?"
# U+2212 is the minus sign of typeset text. A sign right after a letter or digit is a hyphen or a range: 3-5, F-16.
_NUMBER_INSIDE = re.compile(rf"(?:(?<![\w.])[-+\u2212])?{_NUMBER}")
_WHOLE_NUMBER = re.compile(rf"[-+\u2212]?{_NUMBER}")
MAX_DIGITS = 400
"""Longer runs of digits are no number: a double has at most 309 before its point."""

# Enough for the exact difference of any two doubles of like size; without traps, so that no number is an exception.
_CONTEXT = Context(prec=800, rounding=ROUND_HALF_EVEN, Emin=-99_999, Emax=99_999, traps=[])

NO_REFERENCE_NUMBER = skipped("the reference is not a number")


class NumericMatchParams(EvaluatorParams):
    """Parameters of numeric_match."""

    tolerance: float = Field(default=0.0, ge=0, description="Largest difference that still matches.")
    relative_tolerance: float = Field(
        default=0.0,
        ge=0,
        description="Largest difference that still matches, as a share of the reference (0.01 is one per cent); the "
        "larger of the two tolerances counts.",
    )
    extract: Literal["whole", "first", "last"] = Field(
        default="whole",
        description="Which number of an output that is a text: the text must be a number as a whole, or the first or "
        "the last number in it is taken.",
    )


def build_judge(params: NumericMatchParams) -> Judge:
    """Build the judge."""
    tolerance = Decimal(repr(params.tolerance))
    relative_tolerance = Decimal(repr(params.relative_tolerance))
    read_output = _READERS[params.extract]

    def is_close(output: Decimal, reference: Decimal) -> bool:
        allowed = max(tolerance, _CONTEXT.multiply(relative_tolerance, reference.copy_abs()))
        return _CONTEXT.subtract(output, reference).copy_abs() <= allowed

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = list_references(record)
        if not references:
            return NO_REFERENCE
        numbers = [
            number for number in (_read_number(value, _read_whole) for value in references) if number is not None
        ]
        if not numbers:
            return NO_REFERENCE_NUMBER
        output = _read_number(record.output, read_output)
        if output is None:
            return FAILED
        return pass_or_fail(any(is_close(output, number) for number in numbers))

    return judge


def _read_number(value: Any, read_text: Callable[[str], str | None]) -> Decimal | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return Decimal(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if not isinstance(value, str):
        return None
    found = read_text(value)
    if found is None or len(found) > MAX_DIGITS:
        return None
    return Decimal(found.replace(",", "").replace("\u2212", "-"))


def _read_whole(text: str) -> str | None:
    found = _WHOLE_NUMBER.fullmatch(text.strip())
    return found.group() if found else None


def _read_first(text: str) -> str | None:
    found = _NUMBER_INSIDE.search(text)
    return found.group() if found else None


def _read_last(text: str) -> str | None:
    # A deque of one keeps the last match without holding them all.
    last = deque(_NUMBER_INSIDE.finditer(text), maxlen=1)
    return last[0].group() if last else None


_READERS: dict[str, Callable[[str], str | None]] = {"whole": _read_whole, "first": _read_first, "last": _read_last}

EVALUATOR = Evaluator(
    name="numeric_match",
    version=1,
    kind="pass_fail",
    description="Whether the output's number equals the reference's number within a tolerance.",
    score_meaning="1 when the difference is at most the tolerance, else 0; an output without a number is 0. Skipped "
    "without an output or a numeric reference.",
    params=NumericMatchParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
