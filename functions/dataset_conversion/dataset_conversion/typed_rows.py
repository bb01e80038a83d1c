"""A reader made for rows that all have the same names, as the rows of one file mostly have.

Which member becomes which field is the same for all of them, and mostly the members have the types that fields have.
Both is told to the JSON reader, which then reads, renames and checks in one go. It refuses any row that has other names
or types, or a null that would matter; such rows go the general way, which decides for each of them anew. A row that is
taken here comes out as it would there.
"""

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Annotated, Any

import msgspec
import orjson
from records.canonical_json import SORTED, write_prepared
from records.field_types import ID_CHARACTERS_MAX
from records.row_assembly import ReadyRow, RowOrigin
from records.row_fields import ALIASES, RowPlan

from dataset_conversion.row_shapes import Shape, ShapelessError
from dataset_conversion.shaped_rows import ShapedRows

type _Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARACTERS_MAX)]
# Without float: as the type of a member it would bypass the float hook.
type _NotNull = str | int | bool | list[Any] | dict[str, Any]

_NOT_NULL: dict[str, Any] = {"id": _Id, "context": list[Any], "metadata": dict[str, Any]}
# Rows in which something is new teach it; a file in which this goes on has no shape.
_LESSONS_MAX = 5
_as_members = msgspec.structs.asdict


class TypedRows:
    """Reads rows with the names of one that went the general way.

    Parameters
    ----------
    names
        The names of that row, as they came.
    plan
        What becomes of them when none is null.
    float_hook
        Makes numbers with a fraction or exponent ready to be written.
    """

    def __init__(self, names: tuple[str, ...], plan: RowPlan, float_hook: Callable[[str], Any]) -> None:
        field_of = dict(plan.moves)
        attributes: list[tuple[str, Any]] = []
        source_names: dict[str, str] = {}
        self._extras: list[tuple[str, str]] = []
        for position, name in enumerate(names):
            if name in plan.extras:
                attribute = f"extra_{position}"
                self._extras.append((attribute, name))
                attributes.append((attribute, Any))
            else:
                attribute = field_of.get(name, name)
                attributes.append((attribute, _type_of(attribute, name, names, has_extras=bool(plan.extras))))
            source_names[attribute] = name
        row_type = msgspec.defstruct("Row", attributes, rename=source_names, forbid_unknown_fields=True, gc=False)
        self._decode = msgspec.json.Decoder(row_type, float_hook=float_hook).decode
        self._plan = plan
        self._source_names = source_names
        self._shape = Shape()
        self._lessons = _LESSONS_MAX
        self.shaped_rows: ShapedRows | None = None
        """Reads and writes rows like those that `read_all` has met so far, much faster."""
        self.origin = RowOrigin(plan.id_pointer, plan.names_added, plan.aliases)

    def read(self, number: int, line: bytes) -> ReadyRow | None:
        """Return a row in canonical text, ``None`` when it has to go the general way.

        Raises
        ------
        msgspec.MsgspecError, orjson.JSONEncodeError
            The row has to go the general way, too.
        """
        row = _as_members(self._decode(line))
        if self._extras and not self._gather_metadata([row]):
            return None
        return ReadyRow(number, write_prepared(row), row["id"], self.origin)

    def read_all(self, lines: Sequence[bytes]) -> tuple[list[str], list[bytes]] | None:
        """Return the ids and canonical texts of rows, ``None`` when they have to be read one by one.

        What `read` does, with one loop for each step, so that hardly any Python runs for a row.

        Raises
        ------
        msgspec.MsgspecError, orjson.JSONEncodeError
            The rows have to be read one by one, too.
        """
        rows = list(map(_as_members, map(self._decode, lines)))
        if self._lessons:
            self._learn_shape(rows)
        if self._extras and not self._gather_metadata(rows):
            return None
        texts = list(map(orjson.dumps, rows, repeat(None), repeat(SORTED)))
        return [row["id"] for row in rows], texts

    def _learn_shape(self, rows: list[dict[str, Any]]) -> None:
        self._lessons -= 1
        names = self._source_names
        try:
            for row in rows:
                self._shape.add({names[attribute]: value for attribute, value in row.items()})
            self.shaped_rows = ShapedRows(self._shape, self._plan, _Id)
        except ShapelessError:
            self._lessons = 0
            self.shaped_rows = None

    def _gather_metadata(self, rows: list[dict[str, Any]]) -> bool:
        extras = self._extras
        for row in rows:
            metadata = row.get("metadata")
            if metadata is None:
                metadata = row["metadata"] = {}
            size = len(metadata) + len(extras)
            for attribute, name in extras:
                metadata[name] = row.pop(attribute)
            if len(metadata) != size:
                return False
        return True


def make_typed_rows(names: tuple[str, ...], plan: RowPlan, float_hook: Callable[[str], Any]) -> TypedRows | None:
    """Return a reader for rows with these names, ``None`` when they need the general way."""
    return TypedRows(names, plan, float_hook) if plan.is_straight(names) else None


def _type_of(field: str, name: str, names: tuple[str, ...], *, has_extras: bool) -> Any:
    kind = _NOT_NULL.get(field, _NotNull)
    null_matters = (
        name != field
        or field in {"id", "input"}
        or (field == "output" and "input" not in names)
        or (field == "metadata" and has_extras)
        or any(alias in names for alias in ALIASES.get(field, ()))
    )
    return kind if null_matters else kind | None
