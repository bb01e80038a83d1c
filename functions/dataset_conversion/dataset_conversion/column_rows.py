"""Rows from columns all of which have a value in every row: what becomes of each column is the same for all of them.

A batch in which something is missing, or has a type that a field does not have, goes row by row instead; a batch that
is taken here comes out as it would there.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import orjson
from records.canonical_json import SORTED, is_order_unsure
from records.field_types import ID_CHARACTERS_MAX
from records.row_assembly import INTEGER_ID, RowOrigin
from records.row_fields import RowPlan


class ColumnRows:
    """Writes batches that have the same columns.

    Parameters
    ----------
    names
        The columns that have values.
    plan
        What becomes of them; `records.row_fields.RowPlan.is_straight` holds.
    """

    def __init__(self, names: Sequence[str], plan: RowPlan) -> None:
        field_of = dict(plan.moves)
        self._fields = [field_of.get(name, name) for name in names if name not in plan.extras]
        self._is_extra = [name in plan.extras for name in names]
        self._extras = [name for name in names if name in plan.extras]
        self._origin = RowOrigin(plan.id_pointer, plan.names_added, plan.aliases)

    def write_all(self, columns: Sequence[list[Any]]) -> tuple[list[str], list[bytes], RowOrigin] | None:
        """Return ids, canonical texts and origin of the rows; ``None`` when they have to go one by one.

        Parameters
        ----------
        columns
            Their values, in the order of the names; ``None`` occurs in extra columns only.

        Raises
        ------
        orjson.JSONEncodeError
            The rows have to go one by one, too.
        """
        pairs = list(zip(self._is_extra, columns, strict=True))
        members = dict(zip(self._fields, (column for is_extra, column in pairs if not is_extra), strict=True))
        ids, origin = self._read_ids(members["id"])
        if ids is None or not self._have_types(members):
            return None
        members["id"] = ids
        if self._extras:
            metadata = self._gather_metadata(
                members.get("metadata"), [column for is_extra, column in pairs if is_extra]
            )
            if metadata is None:
                return None
            members["metadata"] = metadata
        fields = tuple(members)
        rows = [dict(zip(fields, row, strict=True)) for row in zip(*members.values(), strict=True)]
        texts = list(map(orjson.dumps, rows, repeat(None), repeat(SORTED)))
        return None if any(map(is_order_unsure, texts)) else (ids, texts, origin)

    def _read_ids(self, column: list[Any]) -> tuple[list[str] | None, RowOrigin]:
        kinds = set(map(type, column))
        if kinds == {int}:
            changes = (*self._origin.changes, INTEGER_ID)
            return list(map(str, column)), RowOrigin(self._origin.id_pointer, self._origin.names_added, changes)
        if kinds != {str} or not all(0 < size <= ID_CHARACTERS_MAX for size in map(len, column)):
            return None, self._origin
        return column, self._origin

    @staticmethod
    def _have_types(members: dict[str, list[Any]]) -> bool:
        return all(
            set(map(type, members[field])) == {kind}
            for field, kind in (("context", list), ("metadata", dict))
            if field in members
        )

    def _gather_metadata(self, given: list[Any] | None, columns: list[list[Any]]) -> list[dict[str, Any]] | None:
        names = self._extras
        extras = [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]
        if given is None:
            # A row without any of them has no metadata at all.
            return extras if all(extras) else None
        gathered = [own | extra for own, extra in zip(given, extras, strict=True)]
        sizes = zip(map(len, gathered), map(len, given), map(len, extras), strict=True)
        return gathered if all(size == own + extra for size, own, extra in sizes) else None
