"""Payload format 2.0 of API Gateway HTTP APIs: from a request to an event, from an answer to a response."""

import base64
import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from evalward_local.account import ACCOUNT_ID
from evalward_local.http_routes import DEFAULT_ROUTE, HttpRoute

API_ID = "local"
_TEXT_TYPES = ("application/json", "application/javascript", "application/xml")


class MalformedAnswerError(Exception):
    """The function's answer is none that API Gateway can turn into a response."""


@dataclass(frozen=True)
class HttpRequest:
    """A request as it came over the wire.

    Attributes
    ----------
    method
        Upper case.
    raw_path, raw_query
        As sent, percent-encoded, without `?`.
    headers
        Name and value pairs in the order sent.
    body
        May be empty.
    source_ip
        The client's address.
    """

    method: str
    raw_path: str
    raw_query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str

    def header(self, name: str) -> str:
        """Return the value of a header, repeated ones joined by comma, or an empty string."""
        return ",".join(value for key, value in self.headers if key.lower() == name)


@dataclass(frozen=True)
class HttpResponse:
    """A response for the wire.

    Attributes
    ----------
    status, body
        What is sent.
    headers
        Name and value pairs; `set-cookie` may be there more than once.
    """

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


def make_request_id() -> str:
    """Return an id that looks like the gateway's own, for instance `JKJaXmPLvHcESHA=`."""
    return base64.b64encode(secrets.token_bytes(11)).decode()


def build_event(
    request: HttpRequest, route: HttpRoute, path_parameters: Mapping[str, str], *, request_id: str, now: datetime
) -> dict[str, Any]:
    """Make the payload-2.0 event of a request.

    Parameters
    ----------
    request
        What came in.
    route, path_parameters
        The route that serves it.
    request_id
        The gateway's id of the request.
    now
        When it came, aware.

    Returns
    -------
    dict
        Keys with nothing to say (cookies, body, parameters) are absent, as in API Gateway's events.
    """
    path = unquote(request.raw_path)
    host = request.header("host")
    headers: dict[str, str] = {}
    for name, value in request.headers:
        key = name.lower()
        if key != "cookie":
            headers[key] = f"{headers[key]},{value}" if key in headers else value
    headers.setdefault("content-length", str(len(request.body)))
    headers.setdefault("x-amzn-trace-id", f"Root=1-{int(now.timestamp()):08x}-{uuid.uuid4().hex[:24]}")
    headers["x-forwarded-for"] = ", ".join(filter(None, [headers.get("x-forwarded-for"), request.source_ip]))
    headers["x-forwarded-port"] = host.rpartition(":")[2] if ":" in host else "80"
    headers["x-forwarded-proto"] = "http"
    cookies = [part.strip() for name, value in request.headers if name.lower() == "cookie" for part in value.split(";")]
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": path,
        "rawQueryString": request.raw_query,
        "headers": headers,
        "requestContext": {
            "accountId": ACCOUNT_ID,
            "apiId": API_ID,
            "domainName": host,
            "domainPrefix": API_ID,
            "http": {
                "method": request.method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": request.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": route.key,
            "stage": DEFAULT_ROUTE,
            "time": now.astimezone(UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now.timestamp() * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query := _query_parameters(request.raw_query):
        event["queryStringParameters"] = query
    if path_parameters:
        event["pathParameters"] = dict(path_parameters)
    if request.body:
        event["body"], event["isBase64Encoded"] = _encode_body(request.body, headers.get("content-type", ""))
    return event


def read_answer(payload: bytes) -> HttpResponse:
    """Turn a function's answer into a response.

    Parameters
    ----------
    payload
        The function's JSON.

    Returns
    -------
    HttpResponse
        An answer without `statusCode` is the body of a 200 as it stands.

    Raises
    ------
    MalformedAnswerError
        When API Gateway would answer 500 for it.
    """
    try:
        answer: Any = json.loads(payload)
    except ValueError as error:
        raise MalformedAnswerError("the answer is no JSON") from error
    if not isinstance(answer, dict) or "statusCode" not in answer:
        body = answer if isinstance(answer, str) else json.dumps(answer)
        return HttpResponse(200, [("content-type", "application/json")], body.encode())
    fields = cast("dict[str, Any]", answer)
    try:
        status = int(fields["statusCode"])
    except (TypeError, ValueError) as error:
        raise MalformedAnswerError("statusCode is no number") from error
    if not 100 <= status <= 599:
        raise MalformedAnswerError("statusCode is no HTTP status")
    body = fields.get("body")
    if body is not None and not isinstance(body, str):
        raise MalformedAnswerError("body is no string")
    headers = [(str(name).lower(), _header_text(value)) for name, value in (fields.get("headers") or {}).items()]
    if not any(name == "content-type" for name, _ in headers):
        headers.append(("content-type", "text/plain;charset=utf-8"))
    headers.extend(("set-cookie", str(cookie)) for cookie in fields.get("cookies") or [])
    return HttpResponse(status, headers, _decode_body(body or "", is_base64=fields.get("isBase64Encoded") is True))


def _query_parameters(raw_query: str) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(raw_query, keep_blank_values=True):
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


def _encode_body(body: bytes, content_type: str) -> tuple[str, bool]:
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type.startswith("text/") or media_type in _TEXT_TYPES:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


def _decode_body(body: str, *, is_base64: bool) -> bytes:
    if not is_base64:
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except ValueError as error:
        raise MalformedAnswerError("body is no base64") from error


def _header_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise MalformedAnswerError("a header's value is no string")
