"""The declaration of `/evaluate`."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, Operation, RemoteWrite
from coordination.idempotency.remote_write import EffectBoundary

from run_evaluation.evaluate_frames import Evaluation, evaluate_frames, read_evaluation

MAX_BODY_BYTES = 4 * 1024 * 1024
NDJSON = "application/x-ndjson"


def _read(call: Call) -> Evaluation:
    return read_evaluation(call.environment.http_calls, call.project, call.content, is_keyed=call.is_keyed)


def _evaluate(call: Call, boundary: EffectBoundary) -> bytes:
    evaluation: Evaluation = call.prepared
    return evaluate_frames(evaluation, boundary, call.deadline, call.request_id)


def _answer(call: Call, _transaction: Transaction) -> Answer:
    frames: bytes = call.prepared
    return Answer(200, frames, content_type=NDJSON)


OPERATIONS = (
    Operation(
        id="evaluate",
        method="POST",
        path="/v1/projects/{project}/evaluate",
        summary="Score a few records at once: a settings frame, then one record a line; answered frame by frame.",
        permission="evaluate",
        max_content_bytes=MAX_BODY_BYTES,
        too_large_advice="Publish a dataset and create a run instead.",
        content_type=NDJSON,
        content_meaning=(
            'The settings in the first line, as {"evaluators": [{"name": "exact_match"}]}; outputs are fetched with '
            '"target": {"kind": "http", "url": …}. Then one record a line, with the fields and aliases of a dataset. '
            "Answered with a line a record, and the summary in the last"
        ),
        responses={200: None},
        idempotency=RemoteWrite(
            act=_evaluate,
            effect_boundary="the first call of the target",
            needed_seconds=10.0,
            reserved_bytes=64 * 1024,
        ),
        prepare=_read,
        handle=_answer,
    ),
)
