"""Windows and their neighbours: late traces, clocks, schema of identities."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from uuid import UUID

import coordination.clock
import pytest
from coordination.sources import make_run_id

if TYPE_CHECKING:
    from integration.sources.conftest import World

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
SOURCES = "/v1/projects/demo/sources"
IDENTITIES = """
SELECT i.indexrelid::regclass::text AS name, bool_and(a.attnotnull) AS is_never_null
FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
WHERE i.indisunique AND i.indrelid IN ('evals.runs'::regclass, 'evals.sources'::regclass,
      'evals.source_windows'::regclass, 'scheduler.schedules'::regclass, 'scheduler.runs'::regclass,
      'scheduler.graph_jobs'::regclass, 'coordination.wake_ups'::regclass, 'coordination.leases'::regclass)
      -- An index of those rows that have a value is none of an identity.
      AND coalesce(pg_get_expr(i.indpred, i.indrelid), '') NOT LIKE '%IS NOT NULL%'
GROUP BY i.indexrelid
"""


def test_no_part_of_an_identity_can_be_null(world: World) -> None:
    identities = world.database.look(IDENTITIES)
    assert len(identities) >= 8
    assert [identity["name"] for identity in identities if not identity["is_never_null"]] == []


def test_windows_that_differ_by_a_microsecond_are_runs_of_their_own() -> None:
    start = datetime.fromisoformat("2026-11-30T12:00:00+00:00")
    micro = timedelta(microseconds=1)
    windows = [
        (start, start + HOUR),
        (start + micro, start + HOUR),
        (start, start + HOUR + micro),
        (start + 300_000 * micro, start + HOUR + 300_000 * micro),
    ]
    ids = {make_run_id("demo", "nightly", "a" * 64, *window) for window in windows}
    assert len(ids) == 4
    # A name for ever: another one would make a second run of a window that has one.
    assert make_run_id("demo", "nightly", "a" * 64, *windows[0]) == UUID("ad68dc25-b96d-50a8-ad2b-218c231bcd78")
    assert make_run_id("other", "nightly", "a" * 64, *windows[0]) not in ids


def test_trace_that_comes_after_its_window_was_decided_is_read_by_hand_only(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    world.add_trace(tick - 2 * MINUTE)
    world.make_due()
    world.pull()
    assert len(world.runs()) == 1
    (window,) = world.windows()
    assert world.act(f"nightly/windows/{window['window']['start']}/run", {}).status == 202
    world.pull()
    world.finish_runs()
    assert [run["progress"]["total"] for run in world.runs()] == [1, 2]


def test_trace_from_the_future_moves_no_cursor(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick + 1000 * HOUR, key="traces/demo/loose.json")
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert [window["state"] for window in world.windows()] == ["empty"]
    assert datetime.fromisoformat(world.read()["cursor"]) == tick


@pytest.fixture(params=[timedelta(minutes=10), timedelta(minutes=-10)], ids=["fast", "slow"])
def _clock_is_off(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Shift the clock of this process, for whoever has imported `read_clock` already too."""
    now, shift = time.time, request.param

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + shift

    monkeypatch.setattr(time, "time", lambda: now() + shift.total_seconds())
    monkeypatch.setattr(coordination.clock, "datetime", Shifted)
    assert abs(coordination.clock.read_clock() - datetime.now(UTC) - shift) < SECOND


@pytest.mark.usefixtures("_clock_is_off")
def test_preview_without_an_instant_counts_from_the_time_of_the_database(world: World) -> None:
    body = world.body(schedule={"cron": "* * * * *"})
    world.create(schedule={"cron": "* * * * *"})
    for path in (f"{SOURCES}:preview", f"{SOURCES}/nightly/preview"):
        before = world.now()
        reply = world.service.call("POST", path, body if path.endswith(":preview") else None)
        assert reply.status == 200, reply.json
        first = datetime.fromisoformat(reply.json["next_ticks"][0])
        assert before < first <= world.now() + MINUTE


@pytest.mark.usefixtures("_clock_is_off")
def test_clock_of_the_application_decides_nothing(world: World) -> None:
    world.create(window={"seconds": 3600, "settle_seconds": 600}, starting_deadline_seconds=3600)
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    before = world.now()
    created = world.read()
    assert before <= datetime.fromisoformat(created["cursor"]) + SECOND
    assert datetime.fromisoformat(created["cursor"]) <= world.now()

    # Exactly at its settle time, by the database's clock, the tick is worked on; a second before it is not.
    world.set_cursor(tick - MINUTE)
    world.database.look(
        "UPDATE evals.sources SET config = jsonb_set(config, '{settle_seconds}',"
        " to_jsonb(extract(epoch FROM clock_timestamp() - %(tick)s + interval '60 seconds')::integer))",
        {"tick": tick},
    )
    assert world.pulse() == 1
    world.pull()
    assert world.windows() == []
    world.database.look(
        "UPDATE evals.sources SET config = jsonb_set(config, '{settle_seconds}',"
        " to_jsonb(extract(epoch FROM clock_timestamp() - %(tick)s)::integer - 1))",
        {"tick": tick},
    )
    world.make_due()
    assert world.pulse() == 1
    world.pull()
    (window,) = world.windows()
    assert (window["state"], window["traces"]) == ("done", 1)
    # Nor does it count as missed, or as held back by a lease, that is over by the application's clock only.
    assert world.read()["missed_deadline"] == 0
