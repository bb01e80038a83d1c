"""Rows of every operational table in any state, of any age."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.jobengine.registry import OPERATIONAL_TABLES
from coordination.settings import JobEngineSettings, RetentionSettings
from psycopg import Connection
from psycopg.rows import DictRow
from retention_sweep.keep_tables import keep_tables

if TYPE_CHECKING:
    from conftest import FreshDatabase

EIGHT = [table.name for table in OPERATIONAL_TABLES if table.doctor_check is not None]
NO_ID = uuid.UUID(int=0)

# ended_at: when it ended, or NULL for a row that is incomplete.
INSERTS = {
    "scheduler.jobs": """
        INSERT INTO scheduler.jobs (tenant_id, id, kind, state, dedupe_key, payload, created_by, completed_at)
        VALUES (%(tenant)s, %(id)s, %(kind)s, %(state)s, %(id)s::uuid::text, '{}', 'test',
                %(ended_at)s::timestamptz)""",
    "scheduler.runs": """
        WITH schedule AS (
            INSERT INTO scheduler.schedules (tenant_id, id, cron, cron_sets, grammar_version, created_by)
            VALUES (%(tenant)s, 's', '* * * * *', '{}', 1, 'test') ON CONFLICT DO NOTHING)
        INSERT INTO scheduler.runs (
            tenant_id, id, schedule_id, tick_at, window_start, window_end, state, finished_at)
        VALUES (%(tenant)s, %(id)s, 's', clock_timestamp(), now() - interval '1 h', now(), %(state)s,
                %(ended_at)s::timestamptz)""",
    "scheduler.graph_jobs": """
        INSERT INTO scheduler.graph_jobs (tenant_id, id, schedule_id, state, updated_at)
        VALUES (%(tenant)s, %(id)s, 's', %(state)s, %(ended_at)s::timestamptz)""",
    "scheduler.policy_run_jobs": """
        INSERT INTO scheduler.policy_run_jobs (
            tenant_id, id, run_id, shard_no, first_record, records, byte_start, byte_end, state, updated_at)
        VALUES (%(tenant)s, %(id)s, gen_random_uuid(), 0, 0, 1, 0, 1, %(state)s, %(ended_at)s::timestamptz)""",
    "scheduler.estate_run_queue": """
        INSERT INTO scheduler.estate_run_queue (tenant_id, id, acknowledged_at, completed_at, outcome)
        VALUES (%(tenant)s, %(id)s, CASE WHEN %(state)s <> 'waiting' THEN %(ended_at)s::timestamptz END,
                CASE WHEN %(state)s NOT IN ('waiting', 'acknowledged') THEN %(ended_at)s::timestamptz END,
                CASE WHEN %(state)s NOT IN ('waiting', 'acknowledged') THEN %(state)s END)""",
    "packs.pack_storage_outbox": """
        WITH event AS (
            INSERT INTO packs.pack_storage_events (tenant_id, id, event, sha256, detail, created_by)
            VALUES (%(tenant)s, %(id)s, 'dataset.published', repeat('a', 64), '{}', 'test'))
        INSERT INTO packs.pack_storage_outbox (tenant_id, id, published_at)
        VALUES (%(tenant)s, %(id)s, CASE WHEN %(state)s = 'published' THEN %(ended_at)s::timestamptz END)""",
    "scheduler.failure_signatures": """
        INSERT INTO scheduler.failure_signatures (tenant_id, id, signature, kind, work, error, state, resolved_at)
        VALUES (%(tenant)s, %(id)s, encode(sha256(%(id)s::uuid::text::bytea), 'hex'), 'import', 'w', 'e', %(state)s,
                %(ended_at)s::timestamptz)""",
    "scheduler.workers": """
        INSERT INTO scheduler.workers (id, function, state, active_count, heartbeat_at)
        VALUES (%(id)s, 'run_evaluation', %(state)s, %(active_count)s, %(ended_at)s::timestamptz)""",
    "scheduler.job_history": """
        INSERT INTO scheduler.job_history (
            tenant_id, id, kind, state, dedupe_key, attempts, created_at, created_by, completed_at)
        VALUES (%(tenant)s, %(id)s, 'sink_export', %(state)s, 'k', 1, now(), 'test', %(ended_at)s::timestamptz)""",
}
TERMINAL = {
    "scheduler.jobs": ["succeeded", "failed", "canceled", "timed_out"],
    "scheduler.runs": ["completed", "error", "cancelled"],
    "scheduler.graph_jobs": ["completed", "failed", "canceled"],
    "scheduler.policy_run_jobs": ["completed", "failed", "cancelled"],
    "scheduler.estate_run_queue": ["succeeded", "failed", "error", "cancelled"],
    "packs.pack_storage_outbox": ["published"],
    "scheduler.failure_signatures": ["resolved"],
    "scheduler.workers": ["stopped"],
    "scheduler.job_history": ["succeeded", "failed", "canceled", "timed_out"],
}
ACTIVE = {
    "scheduler.jobs": ["queued", "running"],
    "scheduler.runs": ["planning", "queued", "running"],
    "scheduler.graph_jobs": ["queued", "running"],
    "scheduler.policy_run_jobs": ["queued", "running"],
    "scheduler.estate_run_queue": ["waiting", "acknowledged"],
    "packs.pack_storage_outbox": ["waiting"],
    "scheduler.failure_signatures": ["unresolved", "investigating", "wont_fix"],
    "scheduler.workers": ["active", "draining", "busy"],
}
# As the bundle's own statements do it: a delivery sent again, a resumed run, a failure that came back, a thawed worker.
REOPENED = {
    "scheduler.jobs": "SET state = 'queued', completed_at = NULL",
    "scheduler.runs": "SET state = 'queued', finished_at = NULL",
    "scheduler.graph_jobs": "SET state = 'queued', updated_at = clock_timestamp()",
    "scheduler.policy_run_jobs": "SET state = 'queued', updated_at = clock_timestamp()",
    "scheduler.estate_run_queue": "SET acknowledged_at = NULL, completed_at = NULL, outcome = NULL",
    "packs.pack_storage_outbox": "SET published_at = NULL",
    "scheduler.failure_signatures": "SET state = 'unresolved', resolved_at = NULL",
    "scheduler.workers": "SET state = 'active', heartbeat_at = clock_timestamp()",
}
AGE = {table.name: table.age_column for table in OPERATIONAL_TABLES}


class Context:
    """Lambda's context of a keeper."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return int(self._seconds * 1000)


@dataclass(frozen=True)
class Tables:
    """The operational tables of one database.

    Attributes
    ----------
    database
        To look into.
    """

    database: FreshDatabase

    def put(
        self, table: str, state: str | None = None, *, days: float | None = 100, tenant: str = "demo", **more: Any
    ) -> str:
        """Insert a row that ended so many days ago (None: without the time of its end) and return its id."""
        row_id = more.pop("id", None) or str(uuid.uuid4())
        given = state or TERMINAL[table][0]
        params = {
            "tenant": tenant,
            "id": row_id,
            "state": "stopped" if given == "busy" else given,
            "ended_at": None
            if days is None
            else self.database.look_up("SELECT clock_timestamp()") - timedelta(days=days),
            "kind": "sink_export",
            "active_count": 1 if given == "busy" else 0,
        }
        self.database.look(INSERTS[table], params | more)
        return row_id

    def put_lease(self, name: str, *, seconds: float) -> None:
        """Insert a lease that expires so many seconds from now."""
        self.database.look(
            "INSERT INTO coordination.leases VALUES (%(name)s, gen_random_uuid(), 1, clock_timestamp() + %(rest)s)",
            {"name": name, "rest": timedelta(seconds=seconds)},
        )

    def put_trigger(self, job: str, *, tenant: str = "demo") -> None:
        """Insert a trigger whose latest job it is."""
        self.database.look(
            "INSERT INTO scheduler.triggers (tenant_id, kind, name, last_job_id)"
            " VALUES (%(t)s, 'route', %(j)s::uuid::text, %(j)s::uuid)",
            {"t": tenant, "j": job},
        )

    def ids(self, table: str) -> set[str]:
        """Return the ids of all rows of a table."""
        return {str(row["id"]) for row in self.database.look(f"SELECT id FROM {table}")}

    def reopen(self, connection: Connection[DictRow], table: str, row_id: str) -> None:
        """Open a row again, as work that goes on does."""
        connection.execute(cast("Any", f"UPDATE {table} {REOPENED[table]} WHERE id = %(id)s"), {"id": row_id})


@pytest.fixture
def tables(database: FreshDatabase) -> Tables:
    """Return the tables of the test's database."""
    return Tables(database)


@pytest.fixture
def keep(make_environments: Callable[..., Environment]) -> Callable[..., dict[str, int]]:
    """Return a function that runs the keeper at once; keywords are settings of retention."""

    def run(*, seconds: float = 300, **settings: Any) -> dict[str, int]:
        retention = RetentionSettings.model_validate({"start_delay": 0} | settings)
        environment = make_environments(jobengine=JobEngineSettings(retention=retention))
        return keep_tables(environment, Deadline.of_invocation(Context(seconds)))

    return run


def begin(connection: Connection[DictRow], tenant: str = "demo") -> None:
    """Open a tenant's transaction."""
    connection.execute("BEGIN")
    connection.execute("SELECT scheduler_app.begin_tenant(%(tenant)s, 5000, 20000)", {"tenant": tenant})


def call(
    connection: Connection[DictRow],
    table: str,
    *,
    tenant: str = "demo",
    batch: int = 1000,
    schema: str = "scheduler_app",
    days: float = 90,
) -> DictRow:
    """Delete one batch of what ended more than so many days ago."""
    bare = table.partition(".")[2]
    named = "" if bare == "workers" else "%(tenant)s::text, "
    row = connection.execute(
        cast(
            "Any",
            f"SELECT selected, deleted, last_at, last_id, may_have_passed_over FROM {schema}.expire_{bare}("
            f"{named}clock_timestamp() - %(age)s, '{NO_ID}', '-infinity', '{NO_ID}', %(batch)s)",
        ),
        {"tenant": tenant, "age": timedelta(days=days), "batch": batch},
    ).fetchone()
    assert row is not None
    return row


def read_routine(database: FreshDatabase, table: str) -> str:
    """Return the definition of a table's routine, made for pg_temp."""
    bare = table.partition(".")[2]
    text = database.look_up(
        "SELECT pg_get_functiondef(p.oid) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = 'scheduler_app' AND p.proname = %(name)s",
        {"name": f"expire_{bare}"},
    )
    return text.replace("FUNCTION scheduler_app.expire_", "FUNCTION pg_temp.expire_", 1)


def change(text: str, replacements: Iterable[tuple[str, str]]) -> str:
    """Replace what patterns find, each exactly once, one after the other."""
    for pattern, replacement in replacements:
        text, count = re.subn(pattern, replacement, text, flags=re.DOTALL)
        assert count == 1, pattern
    return text


@pytest.fixture
def routines() -> Mapping[str, Callable[..., Any]]:
    """Return what tests of the routines use, which they cannot import."""
    return {"begin": begin, "call": call, "read": read_routine, "change": change}


@pytest.fixture
def reopened() -> Mapping[str, str]:
    """Return how a row of each table is opened again."""
    return REOPENED


@pytest.fixture
def active() -> Mapping[str, list[str]]:
    """Return the states of each table that have not ended."""
    return ACTIVE


@pytest.fixture
def terminal() -> Mapping[str, list[str]]:
    """Return the states of each table that have ended."""
    return TERMINAL


@pytest.fixture
def age_columns() -> Mapping[str, str]:
    """Return from when the age of each table's rows counts."""
    return AGE


@pytest.fixture
def context() -> Callable[[float], Deadline]:
    """Return a function that makes the deadline of an invocation with so many seconds left."""
    return lambda seconds: Deadline.of_invocation(Context(seconds))


@pytest.fixture
def inserts() -> Mapping[str, str]:
    """Return the statement that inserts a row into each table."""
    return INSERTS
