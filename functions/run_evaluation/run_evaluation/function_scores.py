"""The evaluator `lambda`: a customer's Lambda function scores batches of records."""

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import orjson
from coordination.environment import Environment
from coordination.ports.remote_calls import CallFailedError
from records.evaluators import catalogue
from records.evaluators.contract import MAX_ABS_SCORE, Score, failed_to_score, skipped
from records.evaluators.json_values import find_flaw
from records.record import Record

_MAX_QUESTION_BYTES = 5 * 1024 * 1024
_MAX_ANSWER_BYTES = 1024 * 1024
_MAX_REASON_LENGTH = 500
_FIELDS = ("input", "output", "reference", "context", "trajectory", "usage", "metadata")

type BatchScorer = Callable[[Sequence[tuple[Record, int]]], list[Score]]
"""Scores records with their trials, in their order; raises CallFailedError."""


def open_batch_scorer(environment: Environment, evaluator_id: str, params: dict[str, Any]) -> BatchScorer:
    """Make what scores batches with a function; whether the project may invoke it has been checked."""
    wanted: Any = catalogue.get_evaluator("lambda").params.model_validate(params)
    environment.functions.prepare(wanted.timeout_seconds)
    head: dict[str, Any] = {"evaluator": evaluator_id, "settings": wanted.settings}

    def score(batch: Sequence[tuple[Record, int]]) -> list[Score]:
        question = orjson.dumps(head | {"records": [_describe(record, trial) for record, trial in batch]})
        if len(question) > _MAX_QUESTION_BYTES:
            if len(batch) == 1:
                return [failed_to_score(f"the record has more than {_MAX_QUESTION_BYTES} bytes as a question")]
            middle = len(batch) // 2
            return [*score(batch[:middle]), *score(batch[middle:])]
        answer = environment.functions.invoke(
            wanted.function, question, timeout_seconds=wanted.timeout_seconds, max_bytes=_MAX_ANSWER_BYTES
        )
        return [_to_score(wanted, result) for result in _read_results(answer, batch)]

    return score


def _describe(record: Record, trial: int) -> dict[str, Any]:
    fields = {name: getattr(record, name) for name in _FIELDS}
    return {"record": record.id, "trial": trial} | {name: value for name, value in fields.items() if value is not None}


def _read_results(answer: bytes, batch: Sequence[tuple[Record, int]]) -> list[dict[str, Any]]:
    try:
        content: Any = orjson.loads(answer)
    except orjson.JSONDecodeError as error:
        raise CallFailedError("the function's answer is not JSON") from error
    results: Any = cast("dict[str, Any]", content).get("results") if isinstance(content, dict) else None
    if not isinstance(results, list) or len(cast("list[Any]", results)) != len(batch):
        raise CallFailedError(f"the function's answer has no list `results` of {len(batch)} entries")
    for result, (record, trial) in zip(cast("list[Any]", results), batch, strict=True):
        if not isinstance(result, dict) or result.get("record") != record.id or result.get("trial", trial) != trial:
            raise CallFailedError("the function's results are not those of the records, in their order")
    return cast("list[dict[str, Any]]", results)


def _to_score(params: Any, result: dict[str, Any]) -> Score:
    if result.get("error") is not None:
        return failed_to_score(_read_reason(result["error"], "the function could not score it"))
    number, passed = result.get("score"), result.get("passed")
    if number is None:
        return skipped(_read_reason(result.get("reason"), "the function gave no score"))
    if isinstance(number, bool) or not isinstance(number, int | float):
        return failed_to_score("the function's score is not a number")
    if not math.isfinite(number) or abs(number) > MAX_ABS_SCORE:
        return failed_to_score("the function's score is not a usable number")
    if passed is not None and not isinstance(passed, bool):
        return failed_to_score("the function's `passed` is neither true nor false")
    if params.min is not None or params.max is not None:
        return cast("Score", params.score(number))
    return Score("scored", float(number) + 0.0, passed)


def _read_reason(reason: Any, default: str) -> str:
    """Return what the function says, when that can be kept."""
    if not isinstance(reason, str) or not reason or find_flaw(reason) is not None:
        return default
    return reason[:_MAX_REASON_LENGTH]
