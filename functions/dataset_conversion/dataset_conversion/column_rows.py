"""Rows from columns: what becomes of each column is the same for all rows of a batch, so they are written together.

A batch in which something is missing, or has a type that a field does not have, goes row by row instead; a batch that
is taken here comes out as it would there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow.types as pt
from records.field_types import ID_CHARACTERS_MAX
from records.row_assembly import INTEGER_ID, RowOrigin
from records.row_fields import ALIASES, RowPlan

from dataset_conversion.column_texts import Array, Text, count_nulls, join, pc, read_content, write_members
from dataset_conversion.column_values import Converter, StructConverter

type Members = list[tuple[str, Text]]


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column as canonical JSON.

    Parameters
    ----------
    text
        Of its values.
    members
        Of the members of its structs, where no struct is null; ``None`` for all other columns.
    is_integer
        It holds integers.
    """

    text: Text
    members: Members | None
    is_integer: bool

    @classmethod
    def of(cls, converter: Converter, array: Array) -> "ColumnText":
        """Write a column.

        Raises
        ------
        dataset_conversion.column_values.ValueProblemError, orjson.JSONEncodeError
            See `dataset_conversion.column_values.Converter.write`.
        """
        if isinstance(converter, StructConverter) and not array.null_count:
            members = converter.write_parts(array)
            return cls(write_members(members), members, is_integer=False)
        return cls(converter.write(array), None, pt.is_integer(array.type))

    @property
    def null_count(self) -> int:
        """Rows without a value."""
        return count_nulls(self.text)


class AlikeRows(NamedTuple):
    """What `records.canonical_rows.CanonicalRows.add_alike` takes."""

    record_ids: list[str]
    piece: bytes
    origin: RowOrigin


class ColumnRows:
    """Writes batches that have the same columns.

    Parameters
    ----------
    plan
        What becomes of them; `records.row_fields.RowPlan.is_straight` holds.
    """

    def __init__(self, plan: RowPlan) -> None:
        self._field_of = dict(plan.moves)
        self._extras = plan.extras
        self._origin = RowOrigin(plan.id_pointer, plan.names_added, plan.aliases)

    def write_all(self, columns: Mapping[str, ColumnText]) -> AlikeRows | None:
        """Return rows that became canonical in the same way; ``None`` when they have to go one by one.

        Parameters
        ----------
        columns
            By name, those that have a value in one row at least.
        """
        fields = {self._field_of.get(name, name): columns[name] for name in columns if name not in self._extras}
        ids, origin = self._read_ids(fields["id"])
        metadata = fields.pop("metadata", None)
        may_lack = self._find_optional(columns, fields)
        if ids is None or any(column.null_count and field not in may_lack for field, column in fields.items()):
            return None
        texts = {field: column.text for field, column in fields.items()}
        texts["id"] = ['"', ids, '"']
        if "context" in texts and not _begins(texts["context"], "["):
            return None
        if metadata is not None or self._extras:
            members = self._gather_metadata(metadata, columns)
            if members is None:
                return None
            texts["metadata"] = members
        rows = join([*write_members(list(texts.items())), "\n"])
        return AlikeRows(ids.to_pylist(), read_content(rows), origin)

    def _find_optional(self, columns: Mapping[str, ColumnText], fields: Mapping[str, ColumnText]) -> set[str]:
        """Return the fields that rows may lack without anything else becoming of their other members."""
        return {
            field
            for field in ("context", "output", "reference")
            if field in columns
            and field in fields
            and field not in self._field_of.values()
            and (field != "output" or "input" in fields)
            and not any(alias in columns for alias in ALIASES[field])
        }

    def _read_ids(self, column: ColumnText) -> tuple[Array | None, RowOrigin]:
        origin = self._origin
        if column.is_integer:
            ids = column.text[0]
            return ids, RowOrigin(origin.id_pointer, origin.names_added, (*origin.changes, INTEGER_ID))
        match column.text:
            case ['"', ids, '"'] if not isinstance(ids, str) and b"\\" not in read_content(ids):
                sizes = pc.min_max(pc.utf8_length(ids)).as_py()
                return (ids, origin) if sizes["min"] > 0 and sizes["max"] <= ID_CHARACTERS_MAX else (None, origin)
            case _:
                return None, origin

    def _gather_metadata(self, given: ColumnText | None, columns: Mapping[str, ColumnText]) -> Text | None:
        if not self._extras:
            if given is None or not _begins(given.text, "{"):
                return None
            return given.text
        if given is not None and given.members is None:
            return None
        members = [] if given is None else list(given.members or ())
        extras: Members = [(name, columns[name].text) for name in self._extras]
        if {name for name, _ in members} & {*self._extras}:
            return None
        # A row without any of them has no metadata at all.
        if given is None and not _is_any_there([text for _, text in extras]):
            return None
        return write_members(members + extras)


def _begins(text: Text, bracket: str) -> bool:
    """Tell whether each row's JSON begins with a bracket: is a list, or an object."""
    first = text[0]
    return first.startswith(bracket) if isinstance(first, str) else pc.all(pc.starts_with(first, bracket)).as_py()


def _is_any_there(texts: list[Text]) -> bool:
    """Tell whether each row has at least one of the texts."""
    there = join(texts[0]).is_valid()
    for text in texts[1:]:
        if not count_nulls(text):
            return True
        there = pc.or_(there, join(text).is_valid())
    return bool(pc.all(there).as_py())
