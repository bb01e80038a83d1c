"""A trace as a record: input, output, context, steps, usage, by the names of OpenTelemetry GenAI and OpenInference.

What has no name of these stays in the metadata, under its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import orjson
from coordination.clock import format_instant
from records.json_pointer import MISSING, look_up, read_pointer

from scheduled_pull.traces import Span, Trace

FIELDS = ("context", "input", "metadata", "output", "reference", "trajectory", "usage")
"""Fields that a mapping may fill."""

_INPUT = ("input.value", "gen_ai.input.messages", "mlflow.spanInputs", "gen_ai.prompt", "traceloop.entity.input")
_OUTPUT = (
    "output.value",
    "gen_ai.output.messages",
    "mlflow.spanOutputs",
    "gen_ai.completion",
    "traceloop.entity.output",
)
_INPUT_MESSAGES = ("llm.input_messages", "gen_ai.prompt")
_OUTPUT_MESSAGES = ("llm.output_messages", "gen_ai.completion")
_KIND = ("openinference.span.kind", "mlflow.spanType", "gen_ai.operation.name", "traceloop.span.kind")
_TOOL_NAME = ("gen_ai.tool.name", "tool.name", "tool_call.function.name")
_TOOL_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_call.function.arguments", "input.value", "mlflow.spanInputs")
_TOOL_OUTPUT = ("gen_ai.tool.call.result", "output.value", "mlflow.spanOutputs")
_DOCUMENTS = ("retrieval.documents", "gen_ai.retrieval.documents")
_SESSION = ("session.id", "gen_ai.conversation.id")
_USAGE = {
    "input_tokens": ("gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens"),
    "output_tokens": ("gen_ai.usage.output_tokens", "llm.token_count.completion", "gen_ai.usage.completion_tokens"),
    "cost_usd": ("gen_ai.usage.cost", "llm.cost.total"),
}
_TYPES = {
    "tool": "tool", "execute_tool": "tool", "llm": "llm", "chat": "llm", "chat_model": "llm", "text_completion": "llm",
    "generate_content": "llm", "retriever": "retrieval", "retrieval": "retrieval", "agent": "agent",
    "invoke_agent": "agent",
}  # fmt: skip
_KNOWN = frozenset({*_INPUT, *_OUTPUT, *_TOOL_NAME, *_TOOL_ARGUMENTS, *_TOOL_OUTPUT, *_DOCUMENTS, *_SESSION})
_KNOWN_PREFIXES = tuple(f"{prefix}." for prefix in (*_INPUT_MESSAGES, *_OUTPUT_MESSAGES, *_DOCUMENTS))


def make_row(trace: Trace, mapping: Mapping[str, str]) -> dict[str, Any]:
    """Make the row of a complete trace.

    Parameters
    ----------
    trace
        Complete: see `traces.require_complete`.
    mapping
        Field -> attribute of the root span, or JSON Pointer into the row; wins over the usual names.

    Returns
    -------
    dict
        JSON values; fields without a value are left out.
    """
    spans = sorted(trace.spans, key=lambda span: (span.start, span.span_id))
    root = trace.root
    attributes = {name: _read_json(value) for name, value in root.attributes.items()}
    row: dict[str, Any] = {
        "id": trace.trace_id,
        "input": _find_text(root, _INPUT, _INPUT_MESSAGES) or _first(spans, _INPUT, _INPUT_MESSAGES),
        "output": _find_text(root, _OUTPUT, _OUTPUT_MESSAGES) or _first(reversed(spans), _OUTPUT, _OUTPUT_MESSAGES),
        "context": _list_documents(spans) or None,
        "trajectory": {"trace_id": trace.trace_id, "steps": [_make_step(span) for span in spans if span is not root]},
        "usage": _sum_usage(spans) | {"latency_ms": _milliseconds(root)},
        "metadata": {
            "name": root.name,
            "start_time": format_instant(root.start),
            "is_error": root.is_error,
            "attributes": _list_unknown(root),
            "resource": trace.resource,
            "tags": trace.tags,
        },
    }
    session = _find(root.attributes, _SESSION)
    if isinstance(session, str):
        row["trajectory"]["session_id"] = session
    for field, place in mapping.items():
        value = look_up(row, read_pointer(place)) if place.startswith("/") else attributes.get(place, MISSING)
        row[field] = None if value is MISSING else value
    return {name: value for name, value in row.items() if value is not None}


def _list_unknown(span: Span) -> dict[str, Any]:
    """Return the attributes that no field of a record is filled from."""
    return {
        name: _read_json(value)
        for name, value in span.attributes.items()
        if name not in _KNOWN and not name.startswith(_KNOWN_PREFIXES)
    }


def _find(attributes: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((attributes[name] for name in names if attributes.get(name) not in (None, "")), None)


def _find_text(span: Span, names: Iterable[str], messages: Iterable[str]) -> Any:
    value = _find(span.attributes, names)
    if value is not None:
        return _read_json(value)
    return next((found for prefix in messages if (found := _gather(span.attributes, prefix))), None)


def _first(spans: Iterable[Span], names: Iterable[str], messages: Iterable[str]) -> Any:
    """Return what the first of these spans that calls a model says; the root itself said nothing."""
    for span in spans:
        if _type_of(span) == "llm":
            value = _find_text(span, names, messages)
            if value is not None:
                return value
    return None


def _gather(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """Put a list together that was written as `prefix.0.message.role`, `prefix.0.message.content` and so on."""
    items: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            number, _, rest = name[len(prefix) + 1 :].partition(".")
            if number.isascii() and number.isdigit() and len(number) < 6:
                items.setdefault(int(number), {})[rest.removeprefix("message.").removeprefix("document.")] = value
    return [items[number] for number in sorted(items)]


def _list_documents(spans: Iterable[Span]) -> list[Any]:
    documents: list[Any] = []
    for span in spans:
        for name in _DOCUMENTS:
            found = _read_json(span.attributes.get(name)) or _gather(span.attributes, name)
            for document in cast("list[Any]", found) if isinstance(found, list) else []:
                content = cast("dict[str, Any]", document).get("content") if isinstance(document, dict) else document
                documents.append(document if content is None else content)
    return documents


def _type_of(span: Span) -> str:
    kind = _find(span.attributes, _KIND)
    return _TYPES.get(str(kind).lower(), "span") if kind is not None else "span"


def _make_step(span: Span) -> dict[str, Any]:
    step: dict[str, Any] = {
        "type": _type_of(span),
        "name": span.name,
        "start_time": format_instant(span.start),
        "end_time": format_instant(span.end) if span.end else None,
        "attributes": _list_unknown(span),
    }
    if step["type"] == "tool":
        name = _find(span.attributes, _TOOL_NAME)
        step |= {
            "name": name if isinstance(name, str) else span.name,
            "args": _read_json(_find(span.attributes, _TOOL_ARGUMENTS)),
            "output": _read_json(_find(span.attributes, _TOOL_OUTPUT)),
        }
    return {name: value for name, value in step.items() if value is not None}


def _sum_usage(spans: Iterable[Span]) -> dict[str, Any]:
    """Add up tokens and cost; a span whose inner spans count them is a sum already and is passed over."""
    by_id = {span.span_id: span for span in spans}
    usage: dict[str, Any] = {}
    for name, attributes in _USAGE.items():
        counted = {span.span_id: number for span in by_id.values() if (number := _number(span, attributes)) is not None}
        sums: set[str] = set()
        for span_id in counted:
            parent, seen = by_id[span_id].parent_id, {span_id}
            # Whoever was here before has gone up to the root.
            while parent is not None and parent in by_id and parent not in seen and parent not in sums:
                seen.add(parent)
                sums.add(parent)
                parent = by_id[parent].parent_id
        leaves = [number for span_id, number in counted.items() if span_id not in sums]
        if leaves:
            total = sum(leaves)
            usage[name] = total if name == "cost_usd" else int(total)
    return usage


def _number(span: Span, names: Iterable[str]) -> int | float | None:
    value = _find(span.attributes, names)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value < 1e15 else None


def _milliseconds(span: Span) -> float:
    assert span.end is not None  # noqa: S101 - the trace is complete
    return (span.end - span.start).total_seconds() * 1000


def _read_json(value: Any) -> Any:
    """Return a text that is a JSON object or list as such; anything else unchanged."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value
