from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from coordination.source_health import SourceHealth, read_source_health

if TYPE_CHECKING:
    from integration.sources.conftest import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def read(world: World, period_seconds: int = 86_400) -> SourceHealth:
    with world.environment.database.transaction("demo") as transaction:
        return read_source_health(transaction, period_seconds)


def test_project_without_sources_is_well(world: World) -> None:
    assert read(world) == SourceHealth(0, 0, None, None, None, None, [])


def test_sources_that_wait_for_their_tick_are_not_behind(world: World) -> None:
    world.create("one")
    world.create("two", paused=True)
    health = read(world)
    assert (health.active, health.behind, health.worst_source) == (1, 0, None)


def test_source_whose_window_fails_is_behind_with_its_reason(world: World) -> None:
    world.create()
    world.create("idle")
    tick = world.last_tick()
    trace = world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - MINUTE)
    world.pull()
    health = read(world)
    assert (health.active, health.behind) == (2, 1)
    assert (health.worst_source, health.worst_error_code, health.worst_trace_id) == (
        "nightly",
        "trace_in_progress",
        trace,
    )
    assert health.worst_lag_seconds is not None
    assert 1800 <= health.worst_lag_seconds < 3600


def test_source_that_nobody_looks_at_is_behind(world: World) -> None:
    world.create()
    world.database.look("UPDATE coordination.wake_ups SET due_at = clock_timestamp() - interval '10 minutes'")
    health = read(world)
    assert (health.behind, health.worst_source, health.worst_error_code) == (1, "nightly", None)


def test_missed_ticks_are_counted_by_their_reasons(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - 2 * HOUR - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - 5 * HOUR)
    world.pull()
    missed = read(world).missed
    assert [(one.source_id, one.reason) for one in missed] == [("nightly", "not_begun")]
    assert missed[0].ticks == world.read()["missed_deadline"] == 4
    assert missed[0].last_tick_at == tick - HOUR
    world.database.look(
        "UPDATE evals.source_windows SET error_code = 'store_unavailable' WHERE tick_at = %(at)s", {"at": tick - HOUR}
    )
    world.database.look(
        "UPDATE evals.source_windows SET state = 'missed_overlap' WHERE tick_at = %(at)s", {"at": tick - 2 * HOUR}
    )
    assert {one.reason: one.ticks for one in read(world).missed} == {
        "not_begun": 2,
        "overlap": 1,
        "store_unavailable": 1,
    }
    assert read(world, 60).missed == []


def test_ticks_that_were_missed_a_day_after_their_time_are_counted_for_a_day(world: World) -> None:
    world.create(starting_deadline_seconds=86_400)
    tick = world.last_tick()
    world.set_cursor(tick - 26 * HOUR)
    world.pull()
    (missed,) = read(world).missed
    assert (missed.ticks, missed.last_tick_at) == (2, tick - 24 * HOUR)
    world.database.look("UPDATE evals.source_windows SET updated_at = clock_timestamp() - interval '25 hours'")
    assert read(world).missed == []
