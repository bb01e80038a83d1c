"""A reader and writer made for rows of one shape: hardly any work is left that is done for each value.

Told the type of every value, the reader finds what is new in a row by itself and the writer knows the order of all
members beforehand. What is written here is what the general way would write; what is new goes that way.
"""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import orjson
from records.canonical_json import INTEGER_MAX, INTEGER_MIN, NotCanonicalError, canonical_float
from records.ecmascript_number import EXACT_INTEGER_MAX
from records.row_fields import RowPlan

from dataset_conversion.json_text import is_written_alike
from dataset_conversion.row_shapes import Member, NumberPlace, Shape, TypeMaker, define_object

_ENCODER = msgspec.json.Encoder()
# In a list of numbers: a fraction that is none, an exponent.
_UNUSUAL = (b".0,", b".0]", b"e")


class _Record(msgspec.Struct, gc=False):
    """The fields that straight rows may have, in canonical order."""

    context: Any
    id: Any
    input: Any
    metadata: Any
    output: Any
    reference: Any


_FIELDS = _Record.__struct_fields__


class ShapedRows:
    """Reads and writes rows of one shape.

    Parameters
    ----------
    shape
        Of the rows as their sender wrote them.
    plan
        What becomes of their members; `records.row_fields.RowPlan.is_straight` holds.
    id_type
        What an id has to be.

    Raises
    ------
    ShapelessError
        Such rows cannot be told to a reader.
    """

    def __init__(self, shape: Shape, plan: RowPlan, id_type: Any) -> None:
        maker = TypeMaker()
        source_names = {field: name for name, field in plan.moves}
        extras = [(name, f"extra_{position}") for position, name in enumerate(plan.extras)]
        members = [Member(name, extra, maker.make(shape.members[name], (extra,))) for name, extra in extras]
        later = [Member(name, extra, msgspec.UnsetType, is_required=False) for name, extra in extras]
        fields = [field for field in _FIELDS if source_names.get(field, field) in shape.members.keys() - plan.extras]
        for field in fields:
            name = source_names.get(field, field)
            below = shape.members[name]
            if field == "id":
                kind = id_type
            elif field == "metadata" and later:
                kind = maker.make_object(below, (field,), later)
            else:
                kind = maker.make(below, (field,))
            members.append(Member(name, field, kind))
        row_type = define_object(members, never=[field for field in _FIELDS if field not in fields])
        self._decode = msgspec.json.Decoder(row_type).decode
        self._is_record_as_read = not plan.moves and not plan.extras
        self._extras = [extra for _, extra in extras]
        self._metadata_type = None if "metadata" in fields or not extras else define_object(later)
        self._numbers = [_Numbers(place) for place in maker.number_places]

    def convert(self, lines: Sequence[bytes]) -> tuple[list[str], bytes]:
        r"""Return the ids of rows, and their canonical texts, each ended by ``\n``.

        Does not see names that occur twice in an object, nor NUL characters.

        Raises
        ------
        msgspec.MsgspecError, records.canonical_json.NotCanonicalError
            Something is new in one of them, or it cannot be written.
        """
        rows: list[Any] = list(map(self._decode, lines))
        for numbers in self._numbers:
            numbers.settle(rows)
        if not self._is_record_as_read:
            rows = [
                _Record(row.context, row.id, row.input, metadata, row.output, row.reference)
                for row, metadata in zip(rows, self._gather_metadata(rows), strict=True)
            ]
        return [row.id for row in rows], _ENCODER.encode_lines(rows)

    def _gather_metadata(self, rows: list[Any]) -> list[Any]:
        make = self._metadata_type
        gathered: list[Any] = [row.metadata if make is None else make() for row in rows]
        for extra in self._extras:
            for row, metadata in zip(rows, gathered, strict=True):
                setattr(metadata, extra, getattr(row, extra))
        return gathered


class _Numbers:
    """The numbers at one place of each row."""

    def __init__(self, place: NumberPlace) -> None:
        *parents, self._attribute = place.path
        self._is_always = place.is_always
        self._in_lists = place.in_lists
        self._read = attrgetter(".".join(place.path))
        self._read_parent = attrgetter(".".join(parents)) if parents else None

    def settle(self, rows: list[Any]) -> None:
        """Make rows ready to be written canonically.

        Raises
        ------
        records.canonical_json.NotCanonicalError
            A number needs the general way.
        """
        values: list[Any] = list(map(self._read, rows))
        if self._in_lists:
            lists = values if self._is_always else [value for value in values if type(value) is list]
            if _have_unusual(list(chain.from_iterable(lists))):
                for numbers in lists:
                    numbers[:] = map(_as_written, numbers)
            return
        if not _have_unusual(values if self._is_always else [one for one in values if type(one) in {int, float}]):
            return
        read_parent = self._read_parent
        for row, value in zip(rows, values, strict=True):
            written = _as_written(value)
            if written is not value:
                setattr(row if read_parent is None else read_parent(row), self._attribute, written)


def _have_unusual(numbers: list[Any]) -> bool:
    if int in set(map(type, numbers)) and not (min(numbers) >= INTEGER_MIN and max(numbers) <= INTEGER_MAX):
        raise NotCanonicalError("integer_range", "a number may be an integer beyond 64 bits")
    text = _ENCODER.encode(numbers)
    return any(map(text.__contains__, _UNUSUAL))


def _as_written(value: Any) -> Any:
    """Return what makes the encoder write a value as RFC 8785 does."""
    if type(value) is not float:
        return value
    if value.is_integer() and -EXACT_INTEGER_MAX <= value <= EXACT_INTEGER_MAX:
        return int(value)
    if is_written_alike(value):
        return value
    return msgspec.Raw(orjson.dumps(canonical_float(value)))
