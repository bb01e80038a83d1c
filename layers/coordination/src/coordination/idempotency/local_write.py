"""A keyed write whose effects are all in PostgreSQL: claim, effect and stored outcome in one transaction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Cursor
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from coordination.database import Database, Transaction
from coordination.errors import (
    IdempotencyCapacityError,
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    IdempotencyUncertainError,
    OutcomeNotStoredError,
    OutcomeUnknownError,
)
from coordination.queries import load_queries
from coordination.settings import IdempotencySettings

_QUERIES = load_queries("idempotency")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer as it is stored: no secret in it.

    Attributes
    ----------
    status
        HTTP status.
    headers
        Allow-listed headers, lower-case names.
    body
        The body's bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWrite:
    """A write under a key.

    Attributes
    ----------
    tenant, principal
        The scope: project id or `-`, and `key:<id>`.
    key_sha256
        SHA-256 of the key.
    operation
        The operation's constant name.
    fingerprint
        SHA-256 of the request as it was understood.
    """

    tenant: str
    principal: str
    key_sha256: bytes
    operation: str
    fingerprint: bytes

    @property
    def row_key(self) -> dict[str, Any]:
        """Parameters that find the record."""
        return {"tenant": self.tenant, "principal": self.principal, "key_sha256": self.key_sha256}


@dataclass(frozen=True, slots=True)
class Performed[Result]:
    """A write that ran now.

    Attributes
    ----------
    result
        What the effect returned.
    records_left
        Records that still fit the scope; None when the commit's answer was lost.
    """

    result: Result
    records_left: int | None


def submit_read_outcome(transaction: Transaction, tenant: str, principal: str, key_sha256: bytes) -> Cursor[DictRow]:
    """Ask for the live record of a key without waiting for the answer."""
    params = {"tenant": tenant, "principal": principal, "key_sha256": key_sha256}
    return transaction.submit(_QUERIES["read_outcome"], params)


def replay(record: Mapping[str, Any], fingerprint: bytes) -> StoredAnswer:
    """Answer from a live record. The fingerprint is compared before the state is looked at.

    Raises
    ------
    IdempotencyKeyReusedError
        The key was used for another request.
    IdempotencyInProgressError, IdempotencyUncertainError
        A claim without an outcome.
    OutcomeNotStoredError
        The write happened; its answer was too large to keep.
    """
    if bytes(record["fingerprint"]) != fingerprint:
        raise IdempotencyKeyReusedError(
            "This Idempotency-Key was used for another request. Repeat that request unchanged, or use a new key.",
            extra={"operation": record["operation"]},
        )
    if record["state"] == "tombstone":
        raise OutcomeNotStoredError(
            "The write took effect; its answer was too large to keep and cannot be repeated. Read the resource instead."
        )
    if record["state"] == "claimed":
        if record["deadline_seconds"] > 0:
            raise IdempotencyInProgressError(
                "The same write is being worked on.", retry_after_seconds=int(record["deadline_seconds"])
            )
        raise IdempotencyUncertainError(
            "The write was begun and its outcome is not known. Find out whether it happened, then resolve the claim.",
            extra={"operation": record["operation"], "claimed_at": record["claimed_at"].isoformat()},
        )
    return StoredAnswer(record["status"], record["headers"], bytes(record["body"]))


def perform_local_write[Result](
    database: Database,
    write: KeyedWrite,
    settings: IdempotencySettings,
    effect: Callable[[Transaction], tuple[Result, StoredAnswer]],
) -> Performed[Result] | StoredAnswer:
    """Run a keyed write once.

    One transaction of the scope's tenant: the try-lock on the key first, the lock on the scope last. In pipeline mode
    the claim travels with the effect's first read, the outcome with the commit.

    Parameters
    ----------
    database
        The environment's connection.
    write
        The key, its scope and its fingerprint.
    settings
        Caps and retention.
    effect
        Does the work in the transaction; returns its result and the answer to store.

    Returns
    -------
    Performed or StoredAnswer
        The result of the effect, or the stored answer when another call had completed first.

    Raises
    ------
    IdempotencyInProgressError
        Another call holds the key.
    IdempotencyKeyReusedError, OutcomeNotStoredError
        As `replay`.
    IdempotencyCapacityError
        The scope is full; nothing happened.
    OutcomeUnknownError
        The connection was lost at the commit and the record cannot be read back.
    """
    result: Result | None = None
    try:
        with database.transaction(write.tenant) as transaction:
            transaction.submit(_QUERIES["claim_local_write"], write.row_key)
            result, answer = effect(transaction)
            stored = transaction.submit(_QUERIES["store_outcome"], _outcome(write, settings, answer))
    except OutcomeUnknownError:
        if result is None or _read_back(database, write) is None:
            raise
        return Performed(result, None)
    except psycopg.Error as error:
        match error.sqlstate:
            case "EW101":
                raise IdempotencyInProgressError(
                    "The same write is being worked on by another call.", retry_after_seconds=1
                ) from error
            case "EW102":
                record = _read_back(database, write)
                if record is None:
                    # It expired between the two looks.
                    raise IdempotencyInProgressError("Try again.", retry_after_seconds=1) from error
                return replay(record, write.fingerprint)
            case "EW103":
                raise IdempotencyCapacityError(
                    f"This key's scope holds {settings.max_records} idempotency records, as many as it may. "
                    "Wait until the oldest expires, or write without an Idempotency-Key.",
                    retry_after_seconds=int(error.diag.message_detail or 1),
                ) from error
            case _:
                raise
    row = stored.fetchone()
    return Performed(result, row["records_left"] if row else None)


def _outcome(write: KeyedWrite, settings: IdempotencySettings, answer: StoredAnswer) -> dict[str, Any]:
    return {
        **write.row_key,
        "operation": write.operation,
        "fingerprint": write.fingerprint,
        "status": answer.status,
        "headers": Jsonb(dict(answer.headers)),
        "body": answer.body,
        "retention_seconds": settings.retention_seconds,
        "max_records": settings.max_records,
        "max_bytes": settings.max_bytes,
        "max_outcome_bytes": settings.max_outcome_bytes,
    }


def _read_back(database: Database, write: KeyedWrite) -> DictRow | None:
    with database.transaction(write.tenant) as transaction:
        return transaction.fetch_one(_QUERIES["read_outcome"], write.row_key)
