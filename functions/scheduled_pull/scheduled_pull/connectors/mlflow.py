"""MLflow 3: traces of an experiment.

A search is paged by offset, and `{}` is its answer both for an empty experiment and for an unknown one. `batchGet`
leaves out ids it does not know, and answers 500 for all when one trace has no spans: the culprit is found by halving.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from scheduled_pull.connectors.trace_store import Page, TraceStore, as_object, list_stably, reading
from scheduled_pull.otlp_json import read_span
from scheduled_pull.traces import PullFailedError, Trace, Window

_PAGE_SIZE = 500
# Ids stand in the address, and servers take lines of 4 KiB.
_BATCH_SIZE = 50
_ROOT = "/api/3.0/mlflow/traces"
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SERVER_ERROR = 500


class MlflowTraces:
    """Traces of one experiment.

    Parameters
    ----------
    store
        The server.
    experiment
        Its id.
    """

    def __init__(self, store: TraceStore, experiment: str) -> None:
        self._store = store
        self._experiment = experiment

    def list(self, window: Window) -> Sequence[str]:
        """Search the traces whose first span starts in a window, milliseconds rounded outwards."""
        # The store floors starts to milliseconds.
        first = (window.start - _EPOCH) // _MILLISECOND
        last = -((_EPOCH - window.end) // _MILLISECOND)
        search = {
            "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self._experiment}}],
            "filter": f"trace.timestamp_ms >= {first} AND trace.timestamp_ms < {last}",
            "max_results": _PAGE_SIZE,
            "order_by": ["timestamp_ms ASC"],
        }

        def read_page(token: str | None) -> Page:
            answer = self._store.call(f"{_ROOT}/search", body=search | ({"page_token": token} if token else {}))
            with reading("The list of traces"):
                found = as_object(answer)
                return Page([str(trace["trace_id"]) for trace in found.get("traces", [])], found.get("next_page_token"))

        return list_stably(read_page)

    def fetch(self, trace_ids: Sequence[str]) -> Sequence[Trace]:
        """Return traces with their spans; one without spans is named in the error."""
        batches = [trace_ids[start : start + _BATCH_SIZE] for start in range(0, len(trace_ids), _BATCH_SIZE)]
        return [trace for batch in batches for trace in self._fetch_batch(batch)]

    def _fetch_batch(self, trace_ids: Sequence[str]) -> Iterator[Trace]:
        passed = frozenset({_SERVER_ERROR})
        try:
            answer = self._store.call(f"{_ROOT}/batchGet", [("trace_ids", one) for one in trace_ids], passed=passed)
        except PullFailedError as error:
            if error.code != "answer_too_large" or len(trace_ids) == 1:
                raise
            answer = _SERVER_ERROR
        if answer != _SERVER_ERROR:
            with reading("A trace"):
                found: list[Any] = as_object(answer).get("traces", [])
                ids = [str(one["trace_info"]["trace_id"]) for one in found]
            for trace_id, trace in zip(ids, found, strict=True):
                yield _read_trace(trace_id, trace)
        elif len(trace_ids) > 1:
            half = len(trace_ids) // 2
            yield from self._fetch_batch(trace_ids[:half])
            yield from self._fetch_batch(trace_ids[half:])
        else:
            # Only a store that is well and knows the trace says that it is the trace's fault.
            self._store.call(f"{_ROOT}/{quote(trace_ids[0], safe='')}")
            raise PullFailedError(
                "trace_without_spans", "The store has the trace, but cannot hand over its spans.", trace_ids[0]
            )


def _read_trace(trace_id: str, trace: dict[str, Any]) -> Trace:
    with reading("A trace", trace_id):
        info = as_object(trace["trace_info"])
        tags = {**as_object(info.get("trace_metadata", {})), **as_object(info.get("tags", {}))}
        return Trace(
            trace_id,
            [read_span(as_object(span)) for span in trace.get("spans", [])],
            # Where the server keeps its files is nobody's business.
            tags={name: value for name, value in tags.items() if name != "mlflow.artifactLocation"},
            is_in_progress=info.get("state") == "IN_PROGRESS",
        )
