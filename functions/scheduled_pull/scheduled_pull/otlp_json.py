"""OTLP in JSON: 64-bit integers as texts, ids in hex or base64.

Names are in camel case, as the Collector writes them, or with underscores, as MLflow does.
"""

import base64
import binascii
import io
import json
from collections.abc import Iterator
from typing import Any, cast

import orjson

from scheduled_pull.traces import Span, Trace, floor_nanoseconds

_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8
_STATUS_ERROR = (2, "STATUS_CODE_ERROR")


class OtlpError(ValueError):
    """The text is no OTLP traces; the message says what is wrong and holds nothing of it."""


def read_traces_data(content: bytes) -> Iterator[Trace]:
    """Yield the parts of traces that a file holds: one TracesData, or one a line.

    A trace may come in several parts, here and in other files: see `TraceParts`. Lines are read one at a time.

    Raises
    ------
    OtlpError
        It is no OTLP JSON.
    """
    is_first = True
    for line in io.BytesIO(content):
        if not line.strip():
            continue
        try:
            document = _load(line)
        except OtlpError:
            if not is_first:
                raise
            # Not one a line, then one written over several lines.
            yield from _read_document(_load(content))
            return
        is_first = False
        yield from _read_document(document)


class TraceParts:
    """Traces put together from parts that come in any order.

    Attributes
    ----------
    traces
        By id.
    """

    def __init__(self) -> None:
        self.traces: dict[str, Trace] = {}
        # Where each span of a trace is: a trace may come in as many parts as it has spans.
        self._places: dict[str, dict[str, int]] = {}

    def add(self, part: Trace) -> None:
        """Add a part of a trace; a span that comes twice counts once, the one with an end."""
        known = self.traces.setdefault(part.trace_id, Trace(part.trace_id, [], part.resource))
        places = self._places.setdefault(part.trace_id, {})
        for span in part.spans:
            place = places.setdefault(span.span_id, len(known.spans))
            if place == len(known.spans):
                known.spans.append(span)
            elif known.spans[place].end is None:
                known.spans[place] = span
        if known.resource is not part.resource:
            known.resource = part.resource | known.resource


def _load(content: bytes) -> dict[str, Any]:
    document = read_json(content)
    if not isinstance(document, dict):
        raise OtlpError("a line is no JSON object")
    return cast("dict[str, Any]", document)


def read_json(content: bytes) -> Any:
    """Return a JSON value; half a surrogate pair and invalid UTF-8 in texts become U+FFFD.

    Raises
    ------
    OtlpError
        It is not JSON.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return _load_leniently(content)


def _load_leniently(content: bytes) -> Any:
    """Read text with half a surrogate pair or invalid UTF-8 in it, as models write it, with U+FFFD in its place."""
    try:
        document = json.loads(content.decode("utf-8", "replace"))
        text = json.dumps(document, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OtlpError("a line is not JSON") from error


def _read_document(document: dict[str, Any]) -> Iterator[Trace]:
    try:
        for resource_spans in _items(document, "resourceSpans"):
            resource = read_attributes(_items(resource_spans.get("resource") or {}, "attributes"))
            by_trace: dict[str, list[Span]] = {}
            scopes = [*_items(resource_spans, "scopeSpans"), *_items(resource_spans, "instrumentationLibrarySpans")]
            for scope_spans in scopes:
                for span in _items(scope_spans, "spans"):
                    trace_id = _read_id(_member(span, "traceId"), _TRACE_ID_BYTES)
                    by_trace.setdefault(trace_id, []).append(read_span(span))
            for trace_id, spans in by_trace.items():
                yield Trace(trace_id, spans, dict(resource))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise OtlpError(f"a span is not as OTLP has it ({type(error).__name__})") from error


def _member(parent: dict[str, Any], name: str) -> Any:
    """Return a member in either spelling, None when it is absent."""
    value = parent.get(name)
    return parent.get("".join(f"_{c.lower()}" if c.isupper() else c for c in name)) if value is None else value


def _items(parent: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return _member(parent, name) or []


def read_span(span: dict[str, Any]) -> Span:
    """Return a span.

    Raises
    ------
    KeyError, TypeError, AttributeError, ValueError, OverflowError
        It is not as OTLP has it.
    """
    parent = _member(span, "parentSpanId") or ""
    end = int(_member(span, "endTimeUnixNano") or 0)
    status: Any = span.get("status") or {}
    attributes = read_attributes(_items(span, "attributes"))
    for event in _items(span, "events"):
        # Messages and exceptions come as events; what an attribute says already is not overruled.
        for name, value in read_attributes(_items(event, "attributes")).items():
            attributes.setdefault(f"{event.get('name', 'event')}.{name}", value)
    parent_id = _read_id(parent, _SPAN_ID_BYTES) if parent else ""
    return Span(
        span_id=_read_id(_member(span, "spanId"), _SPAN_ID_BYTES),
        parent_id=None if not parent_id.strip("0") else parent_id,
        name=str(span.get("name") or ""),
        start=floor_nanoseconds(int(_member(span, "startTimeUnixNano"))),
        end=floor_nanoseconds(end) if end else None,
        attributes=attributes,
        is_error=status.get("code") in _STATUS_ERROR,
    )


def _read_id(text: str, size: int) -> str:
    """Return an id in hex, whichever of the two ways it was written."""
    if len(text) == 2 * size:
        return bytes.fromhex(text).hex()
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise OtlpError("an id is neither hex nor base64") from error
    if len(raw) != size:
        raise OtlpError("an id has another length than OTLP's")
    return raw.hex()


def read_attributes(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return attributes as JSON values by name."""
    return {str(one["key"]): read_value(one.get("value") or {}) for one in attributes}


def read_value(value: dict[str, Any]) -> Any:
    """Return an AnyValue as a JSON value."""
    for kind, content in value.items():
        match kind:
            case "stringValue" | "string_value" | "bytesValue" | "bytes_value":
                return str(content)
            case "intValue" | "int_value":
                return int(content)
            case "doubleValue" | "double_value":
                # NaN and infinities are texts in proto3 JSON, and stay texts.
                return content if isinstance(content, str) else float(content)
            case "boolValue" | "bool_value":
                return bool(content)
            case "arrayValue" | "array_value":
                return [read_value(item) for item in _items(content, "values")]
            case "kvlistValue" | "kvlist_value":
                return read_attributes(_items(content, "values"))
            case _:
                pass
    return None
