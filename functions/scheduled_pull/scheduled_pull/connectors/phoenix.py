"""Phoenix: traces of a project.

The list of traces has no attributes: spans are read by trace id. Phoenix shows what it has taken in so far, seconds
late, has no notion of a trace in progress, and answers 200 and nothing for a trace it does not know.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from coordination.clock import format_instant

from scheduled_pull.connectors.trace_store import Page, TraceStore, as_object, list_stably, reading, walk_pages
from scheduled_pull.traces import Span, Trace, Window

_PAGE_SIZE = 1000
_BATCH_SIZE = 50


class PhoenixTraces:
    """Traces of one project.

    Parameters
    ----------
    store
        The server.
    project
        Name of Phoenix's project.
    """

    def __init__(self, store: TraceStore, project: str) -> None:
        self._store = store
        self._root = f"/v1/projects/{quote(project, safe='')}"

    def list(self, window: Window) -> Sequence[str]:
        """List the traces whose first span starts in a window."""
        query = [
            ("start_time", format_instant(window.start)),
            ("end_time", format_instant(window.end)),
            ("sort", "start_time"),
            ("order", "asc"),
        ]

        def read_page(token: str | None) -> Page:
            page = self._read_page("traces", query, token)
            with reading("The list of traces"):
                return Page([str(trace["trace_id"]) for trace in page.items], page.next_token)

        return list_stably(read_page)

    def fetch(self, trace_ids: Sequence[str]) -> Sequence[Trace]:
        """Return traces with their spans, also those that have none."""
        traces = {trace_id: Trace(trace_id, []) for trace_id in trace_ids}
        for start in range(0, len(trace_ids), _BATCH_SIZE):
            query = [("trace_id", trace_id) for trace_id in trace_ids[start : start + _BATCH_SIZE]]
            for page in walk_pages(lambda token, query=query: self._read_page("spans", query, token)):
                for span in page:
                    with reading("A span"):
                        trace_id = str(span["context"]["trace_id"])
                    if trace_id in traces:
                        with reading("A span", trace_id):
                            traces[trace_id].spans.append(_read_span(span))
        return list(traces.values())

    def _read_page(self, what: str, query: Sequence[tuple[str, str]], token: str | None) -> Page:
        more = [("limit", str(_PAGE_SIZE)), *([("cursor", token)] if token else [])]
        answer = self._store.call(f"{self._root}/{what}", [*query, *more])
        with reading(f"The list of {what}"):
            found = as_object(answer)
            return Page([as_object(item) for item in found["data"]], found.get("next_cursor"))


def _read_span(span: dict[str, Any]) -> Span:
    attributes = {"openinference.span.kind": span.get("span_kind"), **as_object(span.get("attributes") or {})}
    for event in span.get("events") or []:
        for name, value in as_object(event.get("attributes") or {}).items():
            attributes.setdefault(f"{event.get('name', 'event')}.{name}", value)
    return Span(
        span_id=str(span["context"]["span_id"]),
        parent_id=span.get("parent_id") or None,
        name=str(span.get("name") or ""),
        start=_read_time(span["start_time"]),
        end=_read_time(span["end_time"]) if span.get("end_time") else None,
        attributes=attributes,
        is_error=span.get("status_code") == "ERROR",
    )


def _read_time(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
