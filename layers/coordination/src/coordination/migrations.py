"""Migrations: numbered SQL, forward only, each in a transaction of its own, with a checksum ledger.

Applied as `evalward_owner` under an advisory lock, so that two deployments at once apply each file once. A file that
was applied and then changed stops the migration: the ledger knows its SHA-256.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, LiteralString, cast

from psycopg import Connection, sql

from coordination.queries import load_queries

_FILE = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_QUERIES = load_queries("migrations")


class MigrationChangedError(Exception):
    """A file in the ledger differs from the file in the bundle."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file.

    Attributes
    ----------
    number
        Its place in the order.
    name
        `verb_object`.
    text
        SQL, several statements.
    """

    number: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the text, 64 hex digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def list_migrations() -> list[Migration]:
    """Read the bundle's migrations in their order."""
    return sorted(_read(), key=lambda migration: migration.number)


def apply_migrations(connection: Connection[Any]) -> list[Migration]:
    """Apply what the ledger does not have.

    Parameters
    ----------
    connection
        In autocommit, as the owner of the schemas. Each migration is a transaction of its own; all of them run under
        one transaction-level advisory lock per step, and the ledger is read again under it.

    Returns
    -------
    list of Migration
        Those that were applied now.

    Raises
    ------
    MigrationChangedError
        The ledger has another checksum for a file.
    psycopg.Error
        A statement failed; its migration is rolled back, those before it stay.
    """
    with connection.transaction():
        connection.execute(_QUERIES["lock_migrations"])
        connection.execute(_QUERIES["create_ledger_schema"])
        connection.execute(_QUERIES["create_ledger"])
    return [migration for migration in list_migrations() if _apply(connection, migration)]


def _apply(connection: Connection[Any], migration: Migration) -> bool:
    with connection.transaction():
        connection.execute(_QUERIES["lock_migrations"])
        row = connection.execute(_QUERIES["read_ledger"], {"number": migration.number}).fetchone()
        if row is not None:
            applied = row["sha256"] if isinstance(row, dict) else row[0]
            if applied != migration.sha256:
                raise MigrationChangedError(
                    f"migration {migration.number:04} {migration.name} was applied with another content: "
                    "restore the file and put the change into a new migration"
                )
            return False
        connection.execute(sql.SQL(cast("LiteralString", migration.text)))
        connection.execute(
            _QUERIES["insert_ledger"],
            {"number": migration.number, "name": migration.name, "sha256": migration.sha256},
        )
    return True


def _read() -> Iterator[Migration]:
    for entry in files("coordination").joinpath("sql", "migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match is not None:
            yield Migration(int(match[1]), match[2], entry.read_text("utf-8"))
