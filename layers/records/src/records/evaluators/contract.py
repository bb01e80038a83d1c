"""What an evaluator is, what it answers, and the guard that keeps one bad row from ending a run."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict

from records.evaluators.json_values import find_flaw
from records.record import Record

type Kind = Literal["pass_fail", "number"]
type ScoreStatus = Literal["scored", "skipped", "error"]

MAX_ABS_SCORE = 1e150
"""A score beyond this is an error of its row: its square would leave the range of a double, and so would a variance."""


class Score(msgspec.Struct, frozen=True, gc=False):
    """What an evaluator says about one record.

    Parameters
    ----------
    status
        ``scored``; ``skipped``: the record has nothing that this evaluator could judge; ``error``: it should have been
        judged and could not be.
    score
        The number, finite; ``None`` unless scored. 1.0 or 0.0 for a pass/fail evaluator.
    passed
        Whether the record passed; ``None`` when not scored, or when a number is held to no bound.
    message
        Why it was skipped or what went wrong; ``None`` when scored. Holds no text of the record.
    """

    status: ScoreStatus
    score: float | None = None
    passed: bool | None = None
    message: str | None = None


PASSED = Score("scored", 1.0, True)
FAILED = Score("scored", 0.0, False)
NO_OUTPUT = Score("skipped", message="the record has no output")
NO_REFERENCE = Score("skipped", message="the record has no reference")

type Judge = Callable[[Record], Score]


def pass_or_fail(passed: bool) -> Score:
    """Return the score of a pass/fail evaluator: 1.0 when passed, else 0.0."""
    return PASSED if passed else FAILED


def scored(score: float, *, at_least: float | None = None, at_most: float | None = None) -> Score:
    """Return a number as a score.

    Parameters
    ----------
    score
        The number.
    at_least, at_most
        Bounds that the parameters set, inclusive. ``passed`` is ``None`` when there is neither.
    """
    if at_least is None and at_most is None:
        return Score("scored", score)
    return Score("scored", score, (at_least is None or score >= at_least) and (at_most is None or score <= at_most))


def skipped(reason: str) -> Score:
    """Return the answer for a record that the evaluator cannot judge; never a zero."""
    return Score("skipped", message=reason)


def failed_to_score(message: str) -> Score:
    """Return the answer for a record that should have been judged and could not be."""
    return Score("error", message=message)


class UnscorableError(Exception):
    """A record cannot be scored. The message goes into the row's result, so it quotes nothing of the record."""


class EvaluatorParams(BaseModel):
    """Parameters of an evaluator; an unknown one is refused, and a text is not taken for a number."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator[P: EvaluatorParams]:
    """An entry of the catalogue.

    Parameters
    ----------
    name
        As runs name it: the name of its file.
    version
        Raised whenever the same record and parameters may get another score than before.
    kind
        ``pass_fail``: every score is 0.0 or 1.0, the mean is a proportion (Wilson interval); ``number``: anything else
        (Student t interval).
    description
        What it compares, in one sentence.
    score_meaning
        What the number says, its unit and range, and what makes ``passed``.
    params
        Model of the parameters.
    build
        Makes a judge from validated parameters.
    minimum, maximum
        Bounds that no score can leave, ``None`` where there is none; an interval is clipped to them.
    unit
        Of its scores, as it is written behind a number; ``None`` for a number without one.
    better
        Which scores are the better ones; ``None`` when neither are (a length). Decides which records a report shows
        as the worst, and what a comparison calls a regression.
    calls_out
        Whether its scores come from a call (of a model, of a function). Only its parameters are known here; who may
        make calls makes them, and ``build`` refuses.
    """

    name: str
    version: int
    kind: Kind
    description: str
    score_meaning: str
    params: type[P]
    build: Callable[[P], Judge]
    minimum: float | None = None
    maximum: float | None = None
    unit: Literal["ms", "USD", "tokens"] | None = None
    better: Literal["higher", "lower"] | None = "higher"
    calls_out: bool = False


type AnyEvaluator = Evaluator[Any]


def refuse_to_build(_params: EvaluatorParams) -> Judge:
    """Stand in for the judge of an evaluator that calls out.

    Raises
    ------
    TypeError
        Always: this layer is pure.
    """
    message = "an evaluator that calls out has no pure judge"
    raise TypeError(message)


class Scorer:
    """An evaluator with its parameters, ready for the records of a shard.

    Pure: the same record always gets the same score. Raises nothing that a record can cause.
    """

    __slots__ = ("_judge", "evaluator")

    def __init__(self, evaluator: AnyEvaluator, judge: Judge) -> None:
        self.evaluator: AnyEvaluator = evaluator
        self._judge: Judge = judge

    def __call__(self, record: Record) -> Score:
        """Score one record.

        An output that cannot be stored (a NUL, half a surrogate pair, nested too deep, not finite) is an error of its
        row for every evaluator, also for one that looks at nothing but the usage: that row has no output to keep.
        """
        flaw = find_flaw(record.output)
        if flaw is not None:
            return failed_to_score(f"the output cannot be kept: {flaw}")
        try:
            score = self._judge(record)
        except UnscorableError as error:
            return failed_to_score(str(error))
        except BaseException as failure:
            # A panic in a Rust extension derives from BaseException; it is a row's failure like any other. What stops
            # the process or a task is not.
            if not isinstance(failure, Exception) and type(failure).__name__ != "PanicException":
                raise
            # Its message may quote the record, which belongs into no log and no result.
            return failed_to_score(f"{self.evaluator.name} failed on this record ({type(failure).__name__})")
        if score.score is None:
            return score
        if not math.isfinite(score.score) or abs(score.score) > MAX_ABS_SCORE:
            return failed_to_score(f"{self.evaluator.name} made a score that is not a usable number")
        if score.score == 0 and math.copysign(1.0, score.score) < 0:
            return Score(score.status, 0.0, score.passed)
        return score
