"""The one entry to conversion: a JSONL or Parquet file in, canonical rows out."""

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO, Literal

from records.limits import Limits
from records.manifest import Notes, ShardStart
from records.row_errors import DatasetInvalidError, RowError

from dataset_conversion.jsonl_conversion import convert_jsonl
from dataset_conversion.parquet_process import convert_parquet

__all__ = ["Conversion", "DatasetInvalidError", "FileFormat", "Limits", "NulRule", "RowError", "convert"]

type FileFormat = Literal["jsonl", "parquet"]
type NulRule = Literal["refuse", "replace"]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file that was converted: what was written, and what was noted on the way.

    Parameters
    ----------
    records, bytes
        Rows written, and their size.
    sha256
        Lower-case hex digest of all the bytes written.
    source_bytes
        Size of the file that was read.
    shards
        A row border at every 1000 rows or 8 MiB, whichever comes first.
    notes
        What was accepted and changed.
    """

    records: int
    bytes: int
    sha256: str
    source_bytes: int
    shards: tuple[ShardStart, ...]
    notes: Notes


def convert(
    source: BinaryIO | bytes,
    file_format: FileFormat,
    write: Callable[[bytes], object],
    *,
    mapping: Mapping[str, str] | None = None,
    nul: NulRule = "refuse",
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Conversion:
    """Check every row of a file and write the canonical ones.

    What has been written is worth keeping only when this returns: a file is refused after its last row at the latest.

    Parameters
    ----------
    source
        The file, or an object with its bytes; read once, from its present position to its end.
    file_format
        What the sender says it is.
    write
        Takes canonical bytes, in order, in pieces of at most a few MiB.
    mapping
        ``{canonical field: JSON Pointer or column}``; goes before names and aliases.
    nul
        What to do with NUL characters, which no database text can hold: refuse them, or store U+FFFD.
    limits
        What the file may cost.

    Returns
    -------
    Conversion
        Counts, digest, shard index and notes.

    Raises
    ------
    DatasetInvalidError
        The file is refused; it names up to ``limits.errors`` places.
    records.row_fields.MappingInvalidError
        `mapping` names a field that no record has, or is no pointer.
    """
    sink = _Sink(write)
    reader = _BoundedReader(source, limits)
    if file_format == "parquet":
        accepted = convert_parquet(reader.read, sink.write, mapping=mapping, nul=nul, limits=limits)
        shards = tuple(accepted.shards)
        return Conversion(accepted.records, accepted.bytes, sink.sha256, reader.bytes, shards, accepted.notes)
    rows, notes = convert_jsonl(reader.read, sink.write, mapping=mapping, nul=nul, limits=limits)
    return Conversion(rows.records, rows.bytes, sink.sha256, reader.bytes, tuple(rows.shards), notes)


class _Sink:
    """Passes bytes on and digests them."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._digest = hashlib.sha256()

    def write(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._write(piece)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class _BoundedReader:
    """Reads a source up to the limit on its size."""

    def __init__(self, source: BinaryIO | bytes, limits: Limits) -> None:
        self._source = io.BytesIO(source) if isinstance(source, bytes) else source
        self._limit = limits.input_bytes
        self.bytes = 0

    def read(self, size: int) -> bytes:
        piece = self._source.read(size)
        self.bytes += len(piece)
        if self.bytes > self._limit:
            message = f"the file has more than {self._limit} bytes, the limit: split it into several datasets"
            raise DatasetInvalidError([RowError(None, None, "too_large", message)])
        return piece
