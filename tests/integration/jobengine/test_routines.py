# ruff: noqa: PT012 - a transaction is the block that raises
"""The SQL routines of the keeper as the runtime role and as the owner, neither of which passes row-level security."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import psycopg
import pytest
from coordination.jobengine.registry import OPERATIONAL_TABLES
from psycopg import Connection
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.jobengine.conftest import Tables

EIGHT = [table.name for table in OPERATIONAL_TABLES if table.doctor_check is not None]
TENANT_TABLES = [table.name for table in OPERATIONAL_TABLES if not table.is_global]
# In the other tables the column is NOT NULL, or the time is the state.
CAN_LACK_THEIR_END = [
    "scheduler.jobs",
    "scheduler.runs",
    "scheduler.estate_run_queue",
    "scheduler.failure_signatures",
]
LEASES = {
    "scheduler.jobs": ["sink:demo:{id}"],
    "scheduler.policy_run_jobs": ["shard:demo:{id}"],
    "scheduler.estate_run_queue": ["run:demo:{id}", "finish:demo:{id}"],
}
NO_ID = UUID(int=0)
HAND_OVER = 7

type Way = Sequence[tuple[str, str]]
"""What is changed in the text of a routine: patterns, each found once, and what takes their place."""

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted"


@pytest.fixture(params=["owner", "app"])
def sweeper(database: FreshDatabase, request: pytest.FixtureRequest) -> Generator[Connection[DictRow]]:
    """Return a connection that sweeps."""
    with database.connect(request.param) as connection:
        yield connection


@pytest.fixture
def worker(database: FreshDatabase) -> Generator[Connection[DictRow]]:
    """Return the connection of someone who works on the same rows."""
    with database.connect("superuser") as connection:
        yield connection


def test_roles_that_sweep_cannot_pass_row_level_security(sweeper: Connection[DictRow]) -> None:
    role = sweeper.execute(
        "SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user AND rolcanlogin"
    ).fetchone()
    assert role == {"rolsuper": False, "rolbypassrls": False}


@pytest.mark.parametrize("table", EIGHT)
def test_row_that_is_just_being_opened_again_is_passed_over(
    tables: Tables, sweeper: Connection[DictRow], worker: Connection[DictRow], table: str, routines: Any
) -> None:
    row, other = tables.put(table), tables.put(table)
    worker.execute("BEGIN")
    tables.reopen(worker, table, row)
    routines["begin"](sweeper)
    assert routines["call"](sweeper, table)["deleted"] == 1
    sweeper.execute("COMMIT")
    worker.execute("COMMIT")
    assert tables.ids(table) == {row}
    assert other not in tables.ids(table)


class Race:
    """A sweep that has its snapshot and waits until it is told to go on."""

    def __init__(self, tables: Tables, sweeper: Connection[DictRow], routines: Any) -> None:
        self.tables, self.sweeper, self.routines = tables, sweeper, routines

    def run(self, table: str, row: str, worker: Connection[DictRow], way: Way, act: str) -> int:
        """Run a changed routine up to where it waits, act on the row meanwhile, and return how many rows it deleted."""
        statement = cast("Any", f"UPDATE {table} {act} WHERE id = %(id)s")
        return self.run_beside(table, worker, way, lambda: worker.execute(statement, {"id": row}))

    def run_beside(
        self, table: str, worker: Connection[DictRow], way: Way, act: Callable[[], object], batch: int = 1000
    ) -> int:
        """Run a changed routine up to where it waits, act meanwhile, and return how many rows it deleted."""
        text = self.routines["change"](self.routines["read"](self.tables.database, table), way)
        self.sweeper.execute(text)
        worker.execute("SELECT pg_advisory_lock(7)")
        self.routines["begin"](self.sweeper)
        with ThreadPoolExecutor(1) as threads:
            sweep: Future[Any] = threads.submit(
                self.routines["call"], self.sweeper, table, schema="pg_temp", batch=batch
            )
            while self.tables.database.look_up(WAITING) == 0:
                assert not sweep.done(), sweep.result()
            act()
            worker.execute("SELECT pg_advisory_unlock(7)")
            deleted = sweep.result()["deleted"]
        self.sweeper.execute("COMMIT")
        return deleted


@pytest.fixture
def race(tables: Tables, sweeper: Connection[DictRow], routines: Any) -> Race:
    """Return a race on the test's database."""
    return Race(tables, sweeper, routines)


# What deletes up to the place of the last row is left, and waits when the DELETE has its snapshot and no row yet.
AT_ONCE = [
    (r"(\n {4}RETURN QUERY).*?(\nEND)", r"\2"),
    (r"'20ms'", "'20s'"),
    (r"(DELETE FROM [\w.]+ t\s+WHERE )", rf"\1(SELECT pg_advisory_xact_lock({HAND_OVER})) IS NOT NULL AND "),
]
# What was found is deleted by its id alone, as it is often done; a full batch of one: its last row is the one.
AT_ONCE_WITHOUT_CONDITION = [
    *AT_ONCE,
    (
        rf"(pg_advisory_xact_lock\({HAND_OVER}\)\) IS NOT NULL AND ).*?AND \([\w.]+, t\.id\) <= \(last_at, last_id\)",
        r"\1t.id = last_id",
    ),
    (r"OFFSET batch - 1", "OFFSET 0"),
]
# It waits between finding the place of the last row and the deletion, which has a snapshot of its own.
BETWEEN_PLACE_AND_DELETION = [
    (r"(last_id := before_id;\s+END IF;)", rf"\1 PERFORM pg_advisory_xact_lock({HAND_OVER});"),
    (r"'20ms'", "'20s'"),
]
# What chooses among the rows that nobody holds is left.
AROUND_LOCKS = [
    (r"\n {4}BEGIN\n.*?\n {4}END;", ""),
    (
        r"WITH candidates AS",
        f"WITH hand_over AS MATERIALIZED (SELECT pg_advisory_xact_lock({HAND_OVER})), candidates AS",
    ),
]
# Rows are chosen without locking them, and then it waits: the condition of the DELETE is all that is left.
WITHOUT_LOCK = [
    *AROUND_LOCKS,
    (r"FOR UPDATE OF t SKIP LOCKED", ""),
    # By id: a row that was changed has another place.
    (r"WHERE t\.ctid = c\.place", "WHERE (SELECT count(*) FROM hand_over) = 1 AND t.id = c.id"),
]
# It waits when the statement has its snapshot and no row yet.
WAITING_BEFORE_THE_CHOICE = [
    *AROUND_LOCKS,
    (r"(candidates AS MATERIALIZED \((?:(?!WHERE ).)*WHERE )", r"\1(SELECT count(*) FROM hand_over) = 1 AND "),
]
# What was chosen is deleted by id, as it is often done.
WITHOUT_LOCK_AND_OUTER_CONDITION = [*WITHOUT_LOCK, (r"(AND t\.id = c\.id).*?(\n\s+RETURNING)", r"\1\2")]

WAYS = [
    pytest.param(AT_ONCE, id="at_once"),
    pytest.param(BETWEEN_PLACE_AND_DELETION, id="between_place_and_deletion"),
    pytest.param(WITHOUT_LOCK, id="without_lock"),
    pytest.param(WAITING_BEFORE_THE_CHOICE, id="waiting_before_the_choice"),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", EIGHT)
def test_row_at_work_again_is_not_deleted(
    race: Race,
    tables: Tables,
    worker: Connection[DictRow],
    table: str,
    way: Way,
    reopened: dict[str, str],
) -> None:
    row = tables.put(table)
    assert race.run(table, row, worker, way, reopened[table]) == 0
    assert tables.ids(table) == {row}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(AT_ONCE_WITHOUT_CONDITION, id="at_once"),
        pytest.param(WITHOUT_LOCK_AND_OUTER_CONDITION, id="without_lock"),
    ],
)
@pytest.mark.parametrize("table", EIGHT)
def test_without_the_outer_condition_a_row_at_work_again_is_deleted(
    race: Race,
    tables: Tables,
    worker: Connection[DictRow],
    table: str,
    way: Way,
    reopened: dict[str, str],
) -> None:
    row = tables.put(table)
    # An open job cannot be archived, so that even this mistake would be found out; a refreshed one would go.
    act = "SET completed_at = clock_timestamp()" if table == "scheduler.jobs" else reopened[table]
    assert race.run(table, row, worker, way, act) == 1
    assert tables.ids(table) == set()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", EIGHT)
def test_refreshed_row_is_not_deleted(
    race: Race,
    tables: Tables,
    worker: Connection[DictRow],
    table: str,
    way: Way,
    age_columns: dict[str, str],
) -> None:
    row = tables.put(table)
    act = f"SET {age_columns[table]} = clock_timestamp()"
    assert race.run(table, row, worker, way, act) == 0
    assert tables.ids(table) == {row}


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("table", EIGHT)
def test_rows_that_become_old_meanwhile_do_not_add_to_a_batch(
    race: Race, tables: Tables, worker: Connection[DictRow], table: str, way: Way, age_columns: dict[str, str]
) -> None:
    rows = [tables.put(table, days=100 - number) for number in range(3)]
    young = tables.put(table, days=1)

    statement = cast("Any", f"UPDATE {table} SET {age_columns[table]} = clock_timestamp() - interval '200 days'"
                            " WHERE id = %(id)s")  # fmt: skip
    assert race.run_beside(table, worker, way, lambda: worker.execute(statement, {"id": young}), batch=2) == 2
    left = {rows[2], young} if way is AT_ONCE else {rows[1], rows[2]}
    assert tables.ids(table) == left


@pytest.mark.parametrize("way", WAYS[:3])
@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in LEASES.items() for name in names])
def test_lease_that_is_renewed_before_it_runs_out_keeps_its_row(
    race: Race, tables: Tables, worker: Connection[DictRow], table: str, name: str, way: Way
) -> None:
    row = tables.put(table)
    tables.put_lease(name.format(id=row), seconds=2)

    def renew() -> None:
        (old,) = worker.execute("SELECT expires_at FROM coordination.leases").fetchall()
        worker.execute("UPDATE coordination.leases SET expires_at = expires_at + interval '1 hour'")
        while not tables.database.look_up("SELECT clock_timestamp() > %(expires_at)s", old):
            pass

    # The snapshot holds the old time, which has gone by when the row is looked at.
    assert race.run_beside(table, worker, way, renew) == 0
    assert tables.ids(table) == {row}


def force_nested_loop(connection: Connection[DictRow]) -> None:
    for method in ("hashjoin", "mergejoin", "material", "memoize"):
        connection.execute(cast("Any", f"SET LOCAL enable_{method} = off"))


@pytest.mark.parametrize("table", EIGHT)
def test_nested_loop_never_deletes_more_than_a_batch(
    tables: Tables, sweeper: Connection[DictRow], table: str, routines: Any
) -> None:
    for _ in range(20):
        tables.put(table)
    routines["begin"](sweeper)
    force_nested_loop(sweeper)
    assert routines["call"](sweeper, table, batch=5)["deleted"] == 5
    sweeper.execute("COMMIT")
    assert len(tables.ids(table)) == 15


def test_nested_loop_deletes_too_much_when_the_choice_is_not_materialized(
    tables: Tables, sweeper: Connection[DictRow], routines: Any
) -> None:
    for _ in range(20):
        tables.put("scheduler.graph_jobs")
    text = routines["change"](routines["read"](tables.database, "scheduler.graph_jobs"), [AROUND_LOCKS[0]])
    chosen = re.search(r"MATERIALIZED \((.*?)\n    \), last", text, flags=re.DOTALL)
    assert chosen is not None
    # The same choice as a subquery, run anew for each row, as a nested loop does; that it mentions the row leaves the
    # planner nothing else, whatever it believes of the table.
    inner = re.sub(r"\bt\b(?=\.|\n| SKIP)", "r", chosen[1]).replace("WHERE ", f"WHERE t.id <> '{NO_ID}' AND ", 1)
    changes = [
        (r"USING candidates c\s+WHERE t\.ctid = c\.place", f"WHERE t.id IN (SELECT c.id FROM ({inner}) AS c)"),
        # The bound would hide it: the rows up to the last of the first choice are as many as the batch.
        (r"\n\s+AND \(t\.updated_at, t\.id\) <= [^\n]*(\n\s+RETURNING)", r"\1"),
    ]
    sweeper.execute(routines["change"](text, changes))
    routines["begin"](sweeper)
    force_nested_loop(sweeper)
    assert routines["call"](sweeper, "scheduler.graph_jobs", batch=5, schema="pg_temp")["deleted"] > 5
    sweeper.execute("ROLLBACK")


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_tenant_sees_and_deletes_its_own_rows_only(
    tables: Tables, sweeper: Connection[DictRow], table: str, routines: Any
) -> None:
    tables.put(table, days=400, tenant="demo")
    other = tables.put(table, days=400, tenant="other")
    routines["begin"](sweeper, "demo")
    assert routines["call"](sweeper, table)["deleted"] == 1
    sweeper.execute("COMMIT")
    assert tables.ids(table) == {other}


@pytest.mark.parametrize("table", TENANT_TABLES)
def test_routine_fails_without_a_tenant_and_for_another_one(
    tables: Tables, sweeper: Connection[DictRow], table: str, routines: Any
) -> None:
    row = tables.put(table, days=400)
    with pytest.raises(psycopg.Error) as without:
        routines["call"](sweeper, table)
    assert without.value.sqlstate == "EW001"
    # As a statement of its own it sets nothing for the next one.
    sweeper.execute("SELECT set_config('app.tenant_id', 'demo', true)")
    with pytest.raises(psycopg.Error) as lost:
        routines["call"](sweeper, table)
    assert lost.value.sqlstate == "EW001"
    with pytest.raises(psycopg.Error) as other:
        routines["begin"](sweeper, "other")
        routines["call"](sweeper, table)
    assert other.value.sqlstate == "EW003"
    sweeper.execute("ROLLBACK")
    assert tables.ids(table) == {row}


@pytest.mark.parametrize("table", EIGHT)
def test_row_that_has_not_ended_stays_whatever_its_age(
    tables: Tables, sweeper: Connection[DictRow], table: str, routines: Any, active: dict[str, list[str]]
) -> None:
    rows = {tables.put(table, state, days=10_000) for state in active[table]}
    routines["begin"](sweeper)
    assert routines["call"](sweeper, table)["deleted"] == 0
    sweeper.execute("COMMIT")
    assert tables.ids(table) == rows


@pytest.mark.parametrize("table", CAN_LACK_THEIR_END)
def test_row_that_lacks_the_time_of_its_end_stays(
    tables: Tables, sweeper: Connection[DictRow], table: str, routines: Any
) -> None:
    if table == "scheduler.estate_run_queue":
        row = tables.put(table)
        tables.database.look("UPDATE scheduler.estate_run_queue SET acknowledged_at = NULL")
    else:
        row = tables.put(table, days=None)
    routines["begin"](sweeper)
    assert routines["call"](sweeper, table)["deleted"] == 0
    sweeper.execute("COMMIT")
    assert tables.ids(table) == {row}


@pytest.mark.parametrize(("table", "name"), [(table, name) for table, names in LEASES.items() for name in names])
def test_live_lease_keeps_a_row_and_an_expired_one_does_not(
    tables: Tables, sweeper: Connection[DictRow], table: str, name: str, routines: Any
) -> None:
    leased, free = tables.put(table), tables.put(table)
    tables.put_lease(name.format(id=leased), seconds=60)
    tables.put_lease(name.format(id=free), seconds=-1)
    routines["begin"](sweeper)
    assert routines["call"](sweeper, table)["deleted"] == 1
    sweeper.execute("COMMIT")
    assert tables.ids(table) == {leased}


@pytest.mark.parametrize(("kind", "lease"), [("dataset_import", "import"), ("webhook_delivery", "webhook")])
def test_job_is_kept_under_the_lease_of_its_kind(
    tables: Tables, sweeper: Connection[DictRow], kind: str, lease: str, routines: Any
) -> None:
    row = tables.put("scheduler.jobs", kind=kind)
    tables.put_lease(f"{lease}:demo:{row}", seconds=60)
    routines["begin"](sweeper)
    assert routines["call"](sweeper, "scheduler.jobs")["deleted"] == 0
    sweeper.execute("COMMIT")


def test_outcome_of_a_job_goes_into_the_history_with_its_deletion(
    tables: Tables, sweeper: Connection[DictRow], routines: Any
) -> None:
    job = tables.put("scheduler.jobs", "failed")
    tables.database.look("""UPDATE scheduler.jobs SET error = '{"detail": "x"}', attempts = 3""")
    routines["begin"](sweeper)
    routines["call"](sweeper, "scheduler.jobs")
    sweeper.execute("ROLLBACK")
    assert (tables.ids("scheduler.jobs"), tables.ids("scheduler.job_history")) == ({job}, set())
    routines["begin"](sweeper)
    routines["call"](sweeper, "scheduler.jobs")
    sweeper.execute("COMMIT")
    assert tables.ids("scheduler.jobs") == set()
    assert tables.database.look("SELECT id::text, kind, state, attempts, error FROM scheduler.job_history") == [
        {"id": job, "kind": "sink_export", "state": "failed", "attempts": 3, "error": {"detail": "x"}}
    ]


def test_job_opened_again_after_it_was_archived_is_archived_with_its_later_outcome(
    tables: Tables, sweeper: Connection[DictRow], routines: Any
) -> None:
    job = tables.put("scheduler.jobs", "failed")
    for _ in range(2):
        routines["begin"](sweeper)
        routines["call"](sweeper, "scheduler.jobs")
        sweeper.execute("COMMIT")
        if not tables.ids("scheduler.jobs") and tables.database.look_up("SELECT state FROM scheduler.job_history") == (
            "failed"
        ):
            tables.put("scheduler.jobs", "succeeded", id=job)
    assert tables.database.look("SELECT id::text, state FROM scheduler.job_history") == [
        {"id": job, "state": "succeeded"}
    ]


def test_job_that_a_trigger_refers_to_stays(tables: Tables, sweeper: Connection[DictRow], routines: Any) -> None:
    referred, other = tables.put("scheduler.jobs"), tables.put("scheduler.jobs")
    tables.put_trigger(referred)
    routines["begin"](sweeper)
    assert routines["call"](sweeper, "scheduler.jobs")["deleted"] == 1
    sweeper.execute("COMMIT")
    assert tables.ids("scheduler.jobs") == {referred}
    assert other not in tables.ids("scheduler.jobs")


def explain(connection: Connection[DictRow], statements: Mapping[str, str], types: Mapping[str, str]) -> dict[str, str]:
    """Return the plans of a routine's statements, as they are kept: without a look at the values."""
    given = {"tenant": "'demo'", "batch": "1000", "row_budget": "1000"}
    values = ", ".join(given.get(name, f"'{NO_ID}'" if kind == "uuid" else "now()") for name, kind in types.items())
    plans: dict[str, str] = {}
    for part, statement in statements.items():
        for place, name in enumerate(types, start=1):
            statement = re.sub(rf"(?<![\w.]){name}\b", f"${place}", statement)
        statement = statement if re.match(r"\s*(SELECT|WITH|DELETE)", statement) else f"SELECT {statement}"
        connection.execute(cast("Any", f"PREPARE kept ({', '.join(types.values())}) AS {statement}"))
        rows = connection.execute(cast("Any", f"EXPLAIN EXECUTE kept ({values})")).fetchall()
        plans[part] = "\n".join(row["QUERY PLAN"] for row in rows)
        connection.execute("DEALLOCATE kept")
    return plans


def find_parts(text: str, parts: Mapping[str, str]) -> dict[str, str]:
    """Find statements in the text of a routine: each pattern once, its groups put together."""
    found: dict[str, str] = {}
    for part, pattern in parts.items():
        (match,) = re.finditer(pattern, text, flags=re.DOTALL)
        found[part] = "".join(match.groups())
    return found


def plan_routine(
    tables: Tables, connection: Connection[DictRow], name: str, parts: Mapping[str, str], types: Mapping[str, str]
) -> dict[str, str]:
    """Plan the statements of a routine of the keeper as it does itself, with its settings."""
    (row,) = tables.database.look(
        "SELECT p.proconfig AS settings, p.prosrc AS text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'scheduler_app' AND p.proname = %(name)s",
        {"name": name},
    )
    connection.execute("BEGIN")
    connection.execute("SELECT scheduler_app.begin_tenant('demo', 5000, 20000)")
    for setting in row["settings"]:
        connection.execute(cast("Any", f"SET LOCAL {setting}"))
    plans = explain(connection, find_parts(row["text"], parts), types)
    connection.execute("ROLLBACK")
    return plans


def pretend_rows(tables: Tables, table: str, rows: int) -> None:
    """Let the planner think what it does of a table that was small when it was last looked at, or of a huge one."""
    tables.database.look(f"ANALYZE {table}")
    tables.database.look(
        "UPDATE pg_class SET reltuples = %(rows)s, relpages = %(pages)s WHERE oid = %(table)s::regclass",
        {"table": table, "rows": rows, "pages": rows // 50 + 1},
    )


@pytest.mark.parametrize("rows", [1, 10_000_000])
@pytest.mark.parametrize("table", [table.name for table in OPERATIONAL_TABLES])
def test_routine_walks_the_index_of_terminal_rows_and_scans_no_table(
    tables: Tables, sweeper: Connection[DictRow], table: str, rows: int
) -> None:
    tables.put(table, days=1000)
    bare = table.partition(".")[2]
    parts = {
        "place": r"(SELECT [\w.]+, t\.id) INTO last_at, last_id(.*?);",
        "at_once": r"END IF;\s+((?:WITH gone AS \()?DELETE FROM .*?);\s+GET DIAGNOSTICS",
        "around_locks": r"RETURN QUERY(.*?);\s*END",
    }
    types = {
        "tenant": "text",
        "before_at": "timestamptz",
        "before_id": "uuid",
        "after_at": "timestamptz",
        "after_id": "uuid",
        "batch": "integer",
        "last_at": "timestamptz",
        "last_id": "uuid",
    }
    pretend_rows(tables, table, rows)
    plans = plan_routine(tables, sweeper, f"expire_{bare}", parts, types)
    tables.database.look(f"ANALYZE {table}")
    for part, plan in plans.items():
        # Of one row it is all the same by which index it is deleted; an ANALYZE of more rows makes the plan anew.
        index = f"{bare}_(?:terminal|pkey)" if (part, rows) == ("at_once", 1) else f"{bare}_terminal"
        assert re.search(rf"using {index} on {bare} t|Scan on {index}", plan), plan
        assert "Seq Scan" not in plan, plan
    # Rows that are held cost a batch, not the backlog: found by their places, or between the bounds of the batch.
    around = plans["around_locks"]
    deletion = around[around.index("CTE gone") :]
    assert "Tid Scan" in deletion or re.search(r"> ROW\(.*<= ROW\(", deletion), around
    assert re.search(r"> ROW\(.*<= ROW\(", plans["at_once"]), plans["at_once"]
    # The choice comes in the order of the index: only the place of the last chosen row may be sorted for.
    assert "Sort" not in plans["place"] + plans["at_once"], plans
    assert "Sort" not in around.replace(around[around.index("CTE last") : around.index("CTE gone")], ""), around


@pytest.mark.parametrize("rows", [1, 10_000_000])
@pytest.mark.parametrize("table", [table.name for table in OPERATIONAL_TABLES])
def test_what_has_expired_is_found_by_steps_in_the_index(
    tables: Tables, sweeper: Connection[DictRow], table: str, rows: int
) -> None:
    tables.put(table, days=1000)
    bare = table.partition(".")[2]
    parts = {
        "bound": r"(SELECT [\w.]+, t\.id) INTO before_at, before_id(.*?);",
        "expired": r"PERFORM (FROM .*?);",
    }
    types = {"tenant": "text", "row_budget": "integer", "before_at": "timestamptz", "before_id": "uuid"}
    pretend_rows(tables, table, rows)
    plans = plan_routine(tables, sweeper, f"find_expired_{bare}", parts, types)
    tables.database.look(f"ANALYZE {table}")
    for plan in plans.values():
        assert f"{bare}_terminal" in plan, plan
        assert "Sort" not in plan, plan
        assert f"Seq Scan on {bare} " not in plan, plan


@pytest.mark.parametrize("table", [table.name for table in OPERATIONAL_TABLES])
def test_counts_need_no_scan(tables: Tables, sweeper: Connection[DictRow], table: str) -> None:
    tables.put(table, days=1000)
    bare = table.partition(".")[2]
    tenant = "" if bare == "workers" else "'demo'"
    tables.database.look(f"ANALYZE {table}")
    tables.database.look(
        "UPDATE pg_class SET reltuples = 1e7, relpages = 2e5 WHERE oid = %(table)s::regclass", {"table": table}
    )
    asked = {
        f"{bare}_terminal": f"SELECT t.ended_at FROM scheduler_app.terminal_{bare}({tenant}) t"
        " WHERE NOT t.is_guarded ORDER BY t.ended_at, t.id LIMIT 10000"
    }
    if table in EIGHT:
        asked[f"{bare}_active"] = (
            f"SELECT 1 FROM scheduler_app.open_{bare}({tenant}) o WHERE NOT o.is_incomplete LIMIT 10001"
        )
    if table in CAN_LACK_THEIR_END:
        asked[f"{bare}_incomplete"] = (
            f"SELECT 1 FROM scheduler_app.open_{bare}({tenant}) o WHERE o.is_incomplete LIMIT 10001"
        )
    sweeper.execute("BEGIN")
    sweeper.execute("SELECT scheduler_app.begin_tenant('demo', 5000, 20000)")
    sweeper.execute("SET LOCAL enable_seqscan = off")
    for index, statement in asked.items():
        rows = sweeper.execute(cast("Any", f"EXPLAIN {statement}")).fetchall()
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert index in plan, plan
        # Leases are as many as there is work at this moment: they may be read whole.
        assert f"Seq Scan on {bare} " not in plan, plan
        # In the order of the index: a sort would read every row first.
        assert "Sort" not in plan, plan
    sweeper.execute("ROLLBACK")
    tables.database.look(f"ANALYZE {table}")
