from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

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
    text = database.look_up("SELECT pg_get_functiondef('scheduler_app.claim_due_sources'::regproc)")
    found = re.search(r"RETURN QUERY(.*);\s*END", text, flags=re.DOTALL)
    assert found is not None
    statement = found[1]
    for place, name in enumerate(("leader_lease", "batch", "resend_after"), start=1):
        statement = re.sub(rf"(?<![\w.]){name}\b", f"${place}", statement)
    with database.connect("app") as connection:
        for setting in database.look_up(
            "SELECT proconfig FROM pg_proc WHERE oid = 'scheduler_app.claim_due_sources'::regproc"
        ):
            connection.execute(cast("Any", f"SET {setting}"))
        connection.execute(cast("Any", f"PREPARE kept (text, integer, interval) AS {statement}"))
        rows: list[Any] = connection.execute("EXPLAIN EXECUTE kept ('source-manager', 500, '5 min')").fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "wake_ups_of_sources" in plan, plan
    assert "Seq Scan on wake_ups" not in plan, plan
    # Part of the statement: a call for each row would cost more than the row.
    assert "is_to_be_sent" not in plan, plan
    assert world.pulse() == 0
    database.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp() WHERE ref_id IN ('source-1', 'source-2')"
    )
    assert world.pulse() == 2
    assert world.pulse() == 0
