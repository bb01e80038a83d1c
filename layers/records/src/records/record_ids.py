"""The ids of one dataset: unique, also for eyes that cannot see Unicode normalization; derived where a row has none."""

import hashlib
import unicodedata
from collections.abc import Sequence
from typing import cast

from records.row_errors import RowError

DERIVED_PREFIX = "r-"
_DIGEST_CHARACTERS = 16


class RecordIds:
    """The ids given so far, in file order."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._row_of: dict[str, int] = {}
        # Ids whose rows nobody has asked for yet: mostly nobody ever does.
        self._unasked: list[tuple[Sequence[str], Sequence[int]]] = []
        self._repeats: dict[str, int] = {}

    def claim(self, record_id: str, row: int, pointer: str) -> RowError | None:
        """Take the id that a row names.

        Parameters
        ----------
        record_id
            As `records.row_fields.read_id` returned it.
        row
            1-based number of the row, for messages.
        pointer
            Where the row has its id.

        Returns
        -------
        RowError or None
            ``duplicate_id`` when an earlier row has it, or one that looks the same (it differs in Unicode
            normalization only).
        """
        key = record_id if record_id.isascii() else unicodedata.normalize("NFC", record_id)
        if key not in self._taken:
            self._taken.add(key)
            self._row_of[key] = row
            return None
        first = self._find_row(key)
        if first == row:
            return None
        message = (
            f"row {first} has the id {_show(record_id)} too: ids are unique in a dataset "
            "(one written as another Unicode normalization, NFC or NFD, counts as the same)"
        )
        return RowError(row, pointer, "duplicate_id", message)

    def claim_all(self, record_ids: Sequence[str | None], rows: Sequence[int]) -> bool:
        """Take the ids of many rows at once if that is as plain as it mostly is.

        Parameters
        ----------
        record_ids, rows
            As for `claim`, one for one.

        Returns
        -------
        bool
            ``False`` when nothing was taken and each id has to be looked at: one is missing, there twice, or not plain
            ASCII.
        """
        if None in record_ids:
            return False
        ids = cast("Sequence[str]", record_ids)
        if not "".join(ids).isascii():
            return False
        before = len(self._taken)
        self._taken.update(ids)
        if len(self._taken) - before < len(ids):
            self._ask_for_all()
            self._taken = set(self._row_of)
            return False
        self._unasked.append((ids, rows))
        return True

    def _find_row(self, record_id: str) -> int:
        self._ask_for_all()
        return self._row_of[record_id]

    def _ask_for_all(self) -> None:
        for ids, rows in self._unasked:
            self._row_of.update(zip(ids, rows, strict=True))
        self._unasked.clear()

    def derive(self, content: bytes, row: int) -> str:
        """Make the id of a row without one: the same for the same content, ``-2``, ``-3`` … for its repeats.

        Parameters
        ----------
        content
            The canonical row without an id.
        row
            1-based number of the row.
        """
        stem = DERIVED_PREFIX + hashlib.sha256(content).hexdigest()[:_DIGEST_CHARACTERS]
        repeat = self._repeats.get(stem, 0) + 1
        record_id = stem if repeat == 1 else f"{stem}-{repeat}"
        while record_id in self._taken:
            repeat += 1
            record_id = f"{stem}-{repeat}"
        self._repeats[stem] = repeat
        self._taken.add(record_id)
        self._row_of[record_id] = row
        return record_id


def _show(record_id: str) -> str:
    shown = 64
    return ascii(record_id if len(record_id) <= shown else record_id[:shown] + "…")
