"""The keeper: when it sweeps, what it leaves, and what it does when something is in its way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest
from coordination.jobengine.registry import OPERATIONAL_TABLES
from coordination.settings import JobEngineSettings, RetentionSettings, TransactionSettings
from retention_sweep import sweep_scope as sweeping
from retention_sweep.keep_tables import keep_tables

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from coordination.environment import Environment
    from integration.jobengine.conftest import Tables

EIGHT = [table.name for table in OPERATIONAL_TABLES if table.doctor_check is not None]
type Keep = Callable[..., dict[str, int]]


@pytest.fixture(autouse=True)
def project(make_project: Callable[..., str]) -> None:
    """Make the project that most rows belong to."""
    make_project("demo")


@pytest.fixture
def look(database: FreshDatabase) -> Callable[..., Any]:
    """Return a function that looks into the database."""
    return database.look


def receipts(database: FreshDatabase) -> list[Any]:
    return database.look("SELECT * FROM scheduler.sweep_receipts ORDER BY id")


@pytest.mark.parametrize("table", EIGHT)
def test_exactly_what_is_older_than_the_window_goes(tables: Tables, keep: Keep, table: str) -> None:
    tables.put(table, days=90.01)
    young = tables.put(table, days=89.99)
    assert keep()["deleted"] == 1
    assert tables.ids(table) == {young}


def test_window_of_failures_is_their_own(tables: Tables, keep: Keep) -> None:
    tables.put("scheduler.failure_signatures", days=8)
    job = tables.put("scheduler.graph_jobs", days=8)
    assert keep(failure_signature_retention_days=7)["deleted"] == 1
    assert tables.ids("scheduler.graph_jobs") == {job}


def test_history_goes_after_its_own_window(tables: Tables, keep: Keep) -> None:
    tables.put("scheduler.job_history", days=366)
    kept = {tables.put("scheduler.job_history", days=days) for days in (364, 91, 0)}
    keep(maximum_terminal_rows_per_scope=1)
    assert tables.ids("scheduler.job_history") == kept


@pytest.mark.parametrize("table", EIGHT)
def test_rows_beyond_the_budget_of_a_scope_go_oldest_first(tables: Tables, keep: Keep, table: str) -> None:
    rows = [tables.put(table, days=days) for days in (5, 4, 3, 2, 1)]
    keep(maximum_terminal_rows_per_scope=2)
    assert tables.ids(table) == set(rows[3:])


def test_budget_counts_per_scope_and_only_rows_that_can_go(tables: Tables, keep: Keep, make_project: Any) -> None:
    make_project("other")
    other = [tables.put("scheduler.jobs", days=days, tenant="other") for days in (2, 1)]
    protected = tables.put("scheduler.jobs", days=9)
    tables.put_trigger(protected)
    open_row = tables.put("scheduler.jobs", "queued", days=None)
    rows = [tables.put("scheduler.jobs", days=days) for days in (5, 4, 3)]
    keep(maximum_terminal_rows_per_scope=2)
    assert tables.ids("scheduler.jobs") == {*other, protected, open_row, *rows[1:]}


def test_rows_of_equal_age_are_cut_by_their_id(tables: Tables, keep: Keep, database: FreshDatabase) -> None:
    rows = sorted(tables.put("scheduler.graph_jobs") for _ in range(5))
    database.look("UPDATE scheduler.graph_jobs SET updated_at = now() - interval '1 day'")
    keep(maximum_terminal_rows_per_scope=2, batch_size=1)
    assert tables.ids("scheduler.graph_jobs") == set(rows[3:])


def test_calls_are_finite_and_what_is_left_is_told(tables: Tables, keep: Keep, database: FreshDatabase) -> None:
    for day in range(100, 109):
        tables.put("scheduler.runs", days=day)
    assert keep(batch_size=2, max_batches_per_sweep=3) == {
        "swept": 1, "stopped_workers": 0, "scopes": 3, "failed": 0, "deleted": 6, "remaining": 3,
    }  # fmt: skip
    (receipt,) = receipts(database)
    told = receipt["tables"]["scheduler.runs"]
    age = told.pop("oldest_age_seconds")
    assert told == {
        "deleted": 6, "remaining": 3, "is_remaining_capped": False, "is_budget_used_up": True, "is_behind": True,
    }  # fmt: skip
    # The oldest went first.
    assert 102 * 86_400 <= age < 102.1 * 86_400


def test_every_scope_is_swept_and_none_sees_another(tables: Tables, keep: Keep, make_project: Any) -> None:
    make_project("other")
    for tenant in ("demo", "other", "default", "nobody"):
        tables.put("scheduler.jobs", tenant=tenant)
    assert keep()["deleted"] == 3
    assert keep(sweep_interval=1e-6, tenants=["nobody"])["deleted"] == 1
    assert tables.ids("scheduler.jobs") == set()


def test_every_tenant_of_packs_is_a_project(database: FreshDatabase, tables: Tables, service: Any) -> None:
    # What makes the list of projects complete: no route writes for a project that is not there.
    reply = service.post(
        "/v1/projects/nobody/datasets:import", {"uri": "s3://evalward-test/datasets/incoming/nobody/x.jsonl"}
    )
    assert reply.status == 404
    assert tables.ids("scheduler.jobs") == set()


def test_failure_of_one_tenant_does_not_keep_the_others_from_being_swept(
    tables: Tables, keep: Keep, make_project: Any, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project("a")
    make_project("z")
    kept = tables.put("scheduler.jobs", tenant="demo")
    for tenant in ("a", "z"):
        tables.put("scheduler.jobs", tenant=tenant)
    tables.put("scheduler.runs", tenant="demo")
    ask = sweeping._ask

    def refuse(environment: Environment, query: str, params: dict[str, Any], deadline: Any) -> Any:
        if params["tenant"] == "demo" and query == "expire_jobs":
            raise ValueError("broken")
        return ask(environment, query, params, deadline)

    monkeypatch.setattr(sweeping, "_ask", refuse)
    counts = keep()
    assert (counts["failed"], counts["deleted"]) == (1, 3)
    assert tables.ids("scheduler.jobs") == {kept}
    assert receipts(database)[0]["failed_scope_count"] == 1


def test_scope_whose_rest_cannot_be_counted_may_have_more_left_than_is_told(
    tables: Tables, keep: Keep, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        tables.put("scheduler.runs")
    ask_all = sweeping._ask_all

    def refuse(environment: Environment, query: str, params: dict[str, Any], scope: str | None, deadline: Any) -> Any:
        if query == "measure_expired" and any(one["row_cap"] > 1 for one in params.values()):
            raise ValueError("broken")
        return ask_all(environment, query, params, scope, deadline)

    monkeypatch.setattr(sweeping, "_ask_all", refuse)
    counts = keep(batch_size=1, max_batches_per_sweep=1)
    assert (counts["failed"], counts["deleted"]) == (1, 1)
    told = receipts(database)[0]["tables"]["scheduler.runs"]
    assert (told["is_behind"], told["is_remaining_capped"]) == (True, True)


@pytest.mark.parametrize("strength", ["FOR UPDATE", "FOR KEY SHARE"])
def test_row_that_is_held_in_the_middle_of_a_batch_is_left_alone_and_told(
    tables: Tables, keep: Keep, database: FreshDatabase, strength: str
) -> None:
    rows = [tables.put("scheduler.jobs", days=200 - number) for number in range(9)]
    with database.connect("superuser") as worker:
        worker.execute("BEGIN")
        worker.execute(cast("Any", f"SELECT 1 FROM scheduler.jobs WHERE id = %(id)s {strength}"), {"id": rows[4]})
        counts = keep(batch_size=3)
        worker.execute("ROLLBACK")
    assert (counts["failed"], counts["deleted"], counts["remaining"]) == (0, 8, 1)
    assert tables.ids("scheduler.jobs") == {rows[4]}
    assert tables.ids("scheduler.job_history") == {*rows} - {rows[4]}


def test_trigger_that_takes_up_a_job_meanwhile_makes_the_batch_begin_anew(
    tables: Tables, database: FreshDatabase, routines: Any
) -> None:
    taken, free = tables.put("scheduler.jobs", days=101), tables.put("scheduler.jobs", days=100)
    # Committed when the deletion has its snapshot: it does not see the trigger, the foreign key does.
    waits = [
        (
            r"(WITH gone AS \(DELETE FROM scheduler.jobs t\s+WHERE )",
            r"\1(SELECT pg_advisory_xact_lock(7)) IS NOT NULL AND ",
        )
    ]
    text = routines["change"](routines["read"](database, "scheduler.jobs"), waits)
    with database.connect("app") as sweeper, database.connect("superuser") as worker:
        sweeper.execute(text.replace("'20ms'", "'20s'"))
        worker.execute("SELECT pg_advisory_lock(7)")
        routines["begin"](sweeper)
        with ThreadPoolExecutor(1) as threads:
            sweep = threads.submit(routines["call"], sweeper, "scheduler.jobs", schema="pg_temp")
            while database.look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") == 0:
                assert not sweep.done(), sweep.result()
            tables.put_trigger(taken)
            worker.execute("SELECT pg_advisory_unlock(7)")
            row = sweep.result()
        sweeper.execute("COMMIT")
    assert (row["deleted"], row["may_have_passed_over"]) == (1, True)
    assert tables.ids("scheduler.jobs") == {taken}
    assert tables.ids("scheduler.job_history") == {free}


SLOW_WHEN_LARGE = """
CREATE FUNCTION pg_temp_slow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) > 2 AND bool_or(error = 'slow') FROM gone) THEN PERFORM pg_sleep(30); END IF;
    RETURN NULL;
END $$;
GRANT EXECUTE ON FUNCTION pg_temp_slow() TO PUBLIC;
CREATE TRIGGER slow AFTER DELETE ON scheduler.graph_jobs REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION pg_temp_slow()
"""


def test_time_out_of_a_batch_keeps_those_before_it_and_halves_the_next(
    tables: Tables, make_environments: Callable[..., Environment], database: FreshDatabase, context: Any
) -> None:
    rows = [tables.put("scheduler.graph_jobs", days=200 - number) for number in range(12)]
    # The third batch of four is slow as long as it is larger than two.
    database.look("UPDATE scheduler.graph_jobs SET error = 'slow' WHERE id = ANY(%(ids)s::uuid[])", {"ids": rows[8:]})
    database.look(SLOW_WHEN_LARGE)
    try:
        retention = RetentionSettings(batch_size=4, max_batches_per_sweep=4, start_delay=0)  # pyright: ignore[reportArgumentType]
        environment = make_environments(
            jobengine=JobEngineSettings(retention=retention),
            transactions=TransactionSettings(statement_timeout_ms=700),
        )
        counts = keep_tables(environment, context(300))
    finally:
        database.look("DROP TRIGGER slow ON scheduler.graph_jobs; DROP FUNCTION pg_temp_slow()")
    # 4, 4, time-out, 2: the calls are used up.
    assert (counts["deleted"], counts["remaining"], counts["failed"]) == (10, 2, 0)
    assert tables.ids("scheduler.graph_jobs") == set(rows[10:])
    assert receipts(database)[0]["tables"]["scheduler.graph_jobs"]["is_budget_used_up"] is True


def test_deletion_is_seen_by_others_when_the_keeper_is_done(tables: Tables, keep: Keep, look: Any) -> None:
    tables.put("scheduler.jobs")
    keep()
    assert look("SELECT count(*) AS jobs FROM scheduler.jobs") == [{"jobs": 0}]


def test_two_keepers_sweep_once(
    tables: Tables, keep: Keep, make_environments: Callable[..., Environment], context: Any, database: FreshDatabase
) -> None:
    for _ in range(20):
        tables.put("scheduler.jobs")
    retention = RetentionSettings(batch_size=3, start_delay=0)  # pyright: ignore[reportArgumentType]
    environments = [make_environments(jobengine=JobEngineSettings(retention=retention)) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        counts = [sweep.result() for sweep in [threads.submit(keep_tables, one, context(300)) for one in environments]]
    assert sorted(count["swept"] for count in counts) == [0, 0, 0, 1]
    assert sum(count.get("deleted", 0) for count in counts) == 20
    assert len(receipts(database)) == 1


def test_two_sweeps_at_once_take_different_rows_and_never_wait(
    tables: Tables, database: FreshDatabase, routines: Any
) -> None:
    for _ in range(10):
        tables.put("scheduler.runs")
    with database.connect("app") as first, database.connect("app") as second:
        for connection in (first, second):
            routines["begin"](connection)
            assert routines["call"](connection, "scheduler.runs", batch=5)["deleted"] == 5
        for connection in (first, second):
            connection.execute("COMMIT")
    assert tables.ids("scheduler.runs") == set()


def test_lost_double_and_late_pulses_change_nothing(tables: Tables, keep: Keep, database: FreshDatabase) -> None:
    tables.put("scheduler.jobs")
    assert keep()["swept"] == 1
    tables.put("scheduler.jobs")
    assert [keep()["swept"] for _ in range(3)] == [0, 0, 0]
    database.look("UPDATE scheduler.sweep_receipts SET started_at = started_at - interval '1 day'")
    assert [keep()["swept"] for _ in range(3)] == [1, 0, 0]
    assert tables.ids("scheduler.jobs") == set()


def test_first_sweep_waits_after_the_installation(tables: Tables, keep: Keep, database: FreshDatabase) -> None:
    tables.put("scheduler.jobs")
    installed = database.look_up(
        "SELECT extract(epoch FROM clock_timestamp() - min(applied_at))::float8 FROM coordination.schema_migrations"
    )
    assert keep(start_delay=installed + 3600)["swept"] == 0
    assert keep(start_delay=installed - 1)["swept"] == 1


def test_keeper_that_is_disabled_deletes_nothing(tables: Tables, keep: Keep, database: FreshDatabase) -> None:
    job = tables.put("scheduler.jobs")
    assert keep(enabled=False) == {"swept": 0, "stopped_workers": 0}
    assert tables.ids("scheduler.jobs") == {job}
    assert receipts(database) == []


def test_sweep_without_anything_to_do_leaves_a_receipt(keep: Keep, database: FreshDatabase) -> None:
    keep()
    (receipt,) = receipts(database)
    assert receipt["tables"].keys() == {table.name for table in OPERATIONAL_TABLES}
    assert {told["deleted"] for told in receipt["tables"].values()} == {0}


def test_newest_ninety_receipts_are_kept(keep: Keep, database: FreshDatabase) -> None:
    database.look("""
        INSERT INTO scheduler.sweep_receipts (started_at, finished_at, scope_count, failed_scope_count, tables)
        SELECT now() - n * interval '1 day', now(), 1, 0, '{}' FROM generate_series(2, 100) n""")
    keep()
    assert database.look_up("SELECT count(*) FROM scheduler.sweep_receipts") == 90
    assert database.look_up(
        "SELECT extract(day FROM now() - min(started_at))::integer FROM scheduler.sweep_receipts") == 90  # fmt: skip


def test_keeper_without_time_goes_on_at_the_next_pulse_where_it_stopped(
    tables: Tables, keep: Keep, make_project: Any, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for project in ("a", "b", "c"):
        make_project(project)
        tables.put("scheduler.jobs", tenant=project)
    swept: list[str | None] = []
    sweep = sweeping.sweep_scope

    def no_time(_: object) -> float:
        return 1.0

    def run_out(environment: Environment, one: Any, scope: str | None, deadline: Any) -> None:
        swept.append(scope)
        sweep(environment, one, scope, deadline)
        if scope == "b" and swept.count("b") == 1:
            monkeypatch.setattr(type(deadline), "remaining_seconds", no_time)

    monkeypatch.setattr("retention_sweep.keep_tables.sweep_scope", run_out)
    keep()
    assert receipts(database)[0]["stopped_after"] == "b"
    monkeypatch.undo()
    assert keep()["deleted"] == 1
    assert receipts(database)[1]["stopped_after"] is None
    assert tables.ids("scheduler.jobs") == set()
    assert keep()["swept"] == 0


def test_environment_that_was_silent_for_half_an_hour_is_stopped_and_idle(
    tables: Tables, keep: Keep, database: FreshDatabase
) -> None:
    silent = tables.put("scheduler.workers", "busy", days=31 / 1440)
    database.look("UPDATE scheduler.workers SET state = 'active'")
    heard = tables.put("scheduler.workers", "active", days=29 / 1440)
    assert keep(enabled=False)["stopped_workers"] == 1
    states = {
        str(row["id"]): (row["state"], row["active_count"])
        for row in database.look("SELECT id, state, active_count FROM scheduler.workers")
    }
    assert states == {silent: ("stopped", 0), heard: ("active", 0)}
