"""Which slices the records of a shard belong to: the values of the metadata keys that their run is sliced by."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from coordination.array_literals import write_numbers, write_texts
from coordination.database import Transaction
from coordination.queries import load_queries
from records.record import Record

_QUERIES = load_queries("runs")
_MAX_TEXT_CHARACTERS = 100
_INSERT_ROWS = 1000


def write_slices(
    transaction: Transaction, run_id: UUID, keys: Sequence[str], records: Sequence[Record], first_record: int
) -> None:
    """Write the values of a shard's records; those that an attempt before has written stay. No round trip.

    A record has no value under a key that its metadata lacks, or where a list, an object or null stands. A text is cut
    at 100 characters: values are to name slices, not to tell stories.

    Parameters
    ----------
    transaction
        Of the shard's project, guarded by its lease.
    run_id, keys
        The run, and what it is sliced by.
    records, first_record
        Of the shard; the number of its first one in the snapshot.
    """
    rows = [
        (key, number, value)
        for number, record in enumerate(records, first_record)
        for key in keys
        if (value := _read_value(record.metadata, key)) is not None
    ]
    for start in range(0, len(rows), _INSERT_ROWS):
        part = rows[start : start + _INSERT_ROWS]
        transaction.submit(
            _QUERIES["insert_slices"],
            {
                "tenant": transaction.tenant,
                "run_id": run_id,
                "keys": write_texts(key for key, _, _ in part),
                "record_nos": write_numbers(number for _, number, _ in part),
                "values": write_texts(value for _, _, value in part),
            },
        )


def _read_value(metadata: Mapping[str, Any] | None, key: str) -> str | None:
    """Return a record's value as JSON text; None when it has none that could name a slice."""
    value: Any = metadata.get(key) if metadata else None
    match value:
        case str():
            return orjson.dumps(value[:_MAX_TEXT_CHARACTERS]).decode()
        case bool() | int() | float():
            return orjson.dumps(value).decode()
        case _:
            return None
