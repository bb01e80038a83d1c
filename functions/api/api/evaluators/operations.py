"""The catalogue of evaluators."""

from typing import Any

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, Operation
from coordination.models import ResponseModel
from records.evaluators import catalogue


class EvaluatorEntry(ResponseModel):
    """One evaluator: what its score means and which parameters it takes (JSON Schema)."""

    name: str
    version: int
    kind: str
    description: str
    score_meaning: str
    minimum: float | None
    maximum: float | None
    better: str | None
    params_schema: dict[str, Any]


class EvaluatorList(ResponseModel):
    """The whole catalogue, by name."""

    items: list[EvaluatorEntry]
    next_cursor: None = None


def _list(_call: Call, _transaction: Transaction) -> Answer:
    return Answer(200, EvaluatorList(items=[EvaluatorEntry(**entry) for entry in catalogue.list_evaluators()]))


OPERATIONS = (
    Operation(
        id="evaluators.list",
        method="GET",
        path="/v1/evaluators",
        summary="List the evaluators with the meaning of their scores and their parameters.",
        responses={200: EvaluatorList},
        handle=_list,
    ),
)
