"""`application/problem+json` (RFC 9457)."""

from typing import Any

import orjson

from coordination.errors import ProblemError

CONTENT_TYPE = "application/problem+json"


def problem_document(error: ProblemError, request_id: str) -> dict[str, Any]:
    """Return the members of the problem object."""
    document: dict[str, Any] = {
        "type": f"/docs#{error.code}",
        "title": error.title,
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "request_id": request_id,
    }
    if error.errors:
        document["errors"] = error.errors
    return document | error.extra


def encode_problem(error: ProblemError, request_id: str) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of the answer."""
    headers = {} if error.retry_after_seconds is None else {"retry-after": str(error.retry_after_seconds)}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return orjson.dumps(problem_document(error, request_id), option=orjson.OPT_NON_STR_KEYS), headers
