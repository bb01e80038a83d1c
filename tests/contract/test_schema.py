from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import pytest
from coordination.migrations import apply_migrations
from psycopg import Connection
from psycopg.rows import DictRow

if TYPE_CHECKING:
    from conftest import FreshDatabase, Server

SCHEMAS = "('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')"
# One row a fact: what it is about, its name, its definition. Names made by the server count too.
CATALOGUE = f"""
WITH spaces AS (SELECT oid, nspname, nspacl FROM pg_namespace WHERE nspname IN {SCHEMAS})
SELECT 'schema' AS kind, nspname::text AS name, coalesce(nspacl::text, '') AS definition FROM spaces
UNION ALL
SELECT 'table', c.oid::regclass::text, format('%s rls %s force %s', c.relkind, c.relrowsecurity, c.relforcerowsecurity)
FROM pg_class c JOIN spaces s ON s.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'v', 'S')
UNION ALL
SELECT 'grant', c.oid::regclass::text || ' to ' || a.grantee::regrole::text,
       string_agg(a.privilege_type, ' ' ORDER BY a.privilege_type)
FROM pg_class c JOIN spaces s ON s.oid = c.relnamespace, aclexplode(c.relacl) a
WHERE a.grantee <> c.relowner GROUP BY c.oid, a.grantee
UNION ALL
SELECT 'column', c.oid::regclass::text || '.' || a.attname,
       concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'not null' END,
                 pg_get_expr(d.adbin, d.adrelid),
                 'identity ' || a.attidentity::text, 'generated ' || a.attgenerated::text)
FROM pg_class c JOIN spaces s ON s.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind IN ('r', 'p')
UNION ALL
SELECT 'constraint', k.conrelid::regclass::text || ' ' || k.conname, pg_get_constraintdef(k.oid)
FROM pg_constraint k JOIN spaces s ON s.oid = k.connamespace
UNION ALL
SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN spaces s ON s.oid = c.relnamespace
UNION ALL
SELECT 'policy', p.polrelid::regclass::text || ' ' || p.polname,
       concat_ws(' ', p.polcmd, p.polpermissive, p.polroles::text, pg_get_expr(p.polqual, p.polrelid), 'check',
                 pg_get_expr(p.polwithcheck, p.polrelid))
FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid JOIN spaces s ON s.oid = c.relnamespace
UNION ALL
SELECT 'trigger', t.tgrelid::regclass::text || ' ' || t.tgname, pg_get_triggerdef(t.oid)
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN spaces s ON s.oid = c.relnamespace WHERE NOT t.tgisinternal
UNION ALL
SELECT 'function', p.oid::regprocedure::text,
       regexp_replace(pg_get_functiondef(p.oid), '--[^\\n]*|\\s+', ' ', 'g') || coalesce(p.proacl::text, '')
FROM pg_proc p JOIN spaces s ON s.oid = p.pronamespace
"""


def read_schema() -> str:
    return files("coordination").joinpath("sql", "schema.sql").read_text("utf-8")


def catalogue(connection: Connection[DictRow]) -> dict[tuple[str, str], str]:
    rows = connection.execute(cast("Any", CATALOGUE)).fetchall()
    squeeze = re.compile(r"\s+")
    return {(row["kind"], row["name"]): squeeze.sub(" ", row["definition"]) for row in rows}


@pytest.fixture
def owned_database(template: FreshDatabase, make_database: Callable[[], str]) -> Callable[[], str]:
    """Return a function that makes a database in which the owner may create schemas."""

    def make() -> str:
        name = make_database()
        with template.server.connect("postgres") as connection:
            connection.execute(cast("Any", f"GRANT CREATE, CONNECT ON DATABASE {name} TO evalward_owner"))
        return name

    return make


def test_schema_file_equals_the_sum_of_the_migrations(server: Server, owned_database: Callable[[], str]) -> None:
    migrated, written = owned_database(), owned_database()
    with server.connect(migrated, "owner") as connection:
        apply_migrations(connection)
        of_migrations = catalogue(connection)
    with server.connect(written, "owner") as connection:
        connection.execute(cast("Any", read_schema()))
        of_file = catalogue(connection)
    missing = {fact: text for fact, text in of_migrations.items() if fact not in of_file}
    invented = {fact: text for fact, text in of_file.items() if fact not in of_migrations}
    different = {fact: (text, of_file[fact]) for fact, text in of_migrations.items() if of_file.get(fact, text) != text}
    assert (missing, invented, different) == ({}, {}, {}), "schema.sql must say what the migrations do"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE evals.runs ADD COLUMN extra integer",
        "ALTER TABLE evals.runs ALTER COLUMN name DROP NOT NULL",
        "ALTER TABLE evals.runs ALTER COLUMN records_done SET DEFAULT 1",
        "ALTER TABLE evals.runs NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE packs.packs ADD CHECK (records < 9)",
        "DROP INDEX evals.runs_by_age",
        "DROP POLICY tenant ON packs.packs",
        "GRANT TRUNCATE ON evals.runs TO evalward_app",
        "GRANT EXECUTE ON FUNCTION scheduler_app.require_current_tenant() TO PUBLIC",
        "CREATE OR REPLACE FUNCTION scheduler_app.require_current_tenant() RETURNS text STABLE RETURN 'x'",
    ],
)
def test_comparison_of_catalogues_sees_a_change(database: FreshDatabase, change: str) -> None:
    with database.connect("owner") as connection, connection.transaction(force_rollback=True):
        before = catalogue(connection)
        connection.execute(cast("Any", change))
        assert catalogue(connection) != before


def test_every_table_and_every_function_of_the_schema_file_is_explained() -> None:
    lines = read_schema().splitlines()
    unexplained = [
        line
        for before, line in itertools.pairwise(lines)
        if re.match(r"CREATE (TABLE|FUNCTION)", line) and not before.startswith("--")
    ]
    assert unexplained == []
