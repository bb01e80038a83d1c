"""What local and remote writes have in common: the key's record, and answering from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
import psycopg
from psycopg.rows import DictRow

from coordination.clock import format_instant
from coordination.database import INSTALLATION, Database
from coordination.errors import (
    IdempotencyCapacityError,
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    IdempotencyUncertainError,
    OutcomeNotStoredError,
)
from coordination.lambda_response import carried_bytes
from coordination.queries import load_queries
from coordination.settings import IdempotencySettings

QUERIES = load_queries("idempotency")

# SQLSTATEs that the routines raise.
KEY_IS_HELD = "EW101"
RECORD_EXISTS = "EW102"
SCOPE_IS_FULL = "EW103"


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

    @property
    def carried_bytes(self) -> int:
        """How many bytes Lambda's response has with it."""
        return carried_bytes(self.headers["content-type"], self.body)


@dataclass(frozen=True, kw_only=True)
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
    compute_fingerprint
        Returns the SHA-256 of the request as it was understood; called when that is first needed.
    audited_as, target, request_id
        Of its audit event: outcome, what the path names inside the project, the gateway's id of the request.
    """

    tenant: str
    principal: str
    key_sha256: bytes
    operation: str
    compute_fingerprint: Callable[[], bytes]
    audited_as: str = "allowed"
    target: str = ""
    request_id: str = ""

    @cached_property
    def fingerprint(self) -> bytes:
        """SHA-256 of the request as it was understood."""
        return self.compute_fingerprint()

    @property
    def claims_path(self) -> str:
        """Where the claims of the scope are listed and resolved."""
        if self.tenant == INSTALLATION:
            return "/v1/idempotency-claims"
        return f"/v1/projects/{self.tenant}/idempotency-claims"

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
        What it returned.
    records_left
        How many more records its scope can take; None when that is not known.
    """

    result: Result
    records_left: int | None = field(default=None, compare=False)


def count_records(database: Database, tenant: str, principal: str) -> int:
    """Return how many live records a scope holds, in a transaction of its own."""
    with database.transaction(tenant, is_read=True) as transaction:
        row = transaction.fetch_one(QUERIES["count_records"], {"tenant": tenant, "principal": principal})
    return row["records"] if row else 0


def read_outcome(database: Database, write: KeyedWrite, *, waits: bool = False) -> DictRow | None:
    """Return the live record of a key, or None, in a transaction of its own.

    Parameters
    ----------
    database, write
        Where, and whose key.
    waits
        Whether to wait until no transaction holds the key, at most the lock time-out: one whose line was cut may be
        committing just now.

    Raises
    ------
    DatabaseUnavailableError
        No connection, or a time-out.
    """
    with database.transaction(write.tenant, is_read=True) as transaction:
        if waits:
            transaction.submit(QUERIES["wait_for_key"], write.row_key)
        return transaction.fetch_one(QUERIES["read_outcome"], write.row_key)


def replay(record: Mapping[str, Any], write: KeyedWrite) -> StoredAnswer:
    """Answer from a live record. The fingerprint is compared before the state is looked at.

    Parameters
    ----------
    record
        As `read_outcome` returns it.
    write
        The request that asks now.

    Raises
    ------
    IdempotencyKeyReusedError
        The key was used for another request.
    IdempotencyInProgressError, IdempotencyUncertainError
        A claim without an outcome, its owner's deadline not passed, or passed.
    OutcomeNotStoredError
        The write happened; its answer was too large to keep, or someone resolved it as happened.
    """
    if bytes(record["fingerprint"]) != write.fingerprint:
        raise IdempotencyKeyReusedError(
            "Repeat that request unchanged, or use a new key.",
            extra={"operation": record["operation"]},
        )
    if record["state"] == "tombstone":
        raise outcome_not_stored()
    if record["state"] == "claimed":
        if record["deadline_seconds"] > 0:
            raise IdempotencyInProgressError(
                "The same write is being worked on.", retry_after_seconds=int(record["deadline_seconds"])
            )
        raise IdempotencyUncertainError(
            "The write was begun and its outcome is not known: it is not repeated by itself. Find out whether it "
            f"happened, then POST {write.claims_path}/{record['id']}/resolve. Do not use a new key to find out.",
            extra={
                "operation": record["operation"],
                "claimed_at": format_instant(record["claimed_at"]),
                "claim": str(record["id"]),
                "reconcile": f"{write.claims_path}/{record['id']}/resolve",
            },
        )
    return StoredAnswer(record["status"], record["headers"], bytes(record["body"]))


def outcome_not_stored() -> OutcomeNotStoredError:
    """Make the answer of a write whose own answer was too large to keep."""
    return OutcomeNotStoredError(
        "The write took effect; its answer was not kept and cannot be repeated. Read the resource instead."
    )


def answer_refused_claim(
    database: Database, write: KeyedWrite, settings: IdempotencySettings, error: psycopg.Error
) -> StoredAnswer | None:
    """Answer for a claim that a routine refused.

    Returns
    -------
    StoredAnswer or None
        The stored answer when another call has completed the same write; None when the error is another one.

    Raises
    ------
    IdempotencyInProgressError
        Another call holds the key.
    IdempotencyCapacityError
        The scope is at one of its caps.
    IdempotencyKeyReusedError, IdempotencyUncertainError, OutcomeNotStoredError
        As `replay`.
    """
    in_progress = IdempotencyInProgressError(
        "The same write is being worked on by another call.", retry_after_seconds=1
    )
    if error.sqlstate == KEY_IS_HELD:
        raise in_progress from error
    if error.sqlstate == SCOPE_IS_FULL:
        raise IdempotencyCapacityError(
            f"This key's scope holds as many idempotency records ({settings.max_records}) or bytes "
            f"({settings.max_bytes}) as it may. Wait until the oldest expires, resolve uncertain claims, or write "
            "without an Idempotency-Key.",
            retry_after_seconds=int(error.diag.message_detail or 1),
        ) from error
    if error.sqlstate != RECORD_EXISTS:
        return None
    record = read_outcome(database, write)
    if record is None:
        # It expired between the two looks.
        raise in_progress from error
    return replay(record, write)


def answer_params(answer: StoredAnswer, settings: IdempotencySettings) -> dict[str, Any]:
    """Return the parameters that store an answer; one that is too large is stored as a tombstone, without its body."""
    is_kept = answer.carried_bytes <= settings.max_outcome_bytes
    return {
        "status": answer.status,
        "headers": orjson.dumps(dict(answer.headers)).decode(),
        "body": answer.body if is_kept else None,
    }


def record_params(write: KeyedWrite, settings: IdempotencySettings) -> dict[str, Any]:
    """Return the parameters of a write's record, all but its answer."""
    return {
        **write.row_key,
        "operation": write.operation,
        "fingerprint": write.fingerprint,
        "retention_seconds": settings.retention_seconds,
        "max_records": settings.max_records,
        "max_bytes": settings.max_bytes,
        "audited_as": write.audited_as,
        "target": write.target,
        "request_id": write.request_id,
    }
