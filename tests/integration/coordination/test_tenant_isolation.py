# ruff: noqa: PT012 - a transaction is the block that raises
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import FreshDatabase

# No tenant is known yet when they are read, or work of all tenants is found through them. They hold no payload.
GLOBAL_TABLES = {
    "coordination.api_keys",
    "coordination.audit_events",
    "coordination.idempotency_scopes",
    "coordination.leases",
    "coordination.projects",
    "coordination.schema_migrations",
    "coordination.wake_ups",
    "scheduler.capacity_probe_receipt",
    "scheduler.sweep_receipts",
    "scheduler.table_classes",
    "scheduler.workers",
}
LIST_TABLES = """
SELECT n.nspname || '.' || c.relname AS name, c.relrowsecurity AS is_enabled, c.relforcerowsecurity AS is_forced,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid),
                   'command', p.polcmd, 'permissive', p.polpermissive, 'roles', p.polroles::text)), '[]')
        FROM pg_policy p WHERE p.polrelid = c.oid) AS policies,
       EXISTS (SELECT 1 FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id') AS has_tenant
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
ORDER BY 1
"""
END_LOCAL_WRITE = (
    "SELECT coordination.end_local_write("
    "'second', 'key:1', '\\x00', 'o', '\\x00', 200, '{}', '', 60, 1, 1, 'allowed', '', '')"
)
TENANT_RULE = "(tenant_id = ( SELECT scheduler_app.require_current_tenant() AS require_current_tenant))"


def tenant_tables(database: FreshDatabase) -> list[str]:
    return [row["name"] for row in database.look(LIST_TABLES) if row["name"] not in GLOBAL_TABLES]


def name_of(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def fill(database: FreshDatabase, tenant: str) -> None:
    """Write one row of a tenant into every tenant table, whatever columns it has."""
    samples: dict[str, Any] = {
        "text": "x",
        "uuid": "00000000-0000-0000-0000-000000000001",
        "integer": 1,
        "bigint": 1,
        "smallint": 1,
        "bytea": b"\0" * 32,
        "jsonb": Jsonb({}),
        "json": Jsonb({}),
        "text[]": ["x"],
        "boolean": True,
        "timestamp with time zone": "2026-01-01T00:00:00Z",
        "date": "2026-01-01",
        "double precision": 1.0,
        "interval": "1 hour",
    }
    columns = """
        SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute a
        WHERE a.attrelid = %(table)s::regclass AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
    """
    with database.connect("superuser") as connection:
        # Only the tenant's row policies are tried here; checks and foreign keys would stand in the way of any row.
        connection.execute("DROP POLICY record_is_whole ON coordination.idempotency_records")
        for table in tenant_tables(database):
            checks = connection.execute(
                "SELECT conname FROM pg_constraint WHERE conrelid = %(table)s::regclass AND contype IN ('c', 'f')",
                {"table": table},
            ).fetchall()
            for check in checks:
                connection.execute(
                    sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(
                        name_of(table), sql.Identifier(check["conname"])
                    )
                )
            needed = connection.execute(columns, {"table": table}).fetchall()
            row = {column["name"]: samples[column["type"]] for column in needed} | {"tenant_id": tenant}
            connection.execute(
                sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
                    name_of(table),
                    sql.SQL(", ").join(map(sql.Identifier, row)),
                    sql.SQL(", ").join(map(sql.Placeholder, row)),
                ),
                row,
            )


@pytest.fixture
def filled_database(template: FreshDatabase, make_database: Callable[[str], str]) -> FreshDatabase:
    """Return a copy in which every tenant table holds one row of the tenant `first`."""
    copy = type(template)(template.server, make_database(template.name), template.admin_key)
    fill(copy, "first")
    return copy


def test_every_table_with_a_tenant_has_row_security_forced_and_one_policy_that_lets_in(database: FreshDatabase) -> None:
    for table in database.look(LIST_TABLES):
        if table["name"] in GLOBAL_TABLES:
            continue
        assert table["has_tenant"], f"{table['name']} has no tenant_id and is not listed as global"
        assert table["is_enabled"], table["name"]
        assert table["is_forced"], table["name"]
        # A restrictive one takes away only.
        assert [one for one in table["policies"] if one["permissive"]] == [
            {"using": TENANT_RULE, "check": TENANT_RULE, "command": "*", "permissive": True, "roles": "{0}"}
        ], table["name"]


def test_primary_and_foreign_keys_of_tenant_tables_begin_with_the_tenant(database: FreshDatabase) -> None:
    keys = database.look("""
        SELECT c.conrelid::regclass::text AS name, c.contype AS kind,
               (SELECT attname FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attnum = c.conkey[1]) AS first
        FROM pg_constraint c WHERE c.contype IN ('p', 'f', 'u')
    """)
    tables = set(tenant_tables(database))
    wrong = [key for key in keys if key["name"] in tables and key["first"] != "tenant_id"]
    assert wrong == []


def test_no_function_runs_with_the_rights_of_its_owner(database: FreshDatabase) -> None:
    definers = database.look("""
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE p.prosecdef AND n.nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
    """)
    assert definers == []


def test_neither_role_may_pass_row_security_or_make_roles(database: FreshDatabase) -> None:
    roles = database.look("""
        SELECT rolname AS name, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication
        FROM pg_roles WHERE rolname IN ('evalward_owner', 'evalward_app') ORDER BY 1
    """)
    assert [role.pop("name") for role in roles] == ["evalward_app", "evalward_owner"]
    assert not any(value for role in roles for value in role.values())


def test_app_may_neither_create_nor_alter_nor_truncate(database: FreshDatabase) -> None:
    statements = (
        "CREATE TABLE coordination.mine (id integer)",
        "CREATE SCHEMA mine",
        "ALTER TABLE evals.runs ADD COLUMN mine integer",
        "TRUNCATE evals.runs",
        "ALTER TABLE evals.runs DISABLE ROW LEVEL SECURITY",
        "DELETE FROM coordination.audit_events",
        "UPDATE coordination.audit_events SET principal = 'x'",
        "UPDATE coordination.schema_migrations SET sha256 = 'x'",
    )
    with database.connect("app") as connection:
        for statement in statements:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.parametrize("role", ["app", "owner"])
def test_another_tenant_sees_changes_and_deletes_nothing(filled_database: FreshDatabase, role: str) -> None:
    tables = tenant_tables(filled_database)
    assert len(tables) >= 9
    with filled_database.connect(role) as connection:
        for tenant, expected in (("first", 1), ("second", 0)):
            for table in tables:
                with connection.transaction(force_rollback=True):
                    connection.execute("SELECT scheduler_app.begin_tenant(%s, 5000, 20000)", [tenant])
                    rows = connection.execute(sql.SQL("SELECT tenant_id FROM {}").format(name_of(table))).fetchall()
                    updated = connection.execute(
                        sql.SQL("UPDATE {} SET tenant_id = tenant_id").format(name_of(table))
                    ).rowcount
                    deleted = connection.execute(sql.SQL("DELETE FROM {}").format(name_of(table))).rowcount
                # A row of the tenant itself is found, so that nothing found means kept apart.
                assert (len(rows), updated, deleted) == (expected, expected, expected), (tenant, table)


@pytest.mark.parametrize("role", ["app", "owner"])
def test_row_of_another_tenant_is_not_written(filled_database: FreshDatabase, role: str) -> None:
    with filled_database.connect(role) as connection:
        for table in tenant_tables(filled_database):
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"),
                connection.transaction(),
            ):
                connection.execute("SELECT scheduler_app.begin_tenant('first', 5000, 20000)")
                connection.execute(sql.SQL("UPDATE {} SET tenant_id = 'second'").format(name_of(table)))


@pytest.mark.parametrize("role", ["app", "owner"])
def test_statement_on_a_tenant_table_without_a_tenant_raises(filled_database: FreshDatabase, role: str) -> None:
    with filled_database.connect(role) as connection:
        for table in tenant_tables(filled_database):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(sql.SQL("SELECT tenant_id FROM {}").format(name_of(table)))
            assert caught.value.sqlstate == "EW001", table


def test_statement_after_a_tenants_transaction_raises_too(filled_database: FreshDatabase) -> None:
    with filled_database.connect("app") as connection:
        with connection.transaction():
            connection.execute("SELECT scheduler_app.begin_tenant('first', 5000, 20000)")
            connection.execute("SELECT id FROM evals.runs")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("SELECT id FROM evals.runs")
    assert caught.value.sqlstate == "EW001"


@pytest.mark.parametrize(
    "call",
    [
        "SELECT coordination.claim_local_write('second', 'key:1', '\\x00')",
        "SELECT coordination.release_claim('second', 'key:1', '\\x00', gen_random_uuid())",
        END_LOCAL_WRITE,
    ],
)
def test_routine_called_for_another_tenant_raises(database: FreshDatabase, call: str) -> None:
    with database.connect("app") as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT scheduler_app.begin_tenant('first', 5000, 20000)")
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(call.encode())
    assert caught.value.sqlstate == "EW003"


def test_functions_are_closed_to_the_public(database: FreshDatabase) -> None:
    open_ones = database.look("""
        SELECT p.oid::regprocedure::text AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
          AND EXISTS (SELECT 1 FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) WHERE grantee = 0)
    """)
    assert open_ones == []
