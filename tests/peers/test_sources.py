"""A source evaluates exactly the traces of its window, on each real store; time is moved in rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from coordination.clock import Deadline
from coordination.ports.http_calls import HttpCalls
from evalward_local.stack_client import StackClient
from scheduled_pull.collect_traces import collect_traces
from scheduled_pull.connectors.mlflow import MlflowTraces
from scheduled_pull.connectors.phoenix import PhoenixTraces
from scheduled_pull.connectors.trace_store import TraceStore
from scheduled_pull.traces import Window

if TYPE_CHECKING:
    from peers.conftest import Peer, PeerSpan

MICROSECOND, SECOND, MINUTE, HOUR = (
    timedelta(microseconds=1),
    timedelta(seconds=1),
    timedelta(minutes=1),
    timedelta(hours=1),
)
SAID = {"input.value": "a question", "output.value": "an answer", "openinference.span.kind": "CHAIN"}
SOURCE = "hourly"


@pytest.fixture
def tick() -> datetime:
    """Return a tick that is over and whose source may still work on it."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - 20 * MINUTE


@pytest.fixture
def work_on(client: StackClient, project: str, peer: Peer, tick: datetime) -> Callable[..., Any]:
    """Return a function that makes the hourly source if there is none, lets its tick be due and returns its window."""

    def work(**fields: Any) -> Any:
        body = {
            "id": SOURCE,
            "connector": peer.connector,
            "endpoint": peer.server.url,
            "location": peer.location,
            "schedule": {"cron": f"{tick.minute} * * * *"},
            "window": {"seconds": 3600, "settle_seconds": 0},
            "evaluators": [{"name": "length"}],
            **fields,
        }
        client.expect(201, "POST", f"/v1/projects/{project}/sources", json=body, idempotency_key=SOURCE)
        moved = {"at": tick - MINUTE, "project": project}
        client.look(
            "UPDATE scheduler.schedules SET cursor_at = %(at)s WHERE tenant_id = %(project)s AND cursor_at <> %(at)s",
            moved,
        )
        client.look(
            "UPDATE evals.source_windows SET next_attempt_at = clock_timestamp()"
            " WHERE tenant_id = %(project)s AND next_attempt_at IS NOT NULL",
            moved,
        )
        client.look(
            "UPDATE coordination.wake_ups SET due_at = clock_timestamp(), sent_at = NULL"
            " WHERE project = %(project)s AND kind = 'source_tick'",
            moved,
        )
        client.fire("ScheduledPullPulse")
        client.drain()
        (window,) = client.expect(200, "GET", f"/v1/projects/{project}/sources/{SOURCE}/windows")["items"]
        return window

    return work


@pytest.fixture
def read_records(client: StackClient, project: str) -> Callable[[Any], list[str]]:
    """Return a function that returns the ids of the records of a window's run, in order."""

    def read(window: Any) -> list[str]:
        run = client.wait_for_run(project, window["run"])
        assert run["state"] == "succeeded"
        ids: list[str] = []
        path, cursor = f"/v1/projects/{project}/runs/{run['id']}/results?limit=200", ""
        while True:
            page = client.expect(200, "GET", path + (f"&cursor={cursor}" if cursor else ""))
            ids += [result["record"] for result in page["items"]]
            cursor = page["next_cursor"]
            if not cursor:
                return ids

    return read


def test_exactly_the_traces_of_the_window_are_evaluated(
    client: StackClient,
    project: str,
    peer: Peer,
    tick: datetime,
    make_span: Callable[..., PeerSpan],
    work_on: Callable[..., Any],
    read_records: Callable[[Any], list[str]],
) -> None:
    start = tick - HOUR
    peer.push(
        [
            make_span(1, 1, start - MICROSECOND, attributes=SAID),
            make_span(2, 1, start, attributes=SAID),
            make_span(3, 1, start + 30 * MINUTE, attributes=SAID),
            make_span(3, 2, start + 30 * MINUTE + SECOND, parent=1),
            make_span(4, 1, tick - MICROSECOND, attributes=SAID),
            make_span(5, 1, tick, attributes=SAID),
            # Began before the window, with a part inside of it.
            make_span(6, 1, start - MINUTE, seconds=120.0, attributes=SAID),
            make_span(6, 2, start + SECOND, parent=1),
            # Begins in the window and ends after it.
            make_span(7, 1, tick - SECOND, seconds=60.0, attributes=SAID),
            make_span(7, 2, tick + SECOND, parent=1),
            # Its root comes later, below.
            make_span(8, 2, start + 2 * SECOND, parent=1),
            # As above, and the root is the one that lies in the window.
            make_span(9, 2, tick + SECOND, parent=1),
        ]
    )
    peer.push(
        [
            make_span(8, 1, start - SECOND, seconds=10.0, attributes=SAID),
            make_span(9, 1, tick - SECOND, seconds=10.0, attributes=SAID),
        ]
    )

    window = work_on()

    assert (window["state"], window["traces"]) == ("done", 5), window
    expected = [peer.name_of(trace) for trace in (2, 3, 7, 9, 4)]
    assert read_records(window) == expected
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{window['run']}/report")
    assert report["records"] == 5


def test_trace_in_progress_waits_and_is_evaluated_once(
    peer: Peer,
    tick: datetime,
    make_span: Callable[..., PeerSpan],
    work_on: Callable[..., Any],
    read_records: Callable[[Any], list[str]],
) -> None:
    start = tick - 10 * MINUTE
    peer.push([make_span(1, 1, start, attributes=SAID), make_span(2, 2, start, parent=1)])
    window = work_on()
    assert (window["state"], window["error_code"]) == ("working", "trace_in_progress"), window
    assert window["trace_id"] == peer.name_of(2)
    peer.push([make_span(2, 1, start, seconds=2.0, attributes=SAID)])
    window = work_on()
    assert (window["state"], window["traces"]) == ("done", 2), window
    assert read_records(window) == [peer.name_of(1), peer.name_of(2)]


def test_root_without_an_end_is_in_progress_whatever_the_store_says(
    peer: Peer, tick: datetime, make_span: Callable[..., PeerSpan], work_on: Callable[..., Any]
) -> None:
    peer.push([make_span(1, 1, tick - MINUTE, seconds=None, attributes=SAID)])
    window = work_on()
    assert (window["state"], window["error_code"]) == ("working", "trace_in_progress"), window
    assert window["trace_id"] == peer.name_of(1)


def test_poisoned_trace_is_named_and_passed_over_on_request(
    client: StackClient,
    project: str,
    peer: Peer,
    tick: datetime,
    make_span: Callable[..., PeerSpan],
    work_on: Callable[..., Any],
    read_records: Callable[[Any], list[str]],
) -> None:
    start = tick - 10 * MINUTE
    # More than one call fetches, so that the culprit is to be found among many.
    peer.add_poisoned(77, start + 77 * SECOND)
    good = [trace for trace in range(2, 120) if trace != 77]
    peer.push([make_span(trace, 1, start + trace * SECOND, attributes=SAID) for trace in good])
    window = work_on()
    assert (window["state"], window["error_code"]) == ("working", "trace_without_spans"), window
    assert window["trace_id"] == peer.name_of(77)

    path = f"/v1/projects/{project}/sources/{SOURCE}/windows/{window['window']['start']}/run"
    client.expect(202, "POST", path, json={"exclude_trace_ids": [peer.name_of(77)]})
    client.drain()
    (window,) = client.expect(200, "GET", f"/v1/projects/{project}/sources/{SOURCE}/windows")["items"]
    assert window["state"] == "done", window
    assert read_records(window) == [peer.name_of(trace) for trace in good]
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{window['run']}/report")
    assert report["excluded_traces"] == [peer.name_of(77)]


def test_2000_traces_over_several_pages_with_arrivals_while_they_are_read(
    peer: Peer,
    tick: datetime,
    make_span: Callable[..., PeerSpan],
    work_on: Callable[..., Any],
    read_records: Callable[[Any], list[str]],
) -> None:
    start = tick - HOUR
    early = [make_span(trace, 1, start + trace * SECOND, attributes=SAID) for trace in range(1, 2001)]
    peer.push([make_span(trace, 1, tick + SECOND, attributes=SAID) for trace in (9001, 9002)])
    peer.push(early)
    # These move to an earlier place while the list is read: their roots arrive.
    late_roots = [make_span(trace, 2, tick - SECOND, parent=1) for trace in (3001, 3002)]
    peer.push(late_roots)
    arrivals = [make_span(trace, 1, start, seconds=5.0, attributes=SAID) for trace in (3001, 3002, 4001, 4002, 4003)]

    class StoreWithArrivals(TraceStore):
        """The store, to which traces come between its first and its second page."""

        is_read = False

        def call(self, path: str, *arguments: Any, **options: Any) -> Any:
            answer = super().call(path, *arguments, **options)
            if not self.is_read:
                self.is_read = True
                peer.push(arrivals)
            return answer

    calls = HttpCalls({"*": [peer.server.host]})
    deadline = Deadline(time.monotonic() + 90)
    store = StoreWithArrivals(calls, "demo", peer.server.url, lambda: None, deadline)
    connector = (MlflowTraces if peer.connector == "mlflow" else PhoenixTraces)(store, peer.location)
    traces = collect_traces(connector, Window(start, tick), frozenset(), 10_000, deadline)
    expected = {peer.name_of(span.trace) for span in [*early, *arrivals]}
    assert len(traces) == len({trace.trace_id for trace in traces})
    assert {trace.trace_id for trace in traces} == expected

    window = work_on(max_traces=5000)
    assert (window["state"], window["traces"]) == ("done", 2005), window
    assert set(read_records(window)) == expected
