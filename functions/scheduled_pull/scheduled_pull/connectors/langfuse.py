"""Langfuse: observations of the project that the keys belong to.

There is no trace object: observations are grouped by their trace, and each trace is read again by its id, since parts
of it may lie outside of the window. Values of metadata are cut at 200 characters unless their names are asked for.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from coordination.clock import format_instant

from scheduled_pull.connectors.trace_store import Page, TraceStore, as_object, list_stably, reading, walk_pages
from scheduled_pull.traces import PullFailedError, Span, Trace, Window

_PAGE_SIZE = 1000
_FIELDS = "core,basic,io,metadata,model,usage"
_CUT_AT = 200
# One call a trace: the time of a pull is for more of them side by side.
_PARALLEL = 4
_KINDS = {"GENERATION": "LLM", "SPAN": "CHAIN", "EVENT": "CHAIN"}
_TIMELESS = "EVENT"
_ATTRIBUTES = {
    "input": "input.value",
    "output": "output.value",
    "providedModelName": "gen_ai.request.model",
    "totalCost": "gen_ai.usage.cost",
    "userId": "user.id",
    "sessionId": "session.id",
    "environment": "langfuse.environment",
    "version": "langfuse.version",
    "statusMessage": "langfuse.status_message",
}
_USAGE = {"input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens"}


class LangfuseTraces:
    """Traces of one project.

    Parameters
    ----------
    store
        The server.
    project
        Id of Langfuse's project; observations of another one mean keys of another one.
    """

    def __init__(self, store: TraceStore, project: str) -> None:
        self._store = store
        self._project = project

    def list(self, window: Window) -> Sequence[str]:
        """List the traces that have observations in a window; some began before it."""
        query = [
            ("fields", "core"),
            ("fromStartTime", format_instant(window.start)),
            ("toStartTime", format_instant(window.end)),
        ]

        def read_page(token: str | None) -> Page:
            page = self._read_page(query, token)
            with reading("The list of observations"):
                ids = [str(observation["traceId"]) for observation in page.items if observation.get("traceId")]
            return Page(list(dict.fromkeys(ids)), page.next_token)

        return list_stably(read_page)

    def fetch(self, trace_ids: Sequence[str]) -> Sequence[Trace]:
        """Return traces with all their observations, also those that have none."""
        with ThreadPoolExecutor(_PARALLEL) as threads:
            return list(threads.map(self._fetch_trace, trace_ids))

    def _fetch_trace(self, trace_id: str) -> Trace:
        observations = self._read_observations(trace_id, "")
        cut = sorted({name for one in observations for name in _list_cut(one.get("metadata"))})
        if any("," in name for name in cut):
            raise PullFailedError(
                "trace_not_usable",
                "A long value of metadata has a comma in its name and cannot be asked for.",
                trace_id,
            )
        if cut:
            observations = self._read_observations(trace_id, ",".join(cut))
        with reading("An observation", trace_id):
            # The same observation may come twice while it is being written.
            return Trace(trace_id, list({span.span_id: span for span in map(_read_span, observations)}.values()))

    def _read_observations(self, trace_id: str, expanded: str) -> Sequence[dict[str, Any]]:
        query = [("fields", _FIELDS), ("traceId", trace_id), *([("expandMetadata", expanded)] if expanded else [])]
        return [item for page in walk_pages(lambda token: self._read_page(query, token)) for item in page]

    def _read_page(self, query: Sequence[tuple[str, str]], token: str | None) -> Page:
        more = [("limit", str(_PAGE_SIZE)), *([("cursor", token)] if token else [])]
        answer = self._store.call("/api/public/v2/observations", [*query, *more])
        with reading("The list of observations"):
            found = as_object(answer)
            items = [as_object(item) for item in found["data"]]
            next_token = as_object(found.get("meta") or {}).get("cursor")
        if any(item.get("projectId", self._project) != self._project for item in items):
            raise PullFailedError("location_refused", "The credentials are those of another Langfuse project.")
        return Page(items, next_token)


def _list_cut(metadata: Any) -> list[str]:
    """Return the names whose values may have been cut."""
    if not isinstance(metadata, dict):
        return []
    return [str(name) for name, value in metadata.items() if isinstance(value, str) and len(value) >= _CUT_AT]


def _read_span(observation: dict[str, Any]) -> Span:
    kind = str(observation.get("type") or "SPAN")
    attributes: dict[str, Any] = {"openinference.span.kind": _KINDS.get(kind, kind)}
    attributes |= {
        name: observation[member] for member, name in _ATTRIBUTES.items() if observation.get(member) is not None
    }
    usage = as_object(observation.get("usageDetails") or {})
    attributes |= {name: usage[member] for member, name in _USAGE.items() if usage.get(member) is not None}
    metadata = observation.get("metadata")
    if isinstance(metadata, dict):
        attributes |= {f"metadata.{name}": value for name, value in metadata.items()}
    elif metadata is not None:
        attributes["metadata"] = metadata
    start = _read_time(observation["startTime"])
    end = _read_time(observation["endTime"]) if observation.get("endTime") else None
    return Span(
        span_id=str(observation["id"]),
        parent_id=observation.get("parentObservationId") or None,
        name=str(observation.get("name") or ""),
        start=start,
        end=start if kind == _TIMELESS and end is None else end,
        attributes=attributes,
        is_error=observation.get("level") == "ERROR",
    )


def _read_time(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
