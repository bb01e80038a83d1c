"""A keyed write whose effects are all in PostgreSQL: claim, effect and stored outcome in one transaction."""

from collections.abc import Callable

import psycopg
from psycopg.rows import DictRow

from coordination.database import Database, Transaction
from coordination.errors import DatabaseUnavailableError, OutcomeUnknownError
from coordination.idempotency.records import (
    QUERIES,
    KeyedWrite,
    Performed,
    StoredAnswer,
    answer_params,
    answer_refused_claim,
    read_outcome,
    record_params,
    replay,
)
from coordination.settings import IdempotencySettings


def perform_local_write[Result](
    database: Database,
    write: KeyedWrite,
    settings: IdempotencySettings,
    effect: Callable[[Transaction], tuple[Result, StoredAnswer]],
) -> Performed[Result] | StoredAnswer:
    """Run a keyed write once.

    One transaction of the scope's tenant: the try-lock on the key first, the lock on the scope last. In pipeline mode
    the claim travels with the effect's first read; audit event and outcome, one statement, with the commit.

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
    IdempotencyKeyReusedError, IdempotencyUncertainError, OutcomeNotStoredError
        As `replay`.
    IdempotencyCapacityError
        The scope is full; nothing happened.
    OutcomeUnknownError
        The connection was lost at the commit and the record cannot be read back.
    """
    done: tuple[Result, StoredAnswer] | None = None
    try:
        with database.transaction(write.tenant, first=(QUERIES["begin_local_write"], write.row_key)) as transaction:
            # The server is claiming meanwhile.
            params = record_params(write, settings)
            done = effect(transaction)
            ended = transaction.submit(QUERIES["end_local_write"], params | answer_params(done[1], settings))
        # The one value, without making a row of it.
        left = ended.pgresult.get_value(0, 0) if ended.pgresult else None
        return Performed(done[0], int(left) if left else None)
    except OutcomeUnknownError:
        record = _read_back(database, write)
        if done is None or record is None:
            raise
        # The record commits with its effect, but another call may have taken the key after our commit was lost: only a
        # record that holds our answer says that the effect that happened is ours.
        stored = replay(record, write)
        if stored != done[1]:
            return stored
    except psycopg.Error as error:
        stored = answer_refused_claim(database, write, settings, error)
        if stored is None:
            raise
        return stored
    return Performed(done[0])


def _read_back(database: Database, write: KeyedWrite) -> DictRow | None:
    try:
        return read_outcome(database, write, waits=True)
    except DatabaseUnavailableError:
        return None
