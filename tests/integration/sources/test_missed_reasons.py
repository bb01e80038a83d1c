from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from coordination.queries import load_queries

if TYPE_CHECKING:
    from integration.sources.conftest import World
    from psycopg.rows import DictRow

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def read(world: World, period_seconds: int = 86_400) -> list[DictRow]:
    with world.environment.database.transaction("demo") as transaction:
        return transaction.fetch_all(
            load_queries("sources")["count_missed_reasons"], {"tenant": "demo", "period_seconds": period_seconds}
        )


def test_project_without_sources_has_missed_nothing(world: World) -> None:
    assert read(world) == []


def test_missed_ticks_are_counted_by_their_reasons(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - 2 * HOUR - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - 5 * HOUR)
    world.pull()
    missed = read(world)
    assert [(one["source_id"], one["reason"]) for one in missed] == [("nightly", "not_begun")]
    assert missed[0]["ticks"] == world.read()["missed_deadline"] == 4
    assert missed[0]["last_tick_at"] == tick - HOUR
    world.database.look(
        "UPDATE evals.source_windows SET error_code = 'store_unavailable' WHERE tick_at = %(at)s", {"at": tick - HOUR}
    )
    world.database.look(
        "UPDATE evals.source_windows SET state = 'missed_overlap' WHERE tick_at = %(at)s", {"at": tick - 2 * HOUR}
    )
    assert {one["reason"]: one["ticks"] for one in read(world)} == {
        "not_begun": 2,
        "overlap": 1,
        "store_unavailable": 1,
    }
    assert read(world, 60) == []
