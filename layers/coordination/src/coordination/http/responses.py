"""Answers into what Powertools sends."""

from collections.abc import Mapping

from aws_lambda_powertools.event_handler import Response

from coordination.errors import AnswerTooLargeError, ProblemError
from coordination.http.operation import Answer
from coordination.http.problem import CONTENT_TYPE, encode_problem
from coordination.idempotency.records import StoredAnswer
from coordination.lambda_response import MAX_RESPONSE_BYTES, carried_bytes, is_text

type HttpResponse = Response[str | bytes]


def encode_answer(answer: Answer) -> HttpResponse:
    """Write an operation's answer.

    Raises
    ------
    AnswerTooLargeError
        Lambda could not carry it; a write has taken effect by now.
    """
    body = answer.encode_body()
    size = carried_bytes(answer.content_type, body)
    if size > MAX_RESPONSE_BYTES:
        raise AnswerTooLargeError(
            f"The answer has {size} bytes, {MAX_RESPONSE_BYTES} can be sent; a write has taken effect all the same. "
            "Ask for less at once, or read the resource in parts."
        )
    return _encode(answer.status, answer.content_type, body, answer.headers)


def encode_replay(stored: StoredAnswer) -> HttpResponse:
    """Write a stored answer, marked as replayed."""
    headers = {name: value for name, value in stored.headers.items() if name != "content-type"}
    headers["idempotency-replayed"] = "true"
    return _encode(stored.status, stored.headers["content-type"], stored.body, headers)


def encode_error(error: ProblemError, request_id: str) -> HttpResponse:
    """Write a problem document."""
    body, headers = encode_problem(error, request_id)
    return _encode(error.status, CONTENT_TYPE, body, headers)


def _encode(status: int, content_type: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
    return Response(
        status_code=status,
        content_type=content_type if body else None,
        body=body.decode() if is_text(content_type) else body,
        headers=dict(headers),
    )
