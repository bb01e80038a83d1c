"""What the process that decodes Parquet is told, and what it answers.

One request on its standard input; on its standard output pieces of canonical rows, then one verdict, each framed by a
letter and its length. Rows that were sent before a verdict of refusal are worthless.
"""

import struct
from collections.abc import Callable
from typing import Literal

import msgspec
from records.limits import MIB, Limits
from records.manifest import Notes, ShardStart
from records.row_errors import Reason, RowError

ROWS, ACCEPTED, REFUSED, BAD_MAPPING = b"R", b"A", b"X", b"M"
FRAME = struct.Struct(">cI")


class Request(msgspec.Struct, frozen=True):
    """What to convert.

    Parameters
    ----------
    parent_process_id
        The process that waits for the answer.
    file_descriptor, file_bytes
        Where the file is open, and its size.
    mapping, nul, limits
        See `dataset_conversion.conversion.convert`.
    """

    parent_process_id: int
    file_descriptor: int
    file_bytes: int
    mapping: dict[str, str] | None
    nul: Literal["refuse", "replace"]
    limits: Limits

    @property
    def seconds(self) -> float:
        """Time that the decoder may take, of the clock and of the processor."""
        limits = self.limits
        return limits.decoder_seconds + limits.decoder_seconds_per_mib * self.file_bytes / MIB


class Accepted(msgspec.Struct, frozen=True):
    """The verdict on a file all of whose rows have been sent."""

    records: int
    bytes: int
    shards: list[ShardStart]
    notes: Notes


class Refused(msgspec.Struct, frozen=True):
    """The verdict on a file that is refused: `records.row_errors.RowError` as tuples."""

    errors: list[tuple[int | None, str | None, Reason, str]]

    @classmethod
    def of(cls, errors: tuple[RowError, ...]) -> "Refused":
        """Return the message that says `errors`."""
        return cls([(error.row, error.field, error.reason, error.message) for error in errors])

    def to_errors(self) -> list[RowError]:
        """Return what was said."""
        return [RowError(*error) for error in self.errors]


def send(write: Callable[[bytes], object], kind: bytes, payload: bytes) -> None:
    """Write one framed message."""
    write(FRAME.pack(kind, len(payload)))
    write(payload)
