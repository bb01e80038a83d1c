"""The HTTP API in front of the functions, with API Gateway's limits and its own terse errors."""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evalward_local.function_pool import FunctionPool
from evalward_local.functions import RequestTooLargeError, TooManyRequestsError
from evalward_local.http_payload import (
    HttpRequest,
    HttpResponse,
    MalformedAnswerError,
    build_event,
    make_request_id,
    read_answer,
)
from evalward_local.http_routes import HttpRoute, choose_route

_log = logging.getLogger(__name__)
type _Message = MutableMapping[str, Any]


@dataclass(frozen=True)
class GatewayLimits:
    """What API Gateway lets through.

    Attributes
    ----------
    body_bytes, header_bytes
        The largest body, and request line and headers together.
    integration_seconds
        How long a function may take.
    queue_seconds
        How long a request waits for a free environment. API Gateway does not wait, but Lambda on an account has a
        thousand environments and this machine has a few.
    """

    body_bytes: int = 10 * 1024 * 1024
    header_bytes: int = 10_240
    integration_seconds: float = 30.0
    queue_seconds: float = 10.0


class HttpFront:
    """An ASGI application that calls functions as API Gateway does.

    Parameters
    ----------
    routes
        Most specific first.
    pools
        The functions by name.
    limits
        API Gateway's.
    """

    def __init__(
        self, routes: list[HttpRoute], pools: Mapping[str, FunctionPool], limits: GatewayLimits | None = None
    ) -> None:
        self._routes = routes
        self._pools = pools
        self._limits = limits or GatewayLimits()

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Serve one request."""
        request_id = make_request_id()
        response = await self._answer(scope, receive, request_id)
        headers = [*response.headers, ("apigw-requestid", request_id)]
        if not any(name == "content-length" for name, _ in headers):
            headers.append(("content-length", str(len(response.body))))
        raw_headers = [(name.encode("latin-1", "replace"), value.encode("utf-8")) for name, value in headers]
        await send({"type": "http.response.start", "status": response.status, "headers": raw_headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else response.body})

    async def _answer(
        self, scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[_Message]], request_id: str
    ) -> HttpResponse:
        header_bytes = len(scope["raw_path"]) + len(scope["query_string"])
        header_bytes += sum(len(name) + len(value) for name, value in scope["headers"])
        if header_bytes > self._limits.header_bytes:
            return _gateway_error(431, "Request Header Fields Too Large")
        body = await self._read_body(receive)
        if body is None:
            return _gateway_error(413, "Request Entity Too Large")
        request = HttpRequest(
            method=scope["method"],
            raw_path=scope["raw_path"].decode("latin-1"),
            raw_query=scope["query_string"].decode("latin-1"),
            headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
            body=body,
            source_ip=(scope.get("client") or ("127.0.0.1", 0))[0],
        )
        chosen = choose_route(self._routes, request.method, request.raw_path)
        if chosen is None:
            return _gateway_error(404, "Not Found")
        route, parameters = chosen
        event = build_event(request, route, parameters, request_id=request_id, now=datetime.now(UTC))
        return await self._call(route, event)

    async def _read_body(self, receive: Callable[[], Awaitable[_Message]]) -> bytes | None:
        """Return the body, or None when it is too large; the rest is read then, so that the client gets the answer."""
        chunks: list[bytes] = []
        total = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(chunks)
            chunk: bytes = message.get("body", b"")
            total += len(chunk)
            if total <= self._limits.body_bytes:
                chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks) if total <= self._limits.body_bytes else None

    async def _call(self, route: HttpRoute, event: dict[str, Any]) -> HttpResponse:
        try:
            result = await self._pools[route.function_name].invoke(
                json.dumps(event, ensure_ascii=False).encode(),
                wait_seconds=self._limits.queue_seconds,
                answer_seconds=self._limits.integration_seconds,
                trace_id=event["headers"]["x-amzn-trace-id"],
            )
        except (TimeoutError, TooManyRequestsError):
            return _gateway_error(503, "Service Unavailable")
        except RequestTooLargeError:
            return _gateway_error(413, "Request Entity Too Large")
        if result.function_error is not None:
            _log.warning("%s failed: %s", route.function_name, result.payload[:500].decode(errors="replace"))
            return _gateway_error(500, "Internal Server Error")
        try:
            return read_answer(result.payload)
        except MalformedAnswerError as error:
            _log.warning("%s: %s", route.function_name, error)
            return _gateway_error(500, "Internal Server Error")


def _gateway_error(status: int, message: str) -> HttpResponse:
    return HttpResponse(status, [("content-type", "application/json")], json.dumps({"message": message}).encode())
