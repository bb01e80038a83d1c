"""Adopt an existing JobEngine database: its tables stay when they carry our columns, else nothing is touched."""

from typing import LiteralString, cast

import psycopg
from coordination.migrations import list_migrations
from coordination.queries import load_queries
from psycopg import Connection, sql
from psycopg.rows import DictRow

_QUERIES = load_queries("adoption")
_MIGRATIONS = load_queries("migrations")
_SCHEMAS = ["scheduler", "packs", "scheduler_app"]
_SUFFIX = "_existing"
# Up to here migrations make the contract's tables; later ones change them, adopted or not.
_LAST_CREATING_MIGRATION = 9


class DatabaseNotAdoptableError(Exception):
    """The database holds tables of the contract that differ from ours."""

    def __init__(self, differences: list[str]) -> None:
        super().__init__("the existing database cannot be adopted: " + "; ".join(differences))
        self.differences = differences


def adopt_database(connection: Connection[DictRow]) -> bool:
    """Make tables that are there already fit for the migrations, or refuse.

    The comparison is a rehearsal that is rolled back: the schemas are moved aside and the migrations make ours beside
    them. Columns are compared by name and type; more of them are welcome as long as a row of ours need not fill them.
    Missing defaults, NOT NULLs, keys and checks are added, policies give way to ours. All in one transaction, under the
    migrations' advisory lock.

    Parameters
    ----------
    connection
        In autocommit, as the owner of the schemas.

    Returns
    -------
    bool
        Whether there was something to adopt. A database with a ledger is ours already.

    Raises
    ------
    DatabaseNotAdoptableError
        Names every difference. Nothing was changed.
    psycopg.Error
        The server refused a step. Nothing was changed.
    """
    ledger = connection.execute(_QUERIES["has_ledger"]).fetchone()
    if ledger and ledger["has_ledger"]:
        return False
    existing = connection.execute(_QUERIES["list_contract_tables"], {"schemas": _SCHEMAS}).fetchall()
    if not existing:
        return False
    differences = [
        f"{table['schema_name']}.{table['table_name']} is owned by {table['owner']}"
        for table in existing
        if not table["is_ours"]
    ]
    if differences:
        raise DatabaseNotAdoptableError(differences)
    try:
        completions = _rehearse(connection)
        with connection.transaction():
            connection.execute(_MIGRATIONS["lock_migrations"])
            for statement in completions:
                connection.execute(sql.SQL(cast("LiteralString", statement)))
    except (
        psycopg.IntegrityError,
        psycopg.errors.InsufficientPrivilege,
        psycopg.errors.InvalidTableDefinition,
    ) as error:
        # Rows that break a rule of ours, or things that belong to someone else.
        raise DatabaseNotAdoptableError([str(error).splitlines()[0]]) from error
    return True


def _rehearse(connection: Connection[DictRow]) -> list[str]:
    """Return the statements that complete the existing tables, having compared them with ours."""
    with connection.transaction(force_rollback=True):
        for schema in _SCHEMAS:
            if _has_schema(connection, schema):
                connection.execute(
                    sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(
                        sql.Identifier(schema), sql.Identifier(schema + _SUFFIX)
                    )
                )
        connection.execute(_MIGRATIONS["create_ledger_schema"])
        connection.execute(_MIGRATIONS["create_ledger"])
        for migration in list_migrations():
            if migration.number <= _LAST_CREATING_MIGRATION:
                connection.execute(sql.SQL(cast("LiteralString", migration.text)))
        params = {"suffix": _SUFFIX}
        differences = [
            row["difference"]
            for query in ("list_lacking_columns", "list_other_results")
            for row in connection.execute(_QUERIES[query], params).fetchall()
        ]
        completions: list[str] = [
            row["statement"] for row in connection.execute(_QUERIES["list_completions"], params).fetchall()
        ]
    if differences:
        raise DatabaseNotAdoptableError(differences)
    return completions


def _has_schema(connection: Connection[DictRow], name: str) -> bool:
    found = connection.execute(_QUERIES["has_schema"], {"name": name}).fetchone()
    return bool(found and found["has_schema"])
