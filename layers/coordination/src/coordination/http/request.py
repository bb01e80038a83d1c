"""API Gateway's HTTP API event (payload format 2.0), read with all its quirks."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from coordination.errors import Fault, InvalidRequestError


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request.

    Attributes
    ----------
    request_id
        The gateway's id: answered as `x-request-id` and written into every log line of the chain.
    method, path
        Upper-case method; decoded path.
    headers
        Lower-case names; repeated headers are joined with a comma, as the gateway does.
    query
        Pairs in the order they were sent.
    content
        The body's bytes; absent, null and empty bodies are all b"".
    """

    request_id: str
    method: str
    path: str
    headers: Mapping[str, str]
    query: list[tuple[str, str]]
    content: bytes

    def query_fields(self) -> dict[str, str]:
        """Return the query parameters by name.

        Raises
        ------
        InvalidRequestError
            A parameter stands twice.
        """
        fields: dict[str, str] = {}
        for name, value in self.query:
            if name in fields:
                raise InvalidRequestError.at([Fault(f"/{name}", "the query parameter stands twice; send it once")])
            fields[name] = value
        return fields


def read_request_id(event: Mapping[str, Any], fallback: str) -> str:
    """Return the gateway's id of a request, or the fallback when the event has none."""
    return (event.get("requestContext") or {}).get("requestId") or fallback


def read_request(event: Mapping[str, Any], fallback_request_id: str) -> Request:
    """Read an event.

    Raises
    ------
    InvalidRequestError
        The body is marked as base64 and is not; path or query hold characters that no text of ours can hold.
    """
    http = (event.get("requestContext") or {}).get("http") or {}
    path, query = event.get("rawPath") or http.get("path") or "/", event.get("rawQueryString") or ""
    pairs = parse_qsl(query, keep_blank_values=True)
    if not all(_is_storable(text) for text in (path, *(part for pair in pairs for part in pair))):
        raise InvalidRequestError("The address holds a NUL character or half a surrogate pair, which cannot be stored.")
    body = event.get("body") or ""
    if event.get("isBase64Encoded") and body:
        try:
            content = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidRequestError("The body is marked as base64 and is not.") from error
    else:
        content = body.encode("utf-8", "surrogatepass")
    return Request(
        request_id=read_request_id(event, fallback_request_id),
        method=str(http.get("method") or "GET").upper(),
        path=path,
        headers={name.lower(): value for name, value in (event.get("headers") or {}).items()},
        query=pairs,
        content=content,
    )


def _is_storable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)
