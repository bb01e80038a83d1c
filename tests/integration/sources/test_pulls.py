from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import scheduled_pull.connectors.otlp_s3
import scheduled_pull.pull_source
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.leases import take_lease
from coordination.ports.objects import StoredObject
from coordination.settings import TransactionSettings
from scheduled_pull.pull_source import pull_source
from scheduled_pull.send_due_sources import send_due_sources
from scheduled_pull.traces import PullFailedError

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.sources.conftest import World

HOUR, MINUTE, MICROSECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(microseconds=1)


def test_window_becomes_a_run_with_a_report(world: World) -> None:
    world.create(
        evaluators=[{"name": "length"}, {"name": "pii_leak"}],
        labels={"team": "support"},
        sinks=[{"kind": "s3", "prefix": "exports/demo/nightly/"}],
    )
    tick = world.last_tick()
    trace = world.add_trace(tick - 30 * MINUTE, output="write to ann@example.com")
    world.set_cursor(tick - MINUTE)

    assert world.pulse() == 1
    world.pull()
    world.finish_runs()

    (run,) = world.runs()
    assert run["state"] == "succeeded"
    assert run["dataset"] is None
    assert datetime.fromisoformat(run["source"]["window_end"]) == tick
    assert run["labels"] == {"team": "support"}
    assert [(sink["prefix"], sink["state"]) for sink in run["sinks"]] == [("exports/demo/nightly/", "queued")]
    assert run["created_by"] == "source:nightly"
    report = world.service.get(f"/v1/projects/demo/runs/{run['id']}/report").json
    assert report["redactions"] == {"email": 1}
    assert report["records"] == 1
    assert report["excluded_traces"] == []
    (result, _) = world.service.get(f"/v1/projects/demo/runs/{run['id']}/results").json["items"]
    assert result["record"] == trace
    (window,) = world.windows()
    assert (window["state"], window["traces"], window["run"], window["attempts"]) == ("done", 1, run["id"], 1)
    (tick_row,) = world.database.look("SELECT state, finished_at FROM scheduler.runs")
    assert tick_row["state"] == "completed"
    assert tick_row["finished_at"] is not None
    assert world.database.look("SELECT state, traces FROM scheduler.graph_jobs") == [
        {"state": "completed", "traces": 1}
    ]
    assert world.service.get("/v1/projects/demo/runs", query="source=nightly").json["items"] == [run]
    assert world.service.get("/v1/projects/demo/runs", query="source=other").json["items"] == []
    summary = world.service.get("/v1/projects/demo/sources/nightly/summary").json
    assert summary["last_tick"]["run_state"] == "succeeded"


def test_empty_window_moves_the_cursor_and_makes_no_run(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.runs() == []
    assert datetime.fromisoformat(world.read()["cursor"]) == tick
    assert [window["state"] for window in world.windows()] == ["empty"]
    assert world.database.look("SELECT state FROM scheduler.runs") == [{"state": "completed"}]


def test_same_pulse_three_times_and_once_late_is_one_run(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    assert [world.pulse() for _ in range(3)] == [1, 0, 0]
    for _ in range(3):
        world.pull()
    world.finish_runs()
    (run,) = world.runs()
    # Six hours go by without a pulse; then one comes, and the message of the first one a second time.
    world.environment.objects.delete(world.stored_keys("traces/"))
    world.database.look("UPDATE scheduler.schedules SET cursor_at = cursor_at - interval '6 hours'")
    world.database.look(
        "UPDATE evals.source_windows SET tick_at = tick_at - interval '6 hours',"
        " window_start = window_start - interval '6 hours', window_end = window_end - interval '6 hours'"
    )
    world.make_due()
    assert [world.pulse() for _ in range(2)] == [1, 0]
    for _ in range(3):
        world.pull()
    assert world.runs() == [run]
    states = [window["state"] for window in world.windows()]
    assert states == ["done"] + ["missed_deadline"] * 5 + ["empty"]


def test_200_parallel_pulses_are_one_run_a_window(
    world: World, make_environments: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    environments = [make_environments() for _ in range(10)]
    start = threading.Barrier(10)

    def pulse(environment: Environment) -> None:
        start.wait(30)
        for _ in range(20):
            send_due_sources(environment, _invocation())
            pull_source(environment, "demo", "nightly", _invocation())

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(pulse, environments))
    assert len(world.runs()) == 1
    assert len(world.windows()) == 1
    assert world.database.look_up("SELECT count(*) AS n FROM scheduler.runs") == 1


def test_traces_at_the_ends_of_a_window(world: World) -> None:
    world.create()
    tick = world.last_tick()
    start = tick - HOUR
    inside = [world.add_trace(start), world.add_trace(tick - MICROSECOND)]
    world.add_trace(tick)
    world.add_trace(start - MICROSECOND)
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    (run,) = world.runs()
    results = world.service.get(f"/v1/projects/demo/runs/{run['id']}/results").json["items"]
    assert [result["record"] for result in results] == inside


def test_tick_is_due_exactly_at_its_settle_time_and_not_before(world: World) -> None:
    world.create(window={"seconds": 3600, "settle_seconds": 3600}, starting_deadline_seconds=7200)
    tick = world.last_tick()
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.windows() == []
    due = world.database.look_up("SELECT due_at FROM coordination.wake_ups WHERE kind = 'source_tick'")
    assert due == tick + HOUR


def test_hourly_source_after_five_hours_with_a_deadline_of_three_makes_three_reports(world: World) -> None:
    world.create(starting_deadline_seconds=3 * 3600)
    last = world.last_tick()
    for hour in range(6):
        world.add_trace(last - hour * HOUR - MINUTE)
    world.set_cursor(last - 5 * HOUR)
    for _ in range(6):
        world.make_due()
        world.pull()
        world.finish_runs()
    assert len(world.runs()) == 3
    source = world.read()
    assert (source["missed_deadline"], source["missed_overlap"]) == (2, 0)
    assert [window["state"] for window in world.windows()] == ["missed_deadline"] * 2 + ["done"] * 3


def test_gap_of_400_days_is_counted_at_once_and_right(world: World) -> None:
    world.create(schedule={"cron": "* * * * *"}, window={"seconds": 60, "settle_seconds": 0},
                 starting_deadline_seconds=120)  # fmt: skip
    now = world.now()
    world.set_cursor(now - timedelta(days=400))
    world.pull()
    source = world.read()
    decided = datetime.fromisoformat(source["cursor"])
    first = (now - timedelta(days=400)).replace(second=0, microsecond=0)
    worked_on = [window for window in world.windows() if window["state"] == "empty"]
    assert source["missed_deadline"] == (decided - first) // MINUTE - len(worked_on)
    windows = world.windows()
    assert [window["ticks"] for window in windows[:2]] == [1, source["missed_deadline"] - 51]
    assert sum(window["ticks"] for window in windows) == source["missed_deadline"] + len(worked_on)
    assert len(windows) <= 53
    assert world.runs() == []


def test_window_that_was_worked_on_when_a_long_gap_began_is_missed_with_its_reason(world: World) -> None:
    world.create(schedule={"cron": "* * * * *"}, window={"seconds": 60, "settle_seconds": 0},
                 starting_deadline_seconds=86_400)  # fmt: skip
    start = (world.now() - 3 * HOUR).replace(second=0, microsecond=0)
    trace = world.add_trace(start + MICROSECOND, endTimeUnixNano="0")
    world.set_cursor(start)
    world.pull()
    assert [(window["state"], window["trace_id"]) for window in world.windows()] == [("working", trace)]
    world.database.look("UPDATE evals.sources SET config = jsonb_set(config, '{starting_deadline_seconds}', '120')")
    world.make_due()
    world.pull()
    first, gap, *_ = world.windows()
    assert (first["state"], first["error_code"], first["trace_id"]) == ("missed_deadline", "trace_in_progress", trace)
    assert datetime.fromisoformat(gap["window"]["start"]) == start + MINUTE
    missed = [window for window in world.windows() if window["state"] == "missed_deadline"]
    assert sum(window["ticks"] for window in missed) == world.read()["missed_deadline"] > 170
    states = world.database.look("SELECT state FROM scheduler.runs WHERE tick_at = %(at)s", {"at": start + MINUTE})
    assert states == [{"state": "error"}]


def test_nothing_starts_while_the_last_run_is_open_and_what_runs_out_is_counted_apart(world: World) -> None:
    world.create(starting_deadline_seconds=3600)
    last = world.last_tick()
    for hour in range(4):
        world.add_trace(last - hour * HOUR - MINUTE)
    world.set_cursor(last - MINUTE)
    world.pull()
    (run,) = world.runs()
    # The run is open since before the ticks that follow.
    world.database.look("UPDATE evals.runs SET created_at = created_at - interval '6 hours'")
    world.database.look("DELETE FROM evals.source_windows")
    world.set_cursor(last - 4 * HOUR)
    world.pull()
    assert [one["id"] for one in world.runs()] == [run["id"]]
    source = world.read()
    assert (source["missed_deadline"], source["missed_overlap"]) == (0, 3)
    due = world.database.look_up("SELECT due_at FROM coordination.wake_ups WHERE kind = 'source_tick'")
    assert due > world.now()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"endTimeUnixNano": "0"}, "trace_in_progress"),
        ({"parentSpanId": "ffffffffffffffff"}, "trace_in_progress"),
        ({"endTimeUnixNano": "1000"}, "trace_in_progress"),
    ],
)
def test_trace_in_progress_fails_the_attempt_and_is_evaluated_once_when_it_ends(
    world: World, changes: dict[str, Any], code: str
) -> None:
    world.create()
    tick = world.last_tick()
    start = tick - MINUTE
    trace, spans = world.make_spans(start, **changes)
    key = "traces/demo/loose.json"
    world.add_file(spans, at=start, key=key)
    world.add_trace(start)
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.runs() == []
    (window,) = world.windows()
    assert (window["state"], window["error_code"], window["trace_id"]) == ("working", code, trace)
    assert world.read()["failed_attempts"] == 1
    assert datetime.fromisoformat(world.read()["cursor"]) == tick - MINUTE

    spans[0] |= {"endTimeUnixNano": spans[1]["endTimeUnixNano"], "parentSpanId": ""}
    world.add_file(spans, at=start, key=key)
    world.make_due()
    world.pull()
    world.finish_runs()
    (run,) = world.runs()
    assert run["progress"]["total"] == 2
    assert world.windows()[0]["error_code"] is None


def test_failed_attempts_never_change_the_window_and_a_never_ending_trace_is_missed_with_its_id(world: World) -> None:
    world.create()
    tick = world.last_tick()
    trace = world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - MINUTE)
    seen: set[tuple[str, str]] = set()
    for _ in range(48):
        world.make_due()
        world.pull()
        (window,) = world.windows()
        seen.add((window["window"]["start"], window["window"]["end"]))
    assert len(seen) == 1
    assert world.read()["failed_attempts"] == 48
    assert world.database.look("SELECT state, attempts FROM scheduler.graph_jobs") == [
        {"state": "queued", "attempts": 48}
    ]
    # Its time runs out.
    shift = {"by": 2 * HOUR}
    world.database.look(
        "UPDATE evals.source_windows SET tick_at = tick_at - %(by)s, window_start = window_start - %(by)s,"
        " window_end = window_end - %(by)s",
        shift,
    )
    world.database.look("UPDATE scheduler.runs SET tick_at = tick_at - %(by)s", shift)
    world.set_cursor(tick - 2 * HOUR - MINUTE)
    world.pull()
    window = world.windows()[0]
    assert (window["state"], window["trace_id"]) == ("missed_deadline", trace)
    assert world.database.look("SELECT state FROM scheduler.graph_jobs ORDER BY created_at LIMIT 1") == [
        {"state": "failed"}
    ]


def test_retry_waits_for_its_time_whoever_sends_messages(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - MINUTE)
    for _ in range(5):
        world.pull()
    assert world.read()["failed_attempts"] == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [({"max_traces": 1}, "too_many_traces"), ({"max_snapshot_bytes": 1024}, "snapshot_too_large")],
)
def test_window_over_its_limits_is_not_cut(world: World, fields: dict[str, Any], code: str) -> None:
    world.create(**fields)
    tick = world.last_tick()
    for _ in range(2):
        world.add_trace(tick - MINUTE, output="x" * 600)
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.runs() == []
    assert world.windows()[0]["error_code"] == code
    assert world.stored_keys() == []


def test_child_that_arrives_before_its_root_waits_for_it(world: World) -> None:
    world.create()
    tick = world.last_tick()
    _, (root, child) = world.make_spans(tick - MINUTE)
    world.add_file([child], at=tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.windows()[0]["error_code"] == "trace_in_progress"
    world.add_file([root], at=tick, is_zipped=True)
    world.make_due()
    world.pull()
    assert len(world.runs()) == 1


def test_trace_that_began_before_the_window_is_none_of_it(world: World) -> None:
    world.create()
    tick = world.last_tick()
    _, (root, child) = world.make_spans(tick - HOUR - 10 * MINUTE, seconds=1200)
    world.add_file([child], at=tick - HOUR - 9 * MINUTE)
    world.add_file([root], at=tick - 30 * MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert [window["state"] for window in world.windows()] == ["empty"]


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"not json", "file_not_readable"),
        (b"\x1f\x8bnot gzip", "file_not_readable"),
        (gzip.compress(b"{}")[:-4], "file_not_readable"),
        (gzip.compress(b"a" * (65 * 1024 * 1024)), "file_too_large"),
        (gzip.compress(b"") * 100_001, "file_too_large"),
        (gzip.compress(b"{}") + b"\x1f\x8b", "file_not_readable"),
        (gzip.compress(b"{}") + b"rest", "file_not_readable"),
        (gzip.compress(b'{"resourceSpans": [' + b"{}," * 8_000_000 + b"{}]}"), "file_too_large"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "00"}]}]}]}', "file_not_readable"),
        (b'{"a": "\xff", "resourceSpans": ' + b"[" * 3000 + b"]" * 3000 + b"}", "file_not_readable"),
    ],
    ids=[
        "no JSON",
        "no gzip",
        "half of gzip",
        "a bomb",
        "members without end",
        "half a member",
        "something after gzip",
        "a bomb of objects",
        "no span",
        "too deep",
    ],
)
def test_file_that_cannot_be_read_fails_the_attempt_and_is_named(world: World, content: bytes, code: str) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    key = f"traces/demo/{tick:year=%Y/month=%m/day=%d/hour=%H/minute=%M}/broken.json"
    world.put(key, content)
    world.set_cursor(tick - MINUTE)
    world.pull()
    (window,) = world.windows()
    assert window["error_code"] == code
    assert key in window["error"]
    assert world.runs() == []


def test_file_that_is_too_large_is_not_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_pull.connectors.otlp_s3, "_MAX_FILE_BYTES", 1000)
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE, output="x" * 1000)
    world.set_cursor(tick - MINUTE)

    def open_without_a_body(key: str) -> StoredObject:
        return replace(type(world.environment.objects).open(world.environment.objects, key), body=None)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(world.environment.objects, "open", open_without_a_body)
    world.pull()
    assert world.windows()[0]["error_code"] == "file_too_large"


def test_all_members_of_a_gzip_file_are_read(world: World) -> None:
    world.create()
    tick = world.last_tick()
    parts = [world.make_spans(tick - MINUTE, output="x" * size)[1] for size in (1, 100_000, 10)]
    lines = [orjson.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}) + b"\n" for spans in parts]
    world.put("traces/demo/members.json", b"".join(gzip.compress(line) for line in [b"", *lines, b""]))
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert [(window["state"], window["traces"]) for window in world.windows()] == [("done", 3)]


def test_files_long_before_and_after_a_window_are_not_read(world: World) -> None:
    world.create()
    tick = world.last_tick()
    for at in (tick - 4 * HOUR, tick + 26 * HOUR):
        world.put(f"traces/demo/{at:year=%Y/month=%m/day=%d/hour=%H/minute=%M}/broken.json", b"not json")
    world.put("traces/demo/year=2026/notes.txt", b"no partition")
    world.put("traces/demo/other/deep.json", b"no partition either")
    world.add_trace(tick - MINUTE, key="traces/demo/loose.json")
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert len(world.runs()) == 1


def test_fault_of_ours_is_a_failed_attempt_that_quotes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - MINUTE)

    def break_down(*_arguments: Any) -> None:
        raise ValueError("ann@example.com")

    with monkeypatch.context() as patch:
        patch.setattr(scheduled_pull.pull_source, "_read_window", break_down)
        world.pull()
    assert [window["error_code"] for window in world.windows()] == ["internal_error"]
    assert "ann@example.com" not in "".join(capsys.readouterr())
    world.make_due()
    world.pull()
    assert [window["state"] for window in world.windows()] == ["empty"]


LOST = {
    "taken over": "UPDATE coordination.leases SET epoch = epoch + 1, owner = gen_random_uuid()",
    "another epoch": "UPDATE coordination.leases SET epoch = epoch + 1",
    "expired": "UPDATE coordination.leases SET expires_at = clock_timestamp() - interval '1 second'",
}
OWN_TABLES = (
    "coordination.wake_ups",
    "scheduler.failure_signatures",
    "evals.run_snapshots",
    "evals.runs",
    "evals.source_windows",
    "evals.sources",
    "scheduler.graph_jobs",
    "scheduler.runs",
    "scheduler.schedules",
)


@pytest.mark.parametrize("fails", [False, True], ids=["read", "not read"])
@pytest.mark.parametrize("how", LOST)
def test_stale_holder_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch, how: str, fails: bool) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    real = scheduled_pull.pull_source._read_window
    before: list[Any] = []

    def look() -> list[Any]:
        # A lease that has expired and that nobody has taken may be given back.
        tables = OWN_TABLES if how == "expired" else ("coordination.leases", *OWN_TABLES)
        return [world.database.look(f"SELECT t::text FROM {table} t ORDER BY 1") for table in tables]

    def read_and_lose_the_lease(*arguments: Any) -> Any:
        snapshot = real(*arguments)
        world.database.look(LOST[how] + " WHERE name LIKE 'source_tick:%%'")
        before.extend(look())
        if fails:
            raise PullFailedError("store_unavailable", "It did not answer.")
        return snapshot

    monkeypatch.setattr(scheduled_pull.pull_source, "_read_window", read_and_lose_the_lease)
    world.pull()
    assert before
    assert look() == before


def test_kill_between_snapshot_and_run_is_one_run_in_the_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)

    class KilledError(BaseException):
        pass

    def die(*_arguments: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(scheduled_pull.pull_source, "complete_attempt", die)
        with pytest.raises(KilledError):
            world.pull()
    assert world.runs() == []
    assert len(world.stored_keys()) == 2
    world.make_due()
    world.pull()
    world.finish_runs()
    assert [run["state"] for run in world.runs()] == ["succeeded"]
    assert len(world.stored_keys()) == 2


def test_terminated_backend_between_two_invocations_is_replaced(world: World, database: FreshDatabase) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    assert world.pulse() == 1
    # Waits until they are gone: one that is about to go would be used.
    database.look("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'evalward'")
    world.pull()
    assert len(world.runs()) == 1


def test_pulse_without_the_leader_lease_sends_nothing(world: World) -> None:
    world.create()
    world.set_cursor(world.last_tick() - MINUTE)
    other = take_lease(world.environment.database, "source-manager", 55)
    assert other is not None
    assert world.pulse() == 0
    world.database.look("UPDATE coordination.leases SET expires_at = clock_timestamp() WHERE name = 'source-manager'")
    assert world.pulse() == 1
    epoch = world.database.look_up("SELECT epoch FROM coordination.leases WHERE name = 'source-manager'")
    assert epoch == other.epoch + 1


@pytest.mark.parametrize("is_first", [True, False])
def test_pulse_behind_a_leader_that_is_stuck_leaves_the_sources_to_it(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_first: bool
) -> None:
    world.create()
    world.set_cursor(world.last_tick() - MINUTE)
    # Only the very first pulse, which has no row to skip, waits.
    lock_timeout_ms = 50 if is_first else 600_000
    monkeypatch.setattr(world.environment.database, "_limits", TransactionSettings(lock_timeout_ms=lock_timeout_ms))
    claim: Any = "SELECT * FROM scheduler_app.claim_due_sources('source-manager', 0, '5 min')"
    with world.database.connect("app") as leader:
        if not is_first:
            leader.execute(claim)
        with leader.transaction():
            # It chooses none, and holds on to the lease.
            assert leader.execute(claim).fetchall() == []
            assert world.pulse() == 0
            assert '"PulsesBehindAnother":[1.0]' in capsys.readouterr().out.replace(" ", "")
        assert world.pulse() == 1
    assert "PulsesBehindAnother" not in capsys.readouterr().out


def test_idle_sources_are_not_looked_at(world: World) -> None:
    for number in range(5):
        world.create(f"idle-{number}")
    assert world.pulse() == 0


def test_full_quota_fails_the_attempt_and_the_window_is_tried_again(world: World) -> None:
    world.create(starting_deadline_seconds=4 * 3600)
    world.database.look("UPDATE coordination.projects SET max_stored_runs = 1")
    tick = world.last_tick()
    for hour in range(2):
        world.add_trace(tick - hour * HOUR - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    world.set_cursor(tick - HOUR - MINUTE)
    world.pull()
    assert world.windows()[0]["error_code"] == "run_quota_exceeded"
    assert len(world.runs()) == 1


def test_two_projects_with_the_same_source_do_not_meet(world: World, make_project: Callable[..., str]) -> None:
    make_project("other")
    world.create()
    body = world.body(location="s3://evalward-test/traces/other/")
    assert world.service.post("/v1/projects/other/sources", body).status == 201
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.add_trace(tick - MINUTE, key="traces/other/a.json")
    world.set_cursor(tick - MINUTE)
    world.pull()
    pull_source(world.environment, "other", "nightly", _invocation())
    rows = world.database.look("SELECT tenant_id, id FROM evals.runs ORDER BY tenant_id")
    assert [row["tenant_id"] for row in rows] == ["demo", "other"]
    assert len({row["id"] for row in rows}) == 2


def test_nothing_of_a_masked_value_is_anywhere(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = ["ann@example.com", "sk-ant-api03-abcDEF1234567890", "hunter2-hunter2", "bob@example.com", "10.20.30.40"]
    world.database.look(
        "INSERT INTO evals.webhooks (tenant_id, id, url, events, created_by) VALUES ('demo', 'all', 'https://example.com',"
        " ARRAY['run.finished', 'run.gate_failed', 'source.window_missed'], 'test')"
    )
    # The gate fails, so that both events are told.
    world.create(gates=[{"metric": "length", "stat": "mean", "min": 1_000_000}])
    tick = world.last_tick()
    output = f'{{"to": "{secrets[0]}", "password": "{secrets[2]}", "note": "key {secrets[1]}"}}'
    trace, (root, child) = world.make_spans(tick - MINUTE, output=output, name=f"for {secrets[3]}")
    # In the name of an attribute, in a tool's arguments, in a list of tags.
    root["attributes"].append({"key": f"seen.{secrets[3]}", "value": {"stringValue": "yes"}})
    tags = {"arrayValue": {"values": [{"stringValue": f"from {secrets[4]}"}]}}
    child["attributes"] += [
        {"key": "gen_ai.tool.call.arguments", "value": {"stringValue": f'{{"api_key": "{secrets[2]}"}}'}},
        {"key": "tags", "value": tags},
    ]
    world.add_file([root, child], at=tick - MINUTE)
    # Another window fails at a trace that holds them, and is missed.
    world.add_trace(tick - HOUR - MINUTE, output=output, endTimeUnixNano="0")
    world.set_cursor(tick - HOUR - MINUTE)
    world.database.look("UPDATE evals.sources SET config = jsonb_set(config, '{starting_deadline_seconds}', '14400')")
    world.pull()
    world.database.look("UPDATE evals.sources SET config = jsonb_set(config, '{starting_deadline_seconds}', '3600')")
    world.make_due()
    world.pull()
    world.finish_runs()
    assert [window["state"] for window in world.windows()] == ["missed_deadline", "done"]
    (run,) = world.runs()
    (object_key,) = [key for key in world.stored_keys() if key.endswith(".jsonl")]
    texts = [world.environment.objects.read(key).decode() for key in world.stored_keys()]
    texts.append("".join(capsys.readouterr()))
    tables = world.database.look("SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n"
                                 " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname IN"
                                 " ('coordination', 'scheduler', 'packs', 'evals')")  # fmt: skip
    texts += [str(world.database.look(f"SELECT t::text FROM {table['name']} t")) for table in tables]
    results = world.service.get(f"/v1/projects/demo/runs/{run['id']}/results")
    report = world.service.get(f"/v1/projects/demo/runs/{run['id']}/report")
    texts += [results.content.decode(), report.content.decode()]
    # Bodies of webhooks are rows until they are sent.
    bodies = world.database.look("SELECT event, payload::text AS body FROM evals.webhook_deliveries ORDER BY event")
    assert [body["event"] for body in bodies] == ["run.finished", "run.gate_failed", "source.window_missed"]
    texts += [body["body"] for body in bodies]
    assert not [secret for secret in secrets if any(secret in text for text in texts)]
    assert any(trace in text for text in texts)
    assert "[redacted:email]" in world.environment.objects.read(object_key).decode()
    assert report.json["redactions"] == {"email": 3, "ip_address": 1, "key": 2, "provider_key": 1}


def test_deletion_of_a_run_takes_its_snapshot_along(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    (run,) = world.runs()
    assert len(world.stored_keys()) == 2
    assert world.service.call("DELETE", f"/v1/projects/demo/runs/{run['id']}").status == 204
    world.remove_snapshots()
    assert world.stored_keys() == []
    assert world.database.look("SELECT kind FROM coordination.wake_ups WHERE kind = 'snapshot_removal'") == []
    assert len(world.stored_keys("traces/")) == 1


def _invocation() -> Deadline:
    return Deadline(time.monotonic() + 110.0)
