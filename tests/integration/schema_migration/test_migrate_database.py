"""The deploy hook on a real server: repeated, after a crash, and with roles that could pass row-level security."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, LiteralString

import pytest
from coordination.access import parse_token
from psycopg import sql
from schema_migration.migrate_database import RoleTooStrongError

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Server


def test_a_second_deployment_applies_nothing_and_makes_no_key(
    server: Server, make_database: Callable[[str], str]
) -> None:
    name = make_database("template0")
    first, secret = server.migrate(name)
    second, untouched = server.migrate(name)
    assert first["first_key"] is True
    assert first["applied"]
    assert second == {"applied": [], "first_key": False}
    assert untouched == {}
    assert parse_token(secret["key"]) is not None


def test_a_crash_between_secret_and_row_makes_another_key(server: Server, make_database: Callable[[str], str]) -> None:
    name = make_database("template0")
    server.migrate(name)
    with server.connect(name, "superuser") as connection:
        connection.execute("DELETE FROM coordination.api_keys")
    result, secret = server.migrate(name)
    token = parse_token(secret["key"])
    assert result["first_key"] is True
    assert token is not None
    with server.connect(name, "superuser") as connection:
        rows = connection.execute("SELECT id, secret_sha256, grants FROM coordination.api_keys").fetchall()
    assert [(row["id"], bytes(row["secret_sha256"])) for row in rows] == [(token.key_id, token.secret_sha256)]
    assert rows[0]["grants"] == [{"project": "*", "role": "owner"}]


@pytest.mark.parametrize(
    "change",
    [
        """grants = '[{"project": "*", "role": "viewer"}]'""",
        """grants = '[{"project": "*", "permissions": ["keys.manage"]}]'""",
        "expires_at = clock_timestamp() - interval '1 second'",
    ],
)
def test_an_installation_that_nobody_owns_any_more_gets_a_key(
    server: Server, make_database: Callable[[str], str], change: LiteralString
) -> None:
    name = make_database("template0")
    server.migrate(name)
    with server.connect(name, "superuser") as connection:
        connection.execute(sql.SQL("UPDATE coordination.api_keys SET {}").format(sql.SQL(change)))
    result, secret = server.migrate(name)
    assert result["first_key"] is True
    assert parse_token(secret["key"]) is not None


@pytest.mark.parametrize("attribute", ["SUPERUSER", "BYPASSRLS", "CREATEROLE"])
@pytest.mark.parametrize("role", ["evalward_app", "evalward_owner"])
def test_a_role_that_could_pass_row_level_security_is_refused(
    server: Server,
    make_database: Callable[[str], str],
    role: str,
    attribute: Literal["SUPERUSER", "BYPASSRLS", "CREATEROLE"],
) -> None:
    name = make_database("template0")
    server.migrate(name)
    alter = sql.SQL("ALTER ROLE {} {}{}")
    with server.connect(name, "superuser") as connection:
        connection.execute(alter.format(sql.Identifier(role), sql.SQL(""), sql.SQL(attribute)))
    try:
        with pytest.raises(RoleTooStrongError, match=f"{role}.*NOBYPASSRLS"):
            server.migrate(name)
    finally:
        with server.connect(name, "superuser") as connection:
            connection.execute(alter.format(sql.Identifier(role), sql.SQL("NO"), sql.SQL(attribute)))
