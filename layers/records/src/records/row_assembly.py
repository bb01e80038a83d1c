"""From one row as it was read to its canonical text."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from records.canonical_json import write_prepared
from records.field_types import ID_CHARACTERS_MAX
from records.row_fields import RowFields, RowPlan, RowProblem, read_id

INTEGER_ID = "integer id"
TEXT_CONTEXT = "text context"

_BEFORE_ID = b'{"context":'


class RowOrigin(msgspec.Struct, frozen=True, gc=False):
    """What rows that became canonical in the same way have in common.

    Parameters
    ----------
    id_pointer
        Where the source row has its id.
    names_added
        Members that the canonical row has more than the source row; ``None`` when nobody counted.
    changes
        What was changed: ``question -> input`` for an alias, `INTEGER_ID`, `TEXT_CONTEXT`.
    """

    id_pointer: str
    names_added: int | None
    changes: tuple[str, ...]


class ReadyRow(msgspec.Struct, frozen=True, gc=False):
    """A row in canonical text.

    Parameters
    ----------
    number
        1-based number of the row in its source.
    text
        The canonical row, without line end; without an id when `record_id` is ``None``.
    record_id
        The id that `text` has, ``None`` when one has to be derived.
    origin
        How it became canonical.
    id_offset
        Where in `text` the member ``"id"`` belongs: before everything but ``context``. Set when it has none.
    """

    number: int
    text: bytes
    record_id: str | None
    origin: RowOrigin
    id_offset: int = 0


class RowRefusedError(Exception):
    """A row breaks the rules for records.

    Parameters
    ----------
    problems
        At least one.
    record_id
        The id that the row has nevertheless, and where.
    """

    def __init__(self, problems: Sequence[RowProblem], record_id: str | None, id_pointer: str) -> None:
        super().__init__(problems[0].reason)
        self.problems = problems
        self.record_id = record_id
        self.id_pointer = id_pointer


class RowAssembly:
    """Makes the rows of one file canonical.

    Parameters
    ----------
    mapping
        See `records.row_fields.RowFields`.

    Raises
    ------
    records.row_fields.MappingInvalidError
        `mapping` makes no sense.
    """

    def __init__(self, mapping: Mapping[str, str] | None = None) -> None:
        self._fields = RowFields(mapping)

    @property
    def unmatched_mapping(self) -> list[str]:
        """Mapped fields that no row has had so far, sorted."""
        return sorted(self._fields.unmatched)

    def plan(self, row: Mapping[str, Any]) -> RowPlan:
        """Return what becomes of the names of `row`; see `records.row_fields.RowFields`."""
        return self._fields.plan(row)

    def plan_without_nulls(self, names: tuple[str, ...]) -> RowPlan:
        """Return what becomes of names none of which is null; see `records.row_fields.RowFields`."""
        return self._fields.plan_without_nulls(names)

    def assemble(self, number: int, row: dict[str, Any]) -> ReadyRow:
        """Return `row` in canonical text.

        Parameters
        ----------
        number
            1-based number of the row in its source.
        row
            Used up. Its numbers have been through `records.canonical_json.canonical_float` and ``canonical_integer``.

        Raises
        ------
        RowRefusedError
            The row breaks the rules for records.
        orjson.JSONEncodeError
            The row holds what has no JSON text.
        """
        fields = self._fields
        plan = fields.plan(row)
        problems = fields.arrange(row, plan)
        changes = plan.aliases
        if type(row.get("context")) is str:
            row["context"] = [row["context"]]
            changes += (TEXT_CONTEXT,)
        given_id = row.get("id")
        if problems is None and type(given_id) is str and 0 < len(given_id) <= ID_CHARACTERS_MAX:
            return ReadyRow(
                number, write_prepared(row), given_id, RowOrigin(plan.id_pointer, plan.names_added, changes)
            )
        record_id = read_id(given_id, plan.id_pointer)
        if isinstance(record_id, RowProblem):
            raise RowRefusedError([*(problems or ()), record_id], None, plan.id_pointer)
        if problems is not None:
            raise RowRefusedError(problems, record_id, plan.id_pointer)
        if record_id is not None:
            row["id"] = record_id
            origin = RowOrigin(plan.id_pointer, plan.names_added, (*changes, INTEGER_ID))
            return ReadyRow(number, write_prepared(row), record_id, origin)
        return self._without_id(number, row, plan, changes)

    def _without_id(self, number: int, row: dict[str, Any], plan: RowPlan, changes: tuple[str, ...]) -> ReadyRow:
        names_added = plan.names_added
        if row.pop("id", None) is not None and names_added is not None:
            names_added -= 1
        id_offset = 1
        if "context" in row:
            id_offset = len(_BEFORE_ID) + len(write_prepared(row["context"])) + 1
        return ReadyRow(number, write_prepared(row), None, RowOrigin(plan.id_pointer, names_added, changes), id_offset)
