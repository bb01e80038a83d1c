"""Targets: what makes the output of a record."""

from collections.abc import Callable
from typing import Any

import msgspec
import orjson
from coordination.ports.http_calls import HttpCalls, OutgoingFailedError
from records.record import Record

_MAX_ANSWER_BYTES = 1024 * 1024


class TargetFailedError(Exception):
    """The target brought no output for a record; the message is for people and quotes nothing of it."""


type Target = Callable[[Record, float], Record]
"""Makes a record's output within a number of seconds."""


def http_target(calls: HttpCalls, project: str, url: str, timeout_seconds: float) -> Target:
    """Make a target that POSTs each record's input to an endpoint.

    The request is `{"record", "input", "context"?, "metadata"?}`; the answer a JSON object with `output` and, if it
    likes, `usage`. The address is resolved and checked here, once; every call goes to the address that was checked.

    Raises
    ------
    OutgoingRefusedError, OutgoingFailedError
        The address may not be called, or its name does not resolve.
    """
    destination = calls.resolve(project, url)

    def produce(record: Record, most_seconds: float) -> Record:
        question: dict[str, Any] = {"record": record.id, "input": record.input}
        question |= {
            name: value
            for name, value in (("context", record.context), ("metadata", record.metadata))
            if value is not None
        }
        try:
            answer = calls.send(
                "POST",
                destination,
                orjson.dumps(question),
                {"content-type": "application/json", "accept": "application/json"},
                timeout_seconds=min(timeout_seconds, most_seconds),
                max_bytes=_MAX_ANSWER_BYTES,
            )
        except OutgoingFailedError as error:
            raise TargetFailedError(str(error)) from error
        if answer.status != 200:
            raise TargetFailedError(f"the target answered {answer.status}, 200 was expected")
        return _with_output(record, answer.body)

    return produce


def _with_output(record: Record, body: bytes) -> Record:
    try:
        answer: Any = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise TargetFailedError("the target's answer is not JSON") from error
    if not isinstance(answer, dict) or "output" not in answer:
        raise TargetFailedError("the target's answer has no member `output`")
    usage = answer.get("usage")
    return msgspec.structs.replace(
        record, output=answer["output"], usage=usage if isinstance(usage, dict) else record.usage
    )
