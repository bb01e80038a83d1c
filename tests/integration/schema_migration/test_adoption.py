# ruff: noqa: PT012 - a transaction is the block that raises
"""An existing JobEngine database: adopted when its tables carry the columns of ours, else refused with the list."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from coordination.migrations import list_migrations
from psycopg import Connection
from psycopg.rows import DictRow
from schema_migration.adopt_database import DatabaseNotAdoptableError, adopt_database

if TYPE_CHECKING:
    from conftest import Server

# What another JobEngine made of two tables: columns of ours, some more, other defaults, no checks, its own policy.
EXISTING = """
CREATE SCHEMA scheduler;
CREATE SCHEMA packs;
CREATE SCHEMA scheduler_app;
CREATE FUNCTION scheduler_app.require_current_tenant() RETURNS text LANGUAGE sql STABLE AS
    $$ SELECT current_setting('app.tenant_id') $$;
CREATE TABLE scheduler.graph_jobs (
    tenant_id text NOT NULL, id uuid NOT NULL, schedule_id text NOT NULL, state text NOT NULL,
    attempts integer NOT NULL, traces integer, snapshot_bytes bigint, error text,
    created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
    priority integer NOT NULL DEFAULT 5, note text,
    CONSTRAINT graph_jobs_key PRIMARY KEY (tenant_id, id));
CREATE TABLE packs.packs (
    tenant_id text, id uuid, name text, version integer, sha256 text, path text, records integer, bytes bigint,
    source text, created_at timestamptz, created_by text, labels jsonb);
ALTER TABLE packs.packs ENABLE ROW LEVEL SECURITY;
ALTER TABLE packs.packs FORCE ROW LEVEL SECURITY;
CREATE POLICY everybody ON packs.packs USING (tenant_id = current_setting('app.tenant_id', true));
"""
ROWS = """
INSERT INTO scheduler.graph_jobs (tenant_id, id, schedule_id, state, attempts, created_at, updated_at, note)
VALUES ('old', gen_random_uuid(), 's', 'completed', 1, now(), now() - interval '100 days', 'kept');
ALTER TABLE packs.packs NO FORCE ROW LEVEL SECURITY;
INSERT INTO packs.packs
VALUES ('old', gen_random_uuid(), 'questions', 1, repeat('a', 64), 'p', 1, 1, 'upload', now(), 'x');
ALTER TABLE packs.packs FORCE ROW LEVEL SECURITY;
"""
FLAGS = "SELECT relname, relforcerowsecurity FROM pg_class WHERE relname = ANY(%(names)s) ORDER BY 1"
RETIRED = ["doctor_trends", "execution_logs", "graph_job_events", "run_summaries"]


@pytest.fixture
def dbname(template: Any, make_database: Callable[[], str]) -> str:
    """Return the name of an empty database, on a server that has the roles."""
    name = make_database()
    with template.server.connect("postgres") as connection:
        connection.execute(f"GRANT CREATE, CONNECT ON DATABASE {name} TO evalward_owner")
    return name


@pytest.fixture
def owner(server: Server, dbname: str) -> Generator[Connection[DictRow]]:
    """Return a connection of the owner to a database that another JobEngine made."""
    with server.connect(dbname, "owner") as connection:
        connection.execute(EXISTING)
        yield connection


def test_database_with_the_columns_of_ours_and_more_is_adopted_with_its_rows(
    server: Server, dbname: str, owner: Connection[DictRow]
) -> None:
    owner.execute(cast("Any", ROWS))
    server.migrate(dbname)
    with server.connect(dbname) as connection:
        assert connection.execute("SELECT state, note, priority FROM scheduler.graph_jobs").fetchall() == [
            {"state": "completed", "note": "kept", "priority": 5}
        ]
        policies = connection.execute(
            "SELECT polname FROM pg_policy WHERE polrelid = 'packs.packs'::regclass"
        ).fetchall()
        assert policies == [{"polname": "tenant"}]
        # What all work starts from.
        assert connection.execute("SELECT id, created_by FROM coordination.projects").fetchall() == [
            {"id": "old", "created_by": "deployment"}
        ]
        forced = connection.execute(FLAGS, {"names": ["packs"]}).fetchall()
        assert forced == [{"relname": "packs", "relforcerowsecurity": True}]
    with server.connect(dbname, "app") as app, app.transaction():
        app.execute("SELECT scheduler_app.begin_tenant('old', 1000, 5000)")
        # Defaults, keys and checks are those of ours now.
        app.execute(
            "INSERT INTO scheduler.graph_jobs (tenant_id, id, schedule_id) VALUES ('old', gen_random_uuid(), 's')"
        )
        row = app.execute(
            "SELECT deleted FROM scheduler_app.expire_graph_jobs('old', now() - interval '90 d',"
            " '00000000-0000-0000-0000-000000000000', '-infinity', '00000000-0000-0000-0000-000000000000', 10)"
        ).fetchone()
        assert row == {"deleted": 1}
    with server.connect(dbname, "app") as app, pytest.raises(psycopg.errors.CheckViolation), app.transaction():
        app.execute("SELECT scheduler_app.begin_tenant('old', 1000, 5000)")
        app.execute("UPDATE scheduler.graph_jobs SET state = 'no state'")


def test_adopted_database_is_migrated_once(server: Server, dbname: str, owner: Connection[DictRow]) -> None:
    first, _ = server.migrate(dbname)
    assert first["applied"] == [migration.number for migration in list_migrations()]
    assert server.migrate(dbname)[0]["applied"] == []
    assert adopt_database(owner) is False


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        (
            "ALTER TABLE scheduler.graph_jobs DROP COLUMN traces, DROP COLUMN error",
            [
                "scheduler.graph_jobs lacks the column error text",
                "scheduler.graph_jobs lacks the column traces integer",
            ],
        ),
        (
            "ALTER TABLE scheduler.graph_jobs ALTER COLUMN state TYPE varchar(20)",
            ["scheduler.graph_jobs.state is character varying(20) and must be text"],
        ),
        (
            "ALTER TABLE packs.packs ADD COLUMN digest text NOT NULL",
            ["packs.packs.digest is not ours and has no default"],
        ),
        (
            """DROP FUNCTION scheduler_app.require_current_tenant();
            CREATE FUNCTION scheduler_app.require_current_tenant() RETURNS uuid LANGUAGE sql AS
                $$ SELECT NULL::uuid $$""",
            ["scheduler_app.require_current_tenant() returns uuid and must return text"],
        ),
    ],
)
def test_database_that_lacks_something_is_refused_with_the_list_and_left_as_it_was(
    server: Server, dbname: str, owner: Connection[DictRow], change: str, differences: list[str]
) -> None:
    owner.execute(cast("Any", change))
    with pytest.raises(DatabaseNotAdoptableError) as refused:
        server.migrate(dbname)
    assert refused.value.differences == differences
    assert all(difference in str(refused.value) for difference in differences)
    schemas = owner.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information|public)'").fetchall()
    assert sorted(row["nspname"] for row in schemas) == ["packs", "scheduler", "scheduler_app"]


def test_rows_that_break_a_rule_of_ours_are_refused(server: Server, dbname: str, owner: Connection[DictRow]) -> None:
    owner.execute(cast("Any", ROWS.replace("'completed'", "'Done'")))
    with pytest.raises(DatabaseNotAdoptableError, match="graph_jobs_state_check"):
        server.migrate(dbname)


def test_tables_of_somebody_else_are_refused(server: Server, dbname: str, owner: Connection[DictRow]) -> None:
    with server.connect(dbname) as connection:
        connection.execute("ALTER TABLE scheduler.graph_jobs OWNER TO postgres")
    with pytest.raises(DatabaseNotAdoptableError, match=r"scheduler\.graph_jobs is owned by postgres"):
        server.migrate(dbname)


@pytest.fixture
def retired(owner: Connection[DictRow]) -> Connection[DictRow]:
    """Return the owner's connection to a database that also has the four tables that are retired."""
    for table in RETIRED:
        owner.execute(
            cast(
                "Any",
                f"CREATE TABLE scheduler.{table} (tenant_id text);"
                f" ALTER TABLE scheduler.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
                f" CREATE POLICY tenant ON scheduler.{table}"
                " USING (tenant_id = current_setting('app.tenant_id', true))"
                " WITH CHECK (true)",
            )
        )
    return owner


def test_empty_tables_are_retired(server: Server, dbname: str, retired: Connection[DictRow]) -> None:
    server.migrate(dbname)
    assert retired.execute(FLAGS, {"names": RETIRED}).fetchall() == []


def test_absent_tables_are_fine(server: Server, dbname: str, owner: Connection[DictRow]) -> None:
    owner.execute("CREATE TABLE scheduler.run_summaries (id integer)")
    server.migrate(dbname)
    assert owner.execute(FLAGS, {"names": RETIRED}).fetchall() == []


@pytest.mark.parametrize("table", RETIRED)
def test_row_that_a_policy_hides_from_the_owner_keeps_all_four_tables(
    server: Server, dbname: str, retired: Connection[DictRow], table: str
) -> None:
    retired.execute(cast("Any", f"INSERT INTO scheduler.{table} VALUES ('hidden')"))
    # As the owner sees it, there is nothing: a test of emptiness under FORCE would drop the row.
    assert retired.execute(cast("Any", f"SELECT count(*) AS rows FROM scheduler.{table}")).fetchone() == {"rows": 0}
    with pytest.raises(psycopg.errors.RaiseException, match=rf"hold rows: scheduler\.{table}"):
        server.migrate(dbname)
    assert retired.execute(FLAGS, {"names": RETIRED}).fetchall() == [
        {"relname": name, "relforcerowsecurity": True} for name in RETIRED
    ]
    # The rows moved, the deployment goes on where it stopped.
    with server.connect(dbname) as connection:
        connection.execute(cast("Any", f"DELETE FROM scheduler.{table}"))
    assert 10 in server.migrate(dbname)[0]["applied"]
    assert retired.execute(FLAGS, {"names": RETIRED}).fetchall() == []


def test_all_populated_tables_are_named(server: Server, dbname: str, retired: Connection[DictRow]) -> None:
    for table in ("run_summaries", "doctor_trends"):
        retired.execute(cast("Any", f"INSERT INTO scheduler.{table} VALUES ('x')"))
    with pytest.raises(psycopg.errors.RaiseException, match=r"scheduler\.doctor_trends, scheduler\.run_summaries"):
        server.migrate(dbname)


def test_table_that_something_hangs_on_is_not_dropped_with_it(
    server: Server, dbname: str, retired: Connection[DictRow]
) -> None:
    retired.execute("CREATE VIEW scheduler.old_view AS SELECT tenant_id FROM scheduler.execution_logs")
    with pytest.raises(psycopg.errors.DependentObjectsStillExist):
        server.migrate(dbname)
    assert len(retired.execute(FLAGS, {"names": RETIRED}).fetchall()) == 4
