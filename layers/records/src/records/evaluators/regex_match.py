r"""Regex match: whether a regular expression matches the output, or does not.

RE2 syntax (https://github.com/google/re2/wiki/Syntax): no look-around and no back-references, in exchange the time is
linear in the length of the output, so that no pattern can stall a run. ``\w``, ``\d`` and ``\b`` know ASCII only;
``\p{L}`` and the like know Unicode. An output that is not a text is searched in its canonical JSON text (RFC 8785).
"""

from typing import Any

from pydantic import Field, field_validator

from records.evaluators.contract import (
    NO_OUTPUT,
    Evaluator,
    EvaluatorParams,
    Judge,
    Score,
    UnscorableError,
    pass_or_fail,
)
from records.evaluators.texts import read_text
from records.record import Record

MAX_PROGRAM_SIZE = 20_000
"""Instructions of a compiled pattern. RE2 may have to follow each of them at each character of a text."""

MAX_STEPS = 2_000_000_000
"""Instructions times characters of one output: half a minute at worst, where RE2 cannot build an automaton."""

SHRINK = "use smaller repetition counts or narrower character classes"


class RegexMatchParams(EvaluatorParams):
    """Parameters of regex_match."""

    pattern: str = Field(
        min_length=1,
        max_length=10_000,
        description="Regular expression in RE2 syntax; flags inside the pattern, as in (?i) or (?s).",
    )
    full: bool = Field(
        default=False, description="Whether the pattern must match the whole output; else a match anywhere is enough."
    )
    absent: bool = Field(default=False, description="Whether a record passes when the pattern does not match.")

    @field_validator("pattern")
    @classmethod
    def compiles(cls, pattern: str) -> str:
        """Refuse a pattern that RE2 cannot run in linear time and small memory."""
        compile_pattern(pattern)
        return pattern


def compile_pattern(pattern: str) -> Any:
    """Compile with RE2.

    Raises
    ------
    ValueError
        The message says what is wrong with the pattern and what to change.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be compiled"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        advice = "RE2 has no look-around and no back-references, see https://github.com/google/re2/wiki/Syntax"
        if "too large" in text or "repetition size" in text:
            advice = SHRINK
        message = f"not a regular expression that RE2 can run ({text}); {advice}"
        raise ValueError(message) from None
    except UnicodeEncodeError:
        message = "the pattern contains half a surrogate pair; send valid Unicode text"
        raise ValueError(message) from None
    if compiled.programsize > MAX_PROGRAM_SIZE:
        message = (
            f"the pattern compiles to {compiled.programsize} instructions, {MAX_PROGRAM_SIZE} are allowed; {SHRINK}"
        )
        raise ValueError(message)
    return compiled


def build_judge(params: RegexMatchParams) -> Judge:
    """Build the judge; the pattern is compiled once."""
    compiled = compile_pattern(params.pattern)
    match = compiled.fullmatch if params.full else compiled.search
    max_characters = MAX_STEPS // compiled.programsize
    wanted = not params.absent

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        text = read_text(record.output)
        if len(text) > max_characters:
            message = (
                f"the output has {len(text)} characters, this pattern is run on at most {max_characters}; "
                "use a simpler pattern or shorter outputs"
            )
            raise UnscorableError(message)
        return pass_or_fail((match(text) is not None) == wanted)

    return judge


EVALUATOR = Evaluator(
    name="regex_match",
    version=1,
    kind="pass_fail",
    description="Whether a regular expression (RE2 syntax) matches the output, or does not.",
    score_meaning="1 when the pattern matches somewhere in the output (or all of it: full), else 0; with absent the "
    "other way round. Skipped without an output.",
    params=RegexMatchParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
