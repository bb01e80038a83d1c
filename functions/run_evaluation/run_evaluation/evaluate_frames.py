"""`/evaluate`: score a few records at once and answer frame by frame."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import orjson
from coordination.clock import Deadline
from coordination.errors import InvalidRequestError, ProblemError, TooLittleTimeError
from coordination.http.problem import problem_document
from coordination.idempotency.remote_write import EffectBoundary
from coordination.lambda_response import escaped_bytes
from coordination.ports.http_calls import HttpCalls, OutgoingFailedError, OutgoingRefusedError
from coordination.ports.remote_calls import CallFailedError
from records.evaluators.contract import Score, Scorer, failed_to_score
from records.record import Record
from records.report import MetricAggregate, describe_metric
from records.statistics import Moments

from run_evaluation.evaluation_frames import FrameReader, HttpTarget
from run_evaluation.shard_scores import build_scorers
from run_evaluation.targets import Question, Target, http_target

CONCURRENT_CALLS = 8
# As Lambda carries it, escaped: an answer is never too large to be sent.
_MAX_ANSWER_BYTES = 5 * 1024 * 1024
_SPARE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A request that was read as far as it has to be before anything happens.

    Attributes
    ----------
    reader
        Its frames.
    records
        All of them when the call is keyed; None when they are read one by one.
    target
        What makes the outputs; None when the records carry them.
    """

    reader: FrameReader
    records: Sequence[Record] | None
    target: Target | None


def read_evaluation(calls: HttpCalls, project: str, content: bytes, *, is_keyed: bool) -> Evaluation:
    """Read the settings and, for a keyed call, the whole bounded input, before anything is claimed.

    Raises
    ------
    InvalidRequestError
        A frame is not right (of an unkeyed call: the settings frame), or the target may not be called.
    """
    reader = FrameReader(content)
    target = None
    if isinstance(reader.settings.target, HttpTarget):
        wanted = reader.settings.target
        try:
            target = http_target(calls, project, wanted.url, wanted.timeout_seconds)
        except (OutgoingRefusedError, OutgoingFailedError) as error:
            raise InvalidRequestError(f"The target cannot be called: {error}.") from error
    return Evaluation(reader, list(reader.read_records()) if is_keyed else None, target)


def evaluate_frames(evaluation: Evaluation, boundary: EffectBoundary, deadline: Deadline, request_id: str) -> bytes:
    """Score the records and return the response frames.

    One frame a record, in order, then a summary. In an unkeyed call a frame that is not right ends the answer with an
    error frame after those before it. With a target the effect boundary is crossed before its first call. An error
    frame also ends an answer that would be too long or whose time is over; in a keyed call without a target nothing
    has happened by then, so the error is the answer and its key stays free.

    Returns
    -------
    bytes
        NDJSON, at most 5 MiB and a frame once it is escaped in Lambda's response.

    Raises
    ------
    InvalidRequestError, TooLittleTimeError
        Of a keyed call without a target: too long an answer, too little time.
    """
    scorers = build_scorers(evaluation.reader.evaluators)
    summary = _Summary(scorers)
    frames: list[bytes] = []
    size = 0
    records = evaluation.records if evaluation.records is not None else evaluation.reader.read_records()
    try:
        for record, failure in _with_outputs(records, evaluation.target, boundary, deadline):
            if deadline.remaining_seconds() < _SPARE_SECONDS:
                raise TooLittleTimeError("The time is over; send fewer records, or create a run.")
            frame = orjson.dumps(_score(record, failure, scorers, summary, has_target=evaluation.target is not None))
            size += escaped_bytes(frame) + 2
            if size > _MAX_ANSWER_BYTES:
                raise InvalidRequestError(f"The answer has more than {_MAX_ANSWER_BYTES} bytes; create a run instead.")
            frames.append(frame)
        frames.append(orjson.dumps({"summary": {"metrics": summary.describe()}}))
    except ProblemError as error:
        if evaluation.records is not None and not boundary.is_crossed:
            raise
        frames.append(orjson.dumps({"error": problem_document(error, request_id)}))
    return b"\n".join(frames) + b"\n"


def _with_outputs(
    records: Iterator[Record] | Sequence[Record], target: Target | None, boundary: EffectBoundary, deadline: Deadline
) -> Iterator[tuple[Record, str | None]]:
    """Yield records with their outputs, or with the reason why there is none, in order."""
    if target is None:
        for record in records:
            yield record, None
        return
    boundary.cross()
    if not isinstance(records, Sequence):
        # Frame by frame: what follows a bad frame is never sent to the target.
        for record in records:
            yield _call(target, deadline, record)
        return
    with ThreadPoolExecutor(CONCURRENT_CALLS) as pool:
        yield from pool.map(partial(_call, target, deadline), records)


def _call(target: Target, deadline: Deadline, record: Record) -> tuple[Record, str | None]:
    # No call outlives the invocation: killed in the middle of one, a keyed write would be uncertain.
    left = deadline.remaining_seconds() - _SPARE_SECONDS
    if left <= 0:
        return record, "the time was over before the target was called"
    try:
        produced = target(Question(record), left)
    except CallFailedError as error:
        return record, str(error)
    return msgspec.structs.replace(record, output=produced.output, usage=dict(produced.usage) or None), None


class _Summary:
    def __init__(self, scorers: Sequence[tuple[str, Scorer]]) -> None:
        self._scorers = scorers
        self._scores: dict[str, list[float]] = {evaluator_id: [] for evaluator_id, _ in scorers}
        self._counts: dict[str, Counter[str]] = {evaluator_id: Counter() for evaluator_id, _ in scorers}

    def add(self, evaluator_id: str, score: Score) -> None:
        counts = self._counts[evaluator_id]
        counts[score.status] += 1
        if score.score is not None:
            self._scores[evaluator_id].append(score.score)
        if score.passed is not None:
            counts["passed" if score.passed else "failed"] += 1

    def describe(self) -> list[dict[str, Any]]:
        return [
            describe_metric(
                MetricAggregate(
                    id=evaluator_id,
                    evaluator=scorer.evaluator.name,
                    version=scorer.evaluator.version,
                    kind=scorer.evaluator.kind,
                    moments=Moments.of(self._scores[evaluator_id]),
                    skipped=self._counts[evaluator_id]["skipped"],
                    errors=self._counts[evaluator_id]["error"],
                    passed=self._counts[evaluator_id]["passed"],
                    failed=self._counts[evaluator_id]["failed"],
                    minimum=scorer.evaluator.minimum,
                    maximum=scorer.evaluator.maximum,
                )
            )
            for evaluator_id, scorer in self._scorers
        ]


def _score(
    record: Record, failure: str | None, scorers: Sequence[tuple[str, Scorer]], summary: _Summary, *, has_target: bool
) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for evaluator_id, scorer in scorers:
        score = scorer(record) if failure is None else failed_to_score(failure)
        summary.add(evaluator_id, score)
        results.append(
            {
                "evaluator": evaluator_id,
                "status": score.status,
                "score": score.score,
                "passed": score.passed,
                "error": score.message,
            }
        )
    frame: dict[str, Any] = {"record": record.id, "results": results}
    if has_target and failure is None:
        frame["output"] = record.output
    return frame
