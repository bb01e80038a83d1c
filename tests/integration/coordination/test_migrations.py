from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from coordination import migrations
from coordination.access import parse_token
from coordination.migrations import Migration, MigrationChangedError, apply_migrations, list_migrations

if TYPE_CHECKING:
    from conftest import Server

LEDGER = "SELECT number, name, sha256 FROM coordination.schema_migrations ORDER BY number"


@pytest.fixture
def empty_database(template: Any, make_database: Callable[[], str]) -> str:
    """Return a database without our schemas, on a server that has the roles."""
    name = make_database()
    with template.server.connect("postgres") as connection:
        connection.execute(f"GRANT CREATE, CONNECT ON DATABASE {name} TO evalward_owner")
    return name


def use_migrations(monkeypatch: pytest.MonkeyPatch, *files: Migration) -> None:
    monkeypatch.setattr(migrations, "list_migrations", lambda: list(files))


def test_every_file_is_applied_once_in_order_and_noted_with_its_checksum(server: Server, empty_database: str) -> None:
    with server.connect(empty_database, "owner") as connection:
        applied = apply_migrations(connection)
        ledger = connection.execute(LEDGER).fetchall()
        again = apply_migrations(connection)
    files = list_migrations()
    assert applied == files
    assert again == []
    assert ledger == [{"number": one.number, "name": one.name, "sha256": one.sha256} for one in files]
    assert [one.number for one in files] == sorted({one.number for one in files})


def test_changed_file_stops_the_migration_and_names_itself(
    server: Server, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.connect(empty_database, "owner") as connection:
        use_migrations(monkeypatch, Migration(1, "first", "SELECT 1"))
        apply_migrations(connection)
        use_migrations(monkeypatch, Migration(1, "first", "SELECT 2"), Migration(2, "second", "SELECT 1"))
        with pytest.raises(MigrationChangedError, match="0001 first"):
            apply_migrations(connection)
        assert [row["number"] for row in connection.execute(LEDGER).fetchall()] == [1]


def test_failing_file_leaves_nothing_of_itself_and_all_before_it(
    server: Server, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = Migration(1, "good", "CREATE TABLE coordination.good (id integer)")
    bad = Migration(2, "bad", "CREATE TABLE coordination.bad (id integer); SELECT 1/0")
    use_migrations(monkeypatch, good, bad)
    with server.connect(empty_database, "owner") as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            apply_migrations(connection)
        tables = "SELECT to_regclass('coordination.good') AS good, to_regclass('coordination.bad') AS bad"
        assert connection.execute(tables).fetchone() == {"good": "coordination.good", "bad": None}
        use_migrations(monkeypatch, good, Migration(2, "bad", "CREATE TABLE coordination.bad (id integer)"))
        assert [one.number for one in apply_migrations(connection)] == [2]


def test_migrators_at_the_same_time_apply_each_file_once(server: Server, empty_database: str) -> None:
    connections = [server.connect(empty_database, "owner") for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        results = list(threads.map(apply_migrations, connections))
    numbers = sorted(one.number for result in results for one in result)
    for connection in connections:
        connection.close()
    assert numbers == [one.number for one in list_migrations()]


def test_lock_of_the_migrations_is_the_documented_derivation(server: Server, empty_database: str) -> None:
    with server.connect(empty_database, "owner") as connection:
        apply_migrations(connection)
        row = connection.execute("SELECT coordination.advisory_lock_id('migrations', 'ledger') AS id").fetchone()
    assert row
    assert str(row["id"]) in migrations._QUERIES["lock_migrations"].as_string()


def test_deployment_makes_roles_schema_and_one_first_key_and_may_be_repeated(
    server: Server, make_database: Callable[[], str]
) -> None:
    name = make_database()
    result, secret = server.migrate(name)
    assert result == {"applied": [one.number for one in list_migrations()], "first_key": True}
    token = parse_token(secret["key"])
    assert token is not None
    assert token.key_id == secret["id"]
    again, nothing = server.migrate(name)
    assert again == {"applied": [], "first_key": False}
    assert nothing == {}
    with server.connect(name) as connection:
        keys = connection.execute("SELECT id, secret_sha256, grants, created_by FROM coordination.api_keys").fetchall()
    assert keys == [
        {
            "id": token.key_id,
            "secret_sha256": token.secret_sha256,
            "grants": [{"project": "*", "role": "owner"}],
            "created_by": "deployment",
        }
    ]


def test_deployment_interrupted_between_secret_and_row_makes_another_key(
    server: Server, make_database: Callable[[], str]
) -> None:
    name = make_database()
    _, lost = server.migrate(name)
    with server.connect(name) as connection:
        connection.execute("DELETE FROM coordination.api_keys")
    result, secret = server.migrate(name)
    assert result["first_key"] is True
    assert secret["key"] != lost["key"]


def test_owner_owns_every_schema_table_and_function(server: Server, template: Any) -> None:
    with server.connect(template.name) as connection:
        owners = connection.execute("""
            SELECT DISTINCT pg_get_userbyid(owner) AS name FROM (
                SELECT nspowner AS owner FROM pg_namespace
                WHERE nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
                UNION ALL
                SELECT c.relowner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
                UNION ALL
                SELECT p.proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                WHERE n.nspname IN ('coordination', 'scheduler', 'scheduler_app', 'packs', 'evals')
            ) AS owned
        """).fetchall()
    assert owners == [{"name": "evalward_owner"}]
