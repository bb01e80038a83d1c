r"""The canonical object as it is written: one canonical row a line, ids settled, shard borders noted.

Rows come in pieces of some hundreds, already in canonical text; a piece is written with one call.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO

from records.limits import MIB, Limits
from records.manifest import Notes, ShardStart
from records.record_ids import RecordIds
from records.row_assembly import INTEGER_ID, TEXT_CONTEXT, ReadyRow, RowOrigin
from records.row_errors import ErrorCollector, RowError
from records.row_fields import RowProblem

SHARD_RECORDS_MAX = 1000
SHARD_BYTES_MAX = 8 * MIB


class CanonicalRows:
    """Writes the rows of one dataset, in order.

    After the first error nothing more is written: the rest of the file is checked only.

    Parameters
    ----------
    write
        Takes the bytes of the canonical object.
    errors
        Where to put what is wrong.
    limits
        Bounds on records, on one canonical row, and on the object.
    """

    def __init__(self, write: Callable[[bytes], object], errors: ErrorCollector, limits: Limits) -> None:
        self._write = write
        self._errors = errors
        self._limits = limits
        self._ids = RecordIds()
        self.records = 0
        self.bytes = 0
        self._derived_ids = 0
        self._changes: dict[str, int] = {}
        self.shards: list[ShardStart] = []
        self._shard_records = SHARD_RECORDS_MAX
        self._shard_bytes = 0

    def add(self, rows: Sequence[ReadyRow]) -> None:
        """Settle the ids of `rows` and write them.

        Raises
        ------
        DatasetInvalidError
            A limit on the whole is passed, or the last error to look for was found.
        """
        if not rows:
            return
        numbers = [ready.number for ready in rows]
        self._check_room(numbers)
        for origin, count in Counter([ready.origin for ready in rows]).items():
            self._count_changes(origin, count)
        is_plain = self._ids.claim_all([ready.record_id for ready in rows], numbers)
        texts = [ready.text if is_plain else self._settle_id(ready) for ready in rows]
        self._put(numbers, b"\n".join([*texts, b""]))

    def add_alike(self, first: int, record_ids: Sequence[str], piece: bytes, origin: RowOrigin) -> None:
        r"""Add rows that follow one another and became canonical in the same way; see `add`.

        Parameters
        ----------
        first
            Number of the first of them.
        record_ids
            Their ids.
        piece
            Their canonical texts, each ended by ``\n``.
        origin
            How all of them became canonical.

        Raises
        ------
        DatasetInvalidError
            See `add`.
        """
        numbers = range(first, first + len(record_ids))
        self._check_room(numbers)
        if self._ids.claim_all(record_ids, numbers):
            self._count_changes(origin, len(record_ids))
            self._put(numbers, piece)
        else:
            rows = zip(numbers, piece.splitlines(), record_ids, strict=True)
            self.add([ReadyRow(number, text, record_id, origin) for number, text, record_id in rows])

    def note(self, number: int, problems: Iterable[RowProblem]) -> None:
        """Note what is wrong with a row, which is not added then.

        Parameters
        ----------
        number
            1-based number of the row in its source.
        problems
            What is wrong with it.

        Raises
        ------
        DatasetInvalidError
            The last error to look for was found.
        """
        for problem in problems:
            self._errors.add(RowError(number, problem.field, problem.reason, problem.message))

    def reserve_id(self, number: int, record_id: str, pointer: str) -> None:
        """Take the id of a row, also of one that is refused, so that its repeats are found all the same.

        Raises
        ------
        DatasetInvalidError
            The last error to look for was found.
        """
        error = self._ids.claim(record_id, number, pointer)
        if error is not None:
            self._errors.add(error)

    def make_notes(self, unmatched_mapping: list[str]) -> Notes:
        """Return what was changed in the rows added so far."""
        aliases = {change: count for change, count in sorted(self._changes.items()) if " -> " in change}
        return Notes(
            derived_ids=self._derived_ids,
            integer_ids=self._changes.get(INTEGER_ID, 0),
            text_contexts=self._changes.get(TEXT_CONTEXT, 0),
            aliases=aliases,
            unmatched_mapping=unmatched_mapping,
        )

    def _check_room(self, numbers: Sequence[int]) -> None:
        room = self._limits.records - self.records
        if len(numbers) > room:
            message = f"a dataset has at most {self._limits.records} records: split the file"
            self._errors.refuse(RowError(numbers[room], None, "too_many_records", message))

    def _count_changes(self, origin: RowOrigin, count: int) -> None:
        for change in origin.changes:
            self._changes[change] = self._changes.get(change, 0) + count

    def _put(self, numbers: Sequence[int], piece: bytes) -> None:
        size = len(piece)
        if size > self._limits.row_bytes:
            self._check_row_sizes(numbers, piece)
        if self.bytes + size > self._limits.output_bytes:
            self._refuse_output(numbers, piece)
        if self._shard_records + len(numbers) <= SHARD_RECORDS_MAX and self._shard_bytes + size <= SHARD_BYTES_MAX:
            self._shard_records += len(numbers)
            self._shard_bytes += size
        else:
            self._note_shards(piece)
        self.records += len(numbers)
        self.bytes += size
        if not self._errors:
            self._write(piece)

    def _settle_id(self, ready: ReadyRow) -> bytes:
        if ready.record_id is not None:
            self.reserve_id(ready.number, ready.record_id, ready.origin.id_pointer)
            return ready.text
        text, offset = ready.text, ready.id_offset
        derived = self._ids.derive(text, ready.number)
        self._derived_ids += 1
        return b'%b"id":"%b",%b' % (text[:offset], derived.encode(), text[offset:])

    def _check_row_sizes(self, numbers: Sequence[int], piece: bytes) -> None:
        limit = self._limits.row_bytes
        for number, size in zip(numbers, _line_sizes(piece), strict=True):
            if size > limit + 1:
                message = f"the canonical row has {size - 1} bytes; the limit is {limit} bytes"
                self._errors.add(RowError(number, None, "row_too_large", message))

    def _refuse_output(self, numbers: Sequence[int], piece: bytes) -> None:
        limit = self._limits.output_bytes
        reached = self.bytes
        for number, size in zip(numbers, _line_sizes(piece), strict=True):
            reached += size
            if reached > limit:
                message = (
                    f"the canonical rows reach {reached} bytes here; the limit is {limit} bytes: "
                    "publish the rest as another dataset"
                )
                self._errors.refuse(RowError(number, None, "too_large", message))

    def _note_shards(self, piece: bytes) -> None:
        offset = self.bytes
        for record, size in enumerate(_line_sizes(piece), self.records):
            if self._shard_records == SHARD_RECORDS_MAX or self._shard_bytes + size > SHARD_BYTES_MAX:
                self.shards.append(ShardStart(offset, record))
                self._shard_records = self._shard_bytes = 0
            self._shard_records += 1
            self._shard_bytes += size
            offset += size


def _line_sizes(piece: bytes) -> Iterator[int]:
    # Canonical text has no line end of its own.
    return map(len, BytesIO(piece))
