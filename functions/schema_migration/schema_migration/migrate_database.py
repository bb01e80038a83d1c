"""Bring the database to the bundle's state: roles, migrations, the first API key."""

from typing import Any, cast

from aws_lambda_powertools import Logger
from coordination.access import generate_token
from coordination.migrations import apply_migrations
from coordination.ports.secrets import Secrets
from coordination.queries import load_queries
from psycopg import Connection, sql
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from schema_migration.adopt_database import adopt_database
from schema_migration.settings import MigrationSettings

logger = Logger(child=True)
_QUERIES = load_queries("deployment")


def migrate_database(settings: MigrationSettings) -> dict[str, Any]:
    """Create or alter the two roles, adopt what is there, apply the migrations as the owner, make the first key.

    Each step is harmless when repeated: a retry after a crash anywhere goes on where it stopped. Locks: the
    migrations' advisory lock; the first key is made under the same lock.

    Returns
    -------
    dict
        `applied` (numbers of the migrations applied now) and `first_key` (whether it was made now).

    Raises
    ------
    psycopg.Error
        The server refused a step.
    RoleTooStrongError
        A role that was there before could pass row-level security.
    schema_migration.adopt_database.DatabaseNotAdoptableError
        An existing JobEngine database differs from ours; the message lists how.
    coordination.migrations.MigrationChangedError
        An applied migration was changed.
    """
    secrets = Secrets()
    owner = secrets.read(settings.owner_secret_arn)
    app = secrets.read(settings.app_secret_arn)
    # A secret that RDS manages holds user name and password only: the rest is the owner's.
    with _connect(owner | secrets.read(settings.admin_secret_arn)) as connection:
        for role in (owner, app):
            _ensure_role(connection, role["username"], role["password"])
        connection.execute(
            sql.SQL("GRANT CREATE, CONNECT ON DATABASE {} TO {}").format(
                sql.Identifier(owner["dbname"]), sql.Identifier(owner["username"])
            )
        )
        connection.execute(
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(
                sql.Identifier(app["dbname"]), sql.Identifier(app["username"])
            )
        )
    with _connect(owner) as connection:
        is_adopted = adopt_database(connection)
        applied = apply_migrations(connection)
        is_new = _ensure_first_key(connection, secrets, settings.admin_key_secret_arn)
    logger.info(
        "database migrated",
        extra={"applied": [migration.name for migration in applied], "first_key": is_new, "adopted": is_adopted},
    )
    return {"applied": [migration.number for migration in applied], "first_key": is_new}


def _connect(secret: dict[str, Any]) -> Connection[DictRow]:
    return Connection[DictRow].connect(
        host=secret["host"],
        port=secret["port"],
        dbname=secret["dbname"],
        user=secret["username"],
        password=secret["password"],
        autocommit=True,
        row_factory=cast("Any", dict_row),
        connect_timeout=10,
        prepare_threshold=None,
    )


class RoleTooStrongError(Exception):
    """A role that was there before may pass row-level security, or make itself able to."""


def _ensure_role(connection: Connection[DictRow], name: str, password: str) -> None:
    exists = connection.execute(_QUERIES["find_role"], {"name": name}).fetchone()
    statement = "ALTER ROLE {} {}" if exists else "CREATE ROLE {} {}"
    # Password and name cannot be parameters of these statements; both are quoted by the driver.
    attributes = sql.SQL(
        "LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB NOREPLICATION INHERIT PASSWORD {}"
        if not exists
        else "LOGIN PASSWORD {}"
    ).format(sql.Literal(password))
    connection.execute(sql.SQL(statement).format(sql.Identifier(name), attributes))
    # A managed server's master user may not take these attributes away, so what is too strong is refused, not mended.
    role = connection.execute(_QUERIES["find_role"], {"name": name}).fetchone()
    if role is None or role["rolsuper"] or role["rolbypassrls"] or role["rolcreaterole"]:
        raise RoleTooStrongError(
            f"role {name} is SUPERUSER, BYPASSRLS or CREATEROLE: take that away "
            f"(ALTER ROLE {name} NOSUPERUSER NOBYPASSRLS NOCREATEROLE) and deploy again"
        )


def _ensure_first_key(connection: Connection[DictRow], secrets: Secrets, secret_id: str) -> bool:
    """Make an owner's key unless there is one: the secret first, then the row, so a retry starts over."""
    with connection.transaction():
        connection.execute(load_queries("migrations")["lock_migrations"])
        if connection.execute(_QUERIES["find_installation_key"]).fetchone():
            return False
        text, token = generate_token()
        secrets.write(secret_id, {"id": token.key_id, "key": text})
        connection.execute(
            _QUERIES["insert_first_key"],
            {
                "id": token.key_id,
                "secret_sha256": token.secret_sha256,
                "grants": Jsonb([{"project": "*", "role": "owner"}]),
            },
        )
    return True
