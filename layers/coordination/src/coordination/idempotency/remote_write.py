"""A write with an effect outside PostgreSQL: claim, effect, then the effect's rows and the outcome together."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from aws_lambda_powertools import Logger

from coordination.clock import Deadline
from coordination.database import Database, Transaction
from coordination.errors import DatabaseUnavailableError, OutcomeUnknownError, TooLittleTimeError
from coordination.idempotency.records import (
    QUERIES,
    RECORD_EXISTS,
    KeyedWrite,
    Performed,
    StoredAnswer,
    answer_params,
    answer_refused_claim,
    record_params,
)
from coordination.settings import IdempotencySettings

logger = Logger(child=True)

_ATTEMPTS = 2
_UNKNOWN = (
    "The write was begun and its outcome is not known. Repeat it with the same Idempotency-Key to see what is known; "
    "do not use a new key to find out."
)


@dataclass(slots=True)
class EffectBoundary:
    """The moment after which an error no longer means that nothing happened.

    Attributes
    ----------
    is_crossed
        Whether the remote effect may have begun.
    """

    is_crossed: bool = field(default=False)

    def cross(self) -> None:
        """Say that the next step may have an effect that cannot be taken back. Call it right before that step."""
        self.is_crossed = True


class ClaimLostError(Exception):
    """No outcome of this owner is stored: it could not be, or the claim was resolved while the effect ran."""


def perform_remote_write[Effect, Result](
    database: Database,
    write: KeyedWrite,
    settings: IdempotencySettings,
    deadline: Deadline,
    *,
    needed_seconds: float,
    reserved_bytes: int,
    act: Callable[[EffectBoundary], Effect],
    record: Callable[[Transaction, Effect], tuple[Result, StoredAnswer]],
) -> Performed[Result] | StoredAnswer:
    """Run a keyed write with a remote effect at most once.

    The claim commits first, with this owner's token and deadline (on the database's clock). An error before the effect
    boundary releases it; after the boundary the claim stays and becomes uncertain: it is never re-executed by itself.
    Rows and outcome commit in one transaction, which is tried once more on a new connection when the first was lost.

    Parameters
    ----------
    database
        The environment's connection.
    write
        The key, its scope and its fingerprint.
    settings
        Caps and retention.
    deadline
        When this invocation ends.
    needed_seconds
        What the operation needs; with less time left nothing is claimed, or the claim is given back.
    reserved_bytes
        What its answer may take of the scope's bytes.
    act
        Has the effect; crosses the boundary right before it.
    record
        Writes the effect's rows in the given transaction; returns the result and the answer to store.

    Returns
    -------
    Performed or StoredAnswer
        The result, or the stored answer when another call had completed first.

    Raises
    ------
    TooLittleTimeError
        The invocation ends too soon; no claim was made.
    IdempotencyInProgressError, IdempotencyCapacityError, IdempotencyKeyReusedError, IdempotencyUncertainError
        No claim was made.
    OutcomeUnknownError
        Something failed after the boundary.
    """
    _require_time(deadline, needed_seconds)
    token = uuid.uuid4()
    claimed = _claim(database, write, settings, deadline, token, reserved_bytes)
    if isinstance(claimed, StoredAnswer):
        return claimed
    boundary = EffectBoundary()
    try:
        # Claiming may have waited for the scope's lock, or for a new connection.
        _require_time(deadline, needed_seconds)
        effect = act(boundary)
    except BaseException as error:
        if boundary.is_crossed:
            logger.exception("error after the effect boundary; the claim stays", extra={"operation": write.operation})
            raise OutcomeUnknownError(_UNKNOWN) from error
        _release(database, write, token)
        raise
    # The effect has happened, whether or not it said so.
    return Performed(_complete(database, write, settings, token, effect, record), claimed)


def _require_time(deadline: Deadline, needed_seconds: float) -> None:
    if deadline.remaining_seconds() < needed_seconds:
        raise TooLittleTimeError(
            f"The operation needs {needed_seconds:.0f} s, the invocation has less left; nothing was done. Try again.",
            retry_after_seconds=1,
        )


def _claim(
    database: Database,
    write: KeyedWrite,
    settings: IdempotencySettings,
    deadline: Deadline,
    token: uuid.UUID,
    reserved_bytes: int,
) -> StoredAnswer | int | None:
    """Claim the key; return the records left in the scope, if known, or the stored answer of the completed write.

    When the answer of the commit was lost, the token tells whether the claim is ours. If it is not, the key is claimed
    once more with the same token: should the lost commit arrive after all, one of the two finds the other.
    """
    params: dict[str, Any] = {
        **write.row_key,
        "operation": write.operation,
        "fingerprint": write.fingerprint,
        "token": token,
        "owner_ms": int(deadline.remaining_seconds() * 1000),
        "retention_seconds": settings.retention_seconds + settings.uncertain_seconds,
        "max_records": settings.max_records,
        "max_bytes": settings.max_bytes,
        "reserved_bytes": reserved_bytes,
    }
    for _ in range(_ATTEMPTS):
        try:
            with database.transaction(write.tenant) as transaction:
                claimed = transaction.submit(QUERIES["claim_remote_write"], params)
            row = claimed.fetchone()
            return row["records_left"] if row else None
        except OutcomeUnknownError:
            if _read_claim(database, write, token) is not None:
                return None
        except psycopg.Error as error:
            if error.sqlstate == RECORD_EXISTS and _read_claim(database, write, token) is not None:
                return None
            stored = answer_refused_claim(database, write, settings, error)
            if stored is None:
                raise
            return stored
    raise DatabaseUnavailableError(
        "The connection was lost before anything was done. Repeat the write with the same Idempotency-Key.",
        retry_after_seconds=1,
    )


def _release(database: Database, write: KeyedWrite, token: uuid.UUID) -> None:
    try:
        with database.transaction(write.tenant) as transaction:
            transaction.submit(QUERIES["release_claim"], write.row_key | {"token": token})
    except (DatabaseUnavailableError, OutcomeUnknownError):
        # The claim stays until its deadline and is uncertain then: a person resolves what nothing had happened for.
        logger.warning("claim not released", extra={"operation": write.operation})


def _complete[Effect, Result](
    database: Database,
    write: KeyedWrite,
    settings: IdempotencySettings,
    token: uuid.UUID,
    effect: Effect,
    record: Callable[[Transaction, Effect], tuple[Result, StoredAnswer]],
) -> Result:
    """Write rows and outcome in one transaction; once more on a new connection when the first was lost.

    The token stays in a completed record: it tells whether a commit whose answer was lost had happened.
    """
    sent: list[Result] = []
    try:
        for _ in range(_ATTEMPTS):
            try:
                if sent and _read_claim(database, write, token) != "claimed":
                    break
                with database.transaction(write.tenant) as transaction:
                    result, answer = record(transaction, effect)
                    params = record_params(write, settings) | answer_params(answer, settings) | {"token": token}
                    transaction.submit(QUERIES["complete_remote_write"], params)
                    sent.append(result)
            except (DatabaseUnavailableError, OutcomeUnknownError):
                logger.warning("the outcome's commit was lost", extra={"operation": write.operation})
            else:
                return result
        if not sent or _read_claim(database, write, token) not in ("completed", "tombstone"):
            raise ClaimLostError(write.operation)
    except Exception as error:
        logger.exception("the outcome was not stored; the claim stays", extra={"operation": write.operation})
        raise OutcomeUnknownError(_UNKNOWN) from error
    return sent[-1]


def _read_claim(database: Database, write: KeyedWrite, token: uuid.UUID) -> str | None:
    """Return the state of this owner's claim, or None; waits for a transaction that is still at it."""
    with database.transaction(write.tenant, is_read=True) as transaction:
        transaction.submit(QUERIES["wait_for_key"], write.row_key)
        row = transaction.fetch_one(QUERIES["read_claim"], write.row_key | {"token": token})
    return row["state"] if row else None
