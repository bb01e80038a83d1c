"""Evaluators as callers ask for them, checked against the catalogue."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field
from records.evaluators import catalogue

from coordination.errors import Fault
from coordination.models import RequestModel
from coordination.runs import EvaluatorConfig

type EvaluatorId = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="names the metric; by default the evaluator's name"
    ),
]


class EvaluatorRequest(RequestModel):
    """An evaluator and its parameters."""

    name: Annotated[str, Field(max_length=100, description="in the catalogue: GET /v1/evaluators")]
    params: Annotated[dict[str, Any], Field(default_factory=dict)]
    id: EvaluatorId | None = None


def check_evaluators(wanted: Sequence[EvaluatorRequest], at: str) -> tuple[list[EvaluatorConfig], list[Fault]]:
    """Complete the parameters of evaluators and find all that is wrong with them.

    Parameters
    ----------
    wanted
        In the order they were sent.
    at
        JSON Pointer of their list.

    Returns
    -------
    (list of EvaluatorConfig, list of Fault)
        One configuration each, usable when there is no fault.
    """
    faults: list[Fault] = []
    evaluators: list[EvaluatorConfig] = []
    for position, one in enumerate(wanted):
        params: dict[str, Any] = {}
        try:
            params = catalogue.validate(one.name, one.params, at=f"{at}/{position}/params")
        except catalogue.UnknownEvaluatorError as error:
            faults.append(Fault(f"{at}/{position}/name", str(error)))
        except catalogue.InvalidParamsError as error:
            faults += [Fault(problem.pointer, problem.message) for problem in error.problems]
        evaluators.append(EvaluatorConfig(id=one.id or one.name, name=one.name, params=params))
    ids = [evaluator.id for evaluator in evaluators]
    faults += [
        Fault(f"{at}/{position}/id", f"{name!r} stands twice; give each evaluator an id of its own")
        for position, name in enumerate(ids)
        if name in ids[:position]
    ]
    return evaluators, faults


def list_metric_ids(wanted: Sequence[EvaluatorRequest]) -> list[str]:
    """Return the metrics that gates may name.

    A misspelt evaluator is one fault: a gate on what it was probably meant to be is none beside it.
    """
    ids: list[str] = []
    for one in wanted:
        ids.append(one.id or one.name)
        if one.id is None:
            try:
                catalogue.get_evaluator(one.name)
            except catalogue.UnknownEvaluatorError as error:
                ids += error.nearest
    return ids
