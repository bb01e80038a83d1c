"""Read a window's traces out of a store: all of them, each once, complete, or none."""

from coordination.clock import Deadline

from scheduled_pull.connectors.port import Connector
from scheduled_pull.traces import PullFailedError, Trace, Window, require_complete

_FETCH_SIZE = 100


def collect_traces(
    connector: Connector, window: Window, excluded: frozenset[str], max_traces: int, deadline: Deadline
) -> list[Trace]:
    """Return the complete traces that start in a window, those in `excluded` left out.

    Raises
    ------
    PullFailedError
        There are more than `max_traces`, one cannot be fetched, has no spans or is not finished, or the time is over.
    """
    # Offset paging repeats rows when something arrives: each id counts once.
    wanted = [trace_id for trace_id in dict.fromkeys(connector.list(window)) if trace_id not in excluded]
    if len(wanted) > max_traces:
        raise PullFailedError(
            "too_many_traces",
            f"The window has {len(wanted)} traces, max_traces allows {max_traces}. Take a shorter window, or raise the "
            "limit: nothing is left out silently.",
        )
    traces: list[Trace] = []
    for start in range(0, len(wanted), _FETCH_SIZE):
        if deadline.remaining_seconds() < 0:
            raise PullFailedError("pull_timeout", "The traces of the window could not be fetched in time.")
        batch = wanted[start : start + _FETCH_SIZE]
        fetched = {trace.trace_id: trace for trace in connector.fetch(batch)}
        for trace_id in batch:
            if trace_id not in fetched:
                raise PullFailedError("trace_missing", "The trace was listed and cannot be fetched.", trace_id)
            require_complete(fetched[trace_id])
            # Stores differ about the ends of a window.
            if window.has(fetched[trace_id].start):
                traces.append(fetched[trace_id])
    return traces
