"""Answers into what Powertools sends."""

from collections.abc import Mapping

from aws_lambda_powertools.event_handler import Response

from coordination.errors import ProblemError
from coordination.http.operation import Answer
from coordination.http.problem import CONTENT_TYPE, encode_problem
from coordination.idempotency.records import StoredAnswer

type HttpResponse = Response[str | bytes]

_TEXT_TYPES = ("application/json", "application/problem+json", "application/x-ndjson", "application/xml", "text/")


def encode_answer(answer: Answer) -> HttpResponse:
    """Write an operation's answer."""
    return _encode(answer.status, answer.content_type, answer.encode_body(), answer.headers)


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
    # Lambda carries text as it is; bytes would cross as base64, a third larger.
    is_text = content_type.startswith(_TEXT_TYPES)
    return Response(
        status_code=status,
        content_type=content_type if body else None,
        body=body.decode() if is_text else body,
        headers=dict(headers),
    )
