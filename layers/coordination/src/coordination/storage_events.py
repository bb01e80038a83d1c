"""Storage events: what happened to datasets in the bucket, told to EventBridge by `delivery`.

The event and its place in the outbox are written in the transaction that changes the dataset; whoever reads the events
table reads the whole history, whoever listens to EventBridge gets each event at least once.
"""

from collections.abc import Mapping
from typing import Any, Literal

from psycopg.types.json import Jsonb

from coordination.database import Transaction
from coordination.queries import load_queries

_QUERIES = load_queries("storage_events")

type StorageEvent = Literal["dataset.published", "dataset.removed"]


def record_storage_event(
    transaction: Transaction, event: StorageEvent, *, sha256: str, detail: Mapping[str, Any], principal: str
) -> None:
    """Write a storage event, its place in the outbox and its wake-up. No round trip, no lock.

    Parameters
    ----------
    transaction
        Of the project, the one in which it happens.
    sha256
        Of the dataset's content.
    detail
        What the event says beside its id, time, project and principal: names, versions, sizes; no record content.
    principal
        Who caused it.
    """
    transaction.wake_all(
        _QUERIES["record_storage_event"],
        {
            "tenant": transaction.tenant,
            "event": event,
            "sha256": sha256,
            "detail": Jsonb(dict(detail)),
            "created_by": principal,
        },
    )
