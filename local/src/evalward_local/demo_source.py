"""The demonstration's scheduled source: traces in the bucket, a tick, a window that becomes a report."""

import gzip
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from evalward_local.stack_client import StackClient

_SOURCE = "hourly-support"
_TRACES = 24
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
# Made up; each answer of the sample holds one of them.
_PRIVATE = ("ann@example.com", "DE89370400440532013000", "sk-ant-api03-abcDEF1234567890")
_KINDS = {"email": 8, "iban": 8, "provider_key": 8}


class SourceStoryError(Exception):
    """A step did not do what it says; the message is what was seen instead."""


def tell_source(client: StackClient, project: str, key: str, say: Callable[[str], None]) -> Table:
    """Make a source over OTLP files, let two of its ticks pass and check what they became.

    Parameters
    ----------
    client
        Of the running stack.
    project, key
        Where, and a key that may work there.
    say
        Tells a line.

    Returns
    -------
    Table
        The ledger of windows.

    Raises
    ------
    SourceStoryError
        Something was not as it should be.
    """
    sources = f"/v1/projects/{project}/sources"
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    # The last tick but one and the last one; the next one is half an hour away.
    empty = now - 30 * _MINUTE
    full = empty - _HOUR
    _put_files(client, project, full)
    body = {
        "id": _SOURCE,
        "connector": "otlp_s3",
        "location": f"s3://{client.stack.bucket}/traces/{project}/",
        "schedule": {"cron": f"{full.minute} * * * *"},
        "window": {"seconds": 3600, "settle_seconds": 60},
        "starting_deadline_seconds": 4 * 3600,
        "evaluators": [{"name": "pii_leak"}, {"name": "latency", "params": {"max": 5000}}],
        "gates": [{"metric": "pii_leak", "stat": "mean", "min": 1}],
    }
    _call(client, 201, "POST", sources, key, body)
    say(f"{_TRACES} traces in gzip files below traces/{project}/; source {_SOURCE}, cron {full.minute} * * * *")
    _let_ticks_pass(client, project, full - _MINUTE)
    say("time is moved in the database: the source's last two ticks are due")

    client.fire("ScheduledPullPulse")
    windows = _wait_for_windows(client, f"{sources}/{_SOURCE}/windows", key, ["done"])
    run = client.wait_for_run(project, windows[0]["run"])
    report = _call(client, 200, "GET", f"/v1/projects/{project}/runs/{run['id']}/report", key)
    if (report["records"], report["redactions"], report["passed"]) != (_TRACES, _KINDS, True):
        raise SourceStoryError(f"the report says {report['records']} records, {report['redactions']}")
    say(f"its window became run {run['id']}: {report['records']} records, the gate on pii_leak passed")
    say("masked before anything was stored: " + ", ".join(f"{kind} {count}" for kind, count in _KINDS.items()))
    _check_snapshot(client, project, run["id"])
    say("none of them is in the snapshot")

    _let_ticks_pass(client, project, None)
    client.fire("ScheduledPullPulse")
    windows = _wait_for_windows(client, f"{sources}/{_SOURCE}/windows", key, ["empty", "done"])
    if len(client.expect(200, "GET", f"/v1/projects/{project}/runs?source={_SOURCE}", key=key)["items"]) != 1:
        raise SourceStoryError("the empty window made a run")
    say("the next window was empty: decided, and no run")
    return _make_table(windows)


def _put_files(client: StackClient, project: str, tick: datetime) -> None:
    for number in range(_TRACES):
        start = tick - (number + 1) * 2 * _MINUTE
        span = {
            "traceId": f"{number + 1:032x}",
            "spanId": f"{number + 1:016x}",
            "name": "answer",
            "startTimeUnixNano": _nanoseconds(start),
            "endTimeUnixNano": _nanoseconds(start + timedelta(seconds=2)),
            "attributes": [
                {"key": "input.value", "value": {"stringValue": "Where is my refund?"}},
                {"key": "output.value", "value": {"stringValue": f"It goes to {_PRIVATE[number % 3]} today."}},
            ],
        }
        line = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}) + "\n"
        partition = f"{start:year=%Y/month=%m/day=%d/hour=%H/minute=%M}"
        name = f"traces/{project}/{partition}/traces_{number}.json.gz"
        client.s3.put_object(Bucket=client.stack.bucket, Key=name, Body=gzip.compress(line.encode()))


def _let_ticks_pass(client: StackClient, project: str, cursor: datetime | None) -> None:
    params = {"project": project, "source": _SOURCE, "cursor": cursor}
    if cursor is not None:
        client.look(
            "UPDATE scheduler.schedules SET cursor_at = %(cursor)s WHERE tenant_id = %(project)s AND id = %(source)s",
            params,
        )
    client.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp(), sent_at = NULL"
        " WHERE project = %(project)s AND kind = 'source_tick' AND ref_id = %(source)s",
        params,
    )


def _wait_for_windows(client: StackClient, path: str, key: str, states: Sequence[str]) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]] | None:
        windows: list[dict[str, Any]] = _call(client, 200, "GET", path, key)["items"]
        failed = [window["error_code"] for window in windows if window["error_code"] is not None]
        if failed:
            raise SourceStoryError(f"a window failed: {failed}")
        return windows if [window["state"] for window in windows] == list(states) else None

    try:
        return client.wait(look, f"windows that are {' and '.join(states)}")
    except AssertionError as error:
        raise SourceStoryError(str(error)) from error


def _check_snapshot(client: StackClient, project: str, run_id: str) -> None:
    found = client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=f"snapshots/{project}/{run_id}/")
    contents = [
        client.s3.get_object(Bucket=client.stack.bucket, Key=one["Key"])["Body"].read() for one in found["Contents"]
    ]
    if any(private.encode() in content for private in _PRIVATE for content in contents):
        raise SourceStoryError("the snapshot holds what should be masked")


def _make_table(windows: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    for title in ("   window", "state", "traces", "attempts", "run"):
        table.add_column(title, justify="right" if title in ("traces", "attempts") else "left")
    for window in windows:
        span = f"   {window['window']['start']} to {window['window']['end']}"
        table.add_row(
            span, window["state"], str(window["traces"]), str(window["attempts"]), str(window["run"] or "-")[:8]
        )
    return table


def _call(client: StackClient, status: int, method: str, path: str, key: str, body: Any = None) -> Any:
    try:
        return client.expect(status, method, path, key=key, json=body)
    except AssertionError as error:
        raise SourceStoryError(str(error)) from error


def _nanoseconds(instant: datetime) -> str:
    return str(int(instant.timestamp()) * 10**9)
