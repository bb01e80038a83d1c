"""Gates: conditions on a run's metrics that decide whether it succeeded.

A gate looks at one metric's mean or at a bound of its 95 % confidence interval, and holds it to a minimum, a maximum or
both, inclusive. It is checked when the run is created, so that a gate on a metric that the run will not have, or one
that nothing can satisfy, never costs a run.

A gate passes only on evidence. It fails when its value is missing (no record was scored, or one alone has no
interval), and when any row of its metric ended in an error: rows that crash leave the mean, so a system could pass by
crashing on the rows it would have failed. Skipped rows do not fail a gate: there was nothing to judge in them, and the
coverage says how many they were.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from records.evaluators.pointers import ParameterProblem, describe_problems

MAX_GATES = 100


class Gate(BaseModel):
    """A condition on one statistic of one metric."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    metric: str = Field(min_length=1, max_length=256, description="Id of one of the run's evaluators.")
    stat: Literal["mean", "ci_low", "ci_high"] = Field(
        description="What is held to the bounds: the mean, or the lower or upper end of its 95 % confidence interval."
    )
    min: float | None = Field(default=None, description="Smallest value that passes.")
    max: float | None = Field(default=None, description="Largest value that passes.")

    @model_validator(mode="after")
    def can_decide(self) -> Self:
        """Refuse a gate that everything passes, and one that nothing can pass."""
        if self.min is None and self.max is None:
            message = "a gate needs min, max or both"
            raise ValueError(message)
        if self.min is not None and self.max is not None and self.min > self.max:
            message = f"min ({self.min:g}) is larger than max ({self.max:g}), so that nothing could pass; swap them"
            raise ValueError(message)
        return self


class InvalidGatesError(ValueError):
    """The gates of a run are not right.

    Parameters
    ----------
    problems
        At least one, each with its place.
    """

    def __init__(self, problems: tuple[ParameterProblem, ...]) -> None:
        self.problems: tuple[ParameterProblem, ...] = problems
        super().__init__("; ".join(f"{problem.pointer or '/'}: {problem.message}" for problem in problems))


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """What became of a gate.

    Parameters
    ----------
    metric, stat, min, max
        Of the gate.
    value
        The statistic; ``None`` when the metric has none.
    passed
        Whether the run passes this gate.
    reason
        Why not, in a sentence; ``None`` when passed.
    """

    metric: str
    stat: str
    min: float | None
    max: float | None
    value: float | None
    passed: bool
    reason: str | None


def parse_gates(value: object, metrics: Collection[str], *, at: str = "") -> tuple[Gate, ...]:
    """Check the gates of a run that is about to be created.

    Parameters
    ----------
    value
        The gates as JSON values: a list of objects; ``None`` counts as none.
    metrics
        Ids of the metrics that the run will have.
    at
        JSON Pointer of the list in what was sent, put before every pointer: ``/gates``.

    Raises
    ------
    InvalidGatesError
        Every problem found, with its place.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidGatesError((ParameterProblem(at, "must be a list of gates"),))
    items = cast("list[Any]", value)
    if len(items) > MAX_GATES:
        raise InvalidGatesError((ParameterProblem(at, f"{len(items)} gates; at most {MAX_GATES} are allowed"),))
    gates: list[Gate] = []
    problems: list[ParameterProblem] = []
    for index, item in enumerate(items):
        try:
            gates.append(Gate.model_validate(item))
        except ValidationError as error:
            problems.extend(describe_problems(error, f"{at}/{index}"))
            continue
        problems.extend(find_unknown_metrics(gates[-1:], metrics, at=at, first_index=index))
    if problems:
        raise InvalidGatesError(tuple(problems))
    return tuple(gates)


def find_unknown_metrics(
    gates: Sequence[Gate], metrics: Collection[str], *, at: str = "", first_index: int = 0
) -> tuple[ParameterProblem, ...]:
    """Find gates on metrics that the run will not have, for callers that have parsed their gates themselves.

    Parameters
    ----------
    gates
        The gates.
    metrics
        Ids of the metrics that the run will have.
    at
        JSON Pointer of the list of gates, put before every pointer.
    first_index
        Place of the first gate in that list.
    """
    known = ", ".join(sorted(metrics)) or "none"
    return tuple(
        ParameterProblem(
            f"{at}/{index}/metric", f"the run will have no metric {gate.metric!r}; its metrics are: {known}"
        )
        for index, gate in enumerate(gates, first_index)
        if gate.metric not in metrics
    )


def evaluate_gates(gates: Sequence[Gate], metrics: Sequence[Mapping[str, Any]]) -> tuple[GateOutcome, ...]:
    """Decide every gate.

    Parameters
    ----------
    gates
        The gates of the run, in their order.
    metrics
        Metrics of the report: ``id``, the statistics, ``errors``.

    Returns
    -------
    tuple of GateOutcome
        One a gate, in the order of the gates.
    """
    by_id = {metric["id"]: metric for metric in metrics}
    return tuple(_evaluate_gate(gate, by_id.get(gate.metric)) for gate in gates)


def _evaluate_gate(gate: Gate, metric: Mapping[str, Any] | None) -> GateOutcome:
    value: float | None = None if metric is None else metric[gate.stat]
    reason = _find_failure(gate, metric, value)
    return GateOutcome(gate.metric, gate.stat, gate.min, gate.max, value, reason is None, reason)


def _find_failure(gate: Gate, metric: Mapping[str, Any] | None, value: float | None) -> str | None:
    if metric is None:
        return "the run has no such metric"
    if metric["errors"]:
        return f"{metric['errors']} of the metric's rows ended in an error and could not be judged"
    if value is None:
        return "no record was scored" if metric["n"] == 0 else "one score alone has no confidence interval"
    unit = f" {metric['unit']}" if metric.get("unit") else ""
    if gate.min is not None and value < gate.min:
        return f"{value:g}{unit} is less than {gate.min:g}{unit}"
    if gate.max is not None and value > gate.max:
        return f"{value:g}{unit} is more than {gate.max:g}{unit}"
    return None
