"""One row of a dataset as the evaluators see it, and how to read a canonical object back into rows.

The shape of a canonical row is fixed by ``records.row_fields``; this module only reads what has been published.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

type JsonValue = bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None
"""A value that RFC 8259 can express, as Python's JSON readers return it."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record: what a system was asked, what it answered, and what was expected.

    A field that the row does not have is ``None``, and so is one that it has as JSON ``null``: evaluators need no
    difference between the two.

    Parameters
    ----------
    id
        1 to 256 characters, unique in the dataset.
    input
        What the system was given: text, a list of messages, or any other JSON value.
    output
        What the system answered; any JSON value.
    reference
        What was expected; any JSON value. A list means that any one of its items will do.
    context
        The passages that the system was shown, in their order.
    trajectory
        The steps that an agent took: ``{"trace_id"?, "session_id"?, "steps": [{...}]}``.
    usage
        ``{"input_tokens"?, "output_tokens"?, "cost_usd"?, "latency_ms"?}``, numbers of at least 0.
    metadata
        Everything else the row came with, under its own names.
    """

    id: str
    input: Any = None
    output: Any = None
    reference: Any = None
    context: list[Any] | None = None
    trajectory: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


_DECODE_ROW = msgspec.json.Decoder(Record).decode


def read_records(canonical: bytes) -> list[Record]:
    r"""Read canonical JSONL, whole or a slice that starts and ends at row borders.

    Parameters
    ----------
    canonical
        Rows as publication wrote them, each ended by ``\n``; a shard's byte range, for instance.

    Returns
    -------
    list of Record
        In the order of the rows.

    Raises
    ------
    msgspec.DecodeError
        The bytes are not canonical rows (a range that does not begin or end at a row border).
    """
    return list(iterate_records(canonical))


def iterate_records(canonical: bytes) -> Iterator[Record]:
    """Yield the records of `canonical` one at a time; see `read_records`."""
    for line in canonical.split(b"\n"):
        if line:
            yield _DECODE_ROW(line)
