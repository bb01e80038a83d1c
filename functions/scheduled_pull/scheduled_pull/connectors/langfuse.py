"""Langfuse: observations of the project that the keys belong to.

There is no trace object: observations are grouped by their trace, and the traces are read again by their ids, many with
one call, since parts of them may lie outside of the window. Values of metadata are cut at 200 characters unless their
names are asked for.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import orjson
from coordination.clock import format_instant

from scheduled_pull.connectors.trace_store import Page, TraceStore, as_object, list_stably, reading, walk_pages
from scheduled_pull.traces import PullFailedError, Span, Trace, Window

_PAGE_SIZE = 1000
_FIELDS = "core,basic,io,metadata,model,usage"
_CUT_AT = 200
# Ids stand in the address, and servers take lines of 4 KiB; they are anything that a client of Langfuse has chosen.
_BATCH_SIZE = 50
_BATCH_CHARACTERS = 2500
_SEPARATOR_CHARACTERS = len("%22%2C%22")
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

type _Observations = list[dict[str, Any]]


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
        return [trace for batch in _cut_batches(trace_ids) for trace in self._fetch_batch(batch)]

    def _fetch_batch(self, trace_ids: Sequence[str]) -> Iterator[Trace]:
        found = self._read_observations(trace_ids, [])
        # Together those with the same names: together all names might not fit into an address.
        cut: dict[tuple[str, ...], list[str]] = {}
        for trace_id, observations in found.items():
            if names := _list_cut(trace_id, observations):
                cut.setdefault(names, []).append(trace_id)
        for names, ids in cut.items():
            found |= self._read_observations(ids, names)
        for trace_id, observations in found.items():
            with reading("An observation", trace_id):
                # The same observation may come twice while it is being written.
                spans = {span.span_id: span for span in map(_read_span, observations)}
            yield Trace(trace_id, list(spans.values()))

    def _read_observations(self, trace_ids: Sequence[str], expanded: Sequence[str]) -> dict[str, _Observations]:
        """Return the observations of each trace; fewer traces at a time when the answer is too large."""
        condition = {"type": "stringOptions", "column": "traceId", "operator": "any of", "value": trace_ids}
        query = [("fields", _FIELDS), ("filter", orjson.dumps([condition]).decode())]
        if expanded:
            query.append(("expandMetadata", ",".join(expanded)))
        found: dict[str, _Observations] = {trace_id: [] for trace_id in trace_ids}
        try:
            for page in walk_pages(lambda token: self._read_page(query, token)):
                # A server that does not know the filter answers with whatever it has.
                with reading("The list of observations"):
                    for observation in page:
                        found[observation["traceId"]].append(observation)
        except PullFailedError as error:
            if error.code != "answer_too_large" or len(trace_ids) == 1:
                raise
            half = len(trace_ids) // 2
            return self._read_observations(trace_ids[:half], expanded) | self._read_observations(
                trace_ids[half:], expanded
            )
        return found

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


def _cut_batches(trace_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    batch: list[str] = []
    characters = 0
    for trace_id in trace_ids:
        length = len(quote_plus(trace_id)) + _SEPARATOR_CHARACTERS
        if batch and (len(batch) == _BATCH_SIZE or characters + length > _BATCH_CHARACTERS):
            yield batch
            batch, characters = [], 0
        batch.append(trace_id)
        characters += length
    if batch:
        yield batch


def _list_cut(trace_id: str, observations: _Observations) -> tuple[str, ...]:
    """Return the names of metadata whose values may have been cut, in order.

    Raises
    ------
    PullFailedError
        One of them has a comma, which separates names.
    """
    names = {
        str(name)
        for observation in observations
        if isinstance(observation.get("metadata"), dict)
        for name, value in observation["metadata"].items()
        if isinstance(value, str) and len(value) >= _CUT_AT
    }
    if any("," in name for name in names):
        raise PullFailedError(
            "trace_not_usable", "A long value of metadata has a comma in its name and cannot be asked for.", trace_id
        )
    return tuple(sorted(names))


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
