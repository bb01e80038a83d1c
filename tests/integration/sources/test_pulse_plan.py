from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from coordination.queries import load_queries

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.sources.conftest import World

IDLE = 10_000


def test_idle_sources_cost_one_look_at_an_index(world: World, database: FreshDatabase) -> None:
    database.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, due_at)"
        " SELECT 'pull', 'demo', 'source_tick', 'source-' || n, clock_timestamp() + interval '1 hour'"
        " FROM generate_series(1, %(count)s::integer) AS n",
        {"count": IDLE},
    )
    database.look("ANALYZE coordination.wake_ups")
    params = {
        "batch_size": 500,
        "resend_after_seconds": 300,
        "lease_name": "source-manager",
    }
    query = load_queries("sources")["claim_due_sources"].as_string()
    with database.connect("app") as connection:
        rows: list[Any] = connection.execute(cast("Any", f"EXPLAIN {query}"), params).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "wake_ups_of_sources" in plan, plan
    assert "Seq Scan on wake_ups" not in plan, plan
    assert world.pulse() == 0
    database.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp() WHERE ref_id IN ('source-1', 'source-2')"
    )
    assert world.pulse() == 2
    assert world.pulse() == 0
