"""The schema in a Parquet footer: a tree, written as a flat list, whose leaves are the columns.

Source of the rules: parquet.thrift of the Apache Parquet format, structs SchemaElement and LogicalType.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, cast

from records.json_pointer import write_pointer
from records.limits import Limits

from dataset_conversion.compact_protocol import Fields
from dataset_conversion.parquet_refusal import ParquetRefusedError, corrupt


class PhysicalType(IntEnum):
    """Parquet's enum Type."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    INT96 = 3
    FLOAT = 4
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


_REQUIRED, _OPTIONAL, _REPEATED = range(3)
_CONVERTED_ENUM, _CONVERTED_JSON, _CONVERTED_INTERVAL = 4, 19, 21
_LOGICAL_ENUM, _LOGICAL_JSON, _LOGICAL_UUID, _LOGICAL_VARIANT = 4, 12, 14, 16


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that holds values.

    Parameters
    ----------
    path
        Names from the root's children down.
    physical_type
        How its values are stored.
    width
        Bytes of a value of fixed length as stored plainly; of others the least there can be (0 for booleans, which
        take bits).
    definition_max, repetition_max
        Levels: how often on its path something may be absent, and may be repeated.
    is_json, is_uuid, is_enum, is_interval
        Its logical type, where it decides how a value is written.
    """

    path: tuple[str, ...]
    physical_type: PhysicalType
    width: int
    definition_max: int
    repetition_max: int
    is_json: bool
    is_uuid: bool
    is_enum: bool
    is_interval: bool

    @property
    def pointer(self) -> str:
        """The path as a JSON Pointer, for messages."""
        return write_pointer(self.path[:1])


@dataclass(slots=True)
class _Group:
    children_left: int
    path: tuple[str, ...]
    definition: int
    repetition: int


_WIDTHS = {
    PhysicalType.BOOLEAN: 0,
    PhysicalType.INT32: 4,
    PhysicalType.INT64: 8,
    PhysicalType.INT96: 12,
    PhysicalType.FLOAT: 4,
    PhysicalType.DOUBLE: 8,
    PhysicalType.BYTE_ARRAY: 4,
}


def read_leaves(elements: list[Any], limits: Limits) -> list[Leaf]:
    """Return the leaves of a schema in their order.

    Parameters
    ----------
    elements
        The list of SchemaElement in the footer.
    limits
        Bounds on columns and nesting.

    Raises
    ------
    ParquetRefusedError
        The list is no tree, has a name twice, has no columns, or passes a limit.
    """
    if not elements or _integer(elements[0], 5) <= 0:
        if len(elements) <= 1 and (not elements or _integer(elements[0], 5) == 0):
            raise ParquetRefusedError("empty", "the file has no columns")
        raise corrupt("its schema has no root")
    names: set[tuple[str, ...]] = set()
    leaves: list[Leaf] = []
    open_groups = [_Group(_integer(elements[0], 5), (), 0, 0)]
    for element in elements[1:]:
        while open_groups and not open_groups[-1].children_left:
            open_groups.pop()
        if not open_groups:
            raise corrupt("its schema has elements outside of the tree")
        parent = open_groups[-1]
        parent.children_left -= 1
        path = (*parent.path, _read_name(element))
        if path in names:
            message = f"the column {'.'.join(path)!r} occurs twice: rename one of them"
            raise ParquetRefusedError("duplicate_column", message, write_pointer(path))
        names.add(path)
        repetition = element.get(3)
        # A tuple, here and below: a malformed value may be a struct, which no set takes.
        if repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise corrupt("a schema element has no repetition type")
        definition_max = parent.definition + (repetition != _REQUIRED)
        repetition_max = parent.repetition + (repetition == _REPEATED)
        children = element.get(5)
        if element.get(1) is None and children is not None:
            if _logical(element) == _LOGICAL_VARIANT:
                message = "a column of type VARIANT: convert it to JSON text, a struct or a map"
                raise ParquetRefusedError("unsupported_type", message, write_pointer(path[:1]))
            if type(children) is not int or not 0 < children <= len(elements):
                raise corrupt("a schema group has an impossible number of children")
            # Lists take two groups for each level of theirs: whoever makes converters counts exactly.
            if len(open_groups) > 2 * limits.depth:
                message = f"columns are nested more than {limits.depth} deep: flatten them"
                raise ParquetRefusedError("depth", message, write_pointer(path[:1]))
            open_groups.append(_Group(children, path, definition_max, repetition_max))
            continue
        if children:
            raise corrupt("a schema element is a group and a column at once")
        leaves.append(_read_leaf(element, path, definition_max, repetition_max, limits))
        if len(leaves) > limits.columns:
            message = f"the file has more than {limits.columns} columns, the limit (fields of structs are counted each)"
            raise ParquetRefusedError("too_large", message)
    if any(group.children_left for group in open_groups):
        raise corrupt("its schema lacks elements")
    return leaves


def _read_name(element: Fields) -> str:
    name = element.get(4)
    if type(name) is not bytes:
        raise corrupt("a schema element has no name")
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ParquetRefusedError("not_utf8", "the name of a column is not UTF-8: rename it") from None


def _read_leaf(
    element: Fields, path: tuple[str, ...], definition_max: int, repetition_max: int, limits: Limits
) -> Leaf:
    try:
        physical_type = PhysicalType(element.get(1, -1))
    except ValueError:
        raise corrupt("a column has no physical type", write_pointer(path[:1])) from None
    width = _WIDTHS.get(physical_type, 0)
    if physical_type is PhysicalType.FIXED_LEN_BYTE_ARRAY:
        width = element.get(2, 0)
        if type(width) is not int or not 0 < width <= limits.page_bytes:
            raise corrupt(f"a column of fixed length has length {width}", write_pointer(path[:1]))
    logical, converted = _logical(element), element.get(6)
    return Leaf(
        path,
        physical_type,
        width,
        definition_max,
        repetition_max,
        is_json=logical == _LOGICAL_JSON or (logical is None and converted == _CONVERTED_JSON),
        is_uuid=logical == _LOGICAL_UUID,
        is_enum=logical == _LOGICAL_ENUM or (logical is None and converted == _CONVERTED_ENUM),
        is_interval=logical is None and converted == _CONVERTED_INTERVAL,
    )


def _logical(element: Fields) -> int | None:
    union = element.get(10)
    if type(union) is not dict or len(cast("Fields", union)) != 1:
        return None
    return next(iter(cast("Fields", union)))


def _integer(element: Fields, field_id: int) -> int:
    value = element.get(field_id, 0)
    if type(value) is not int:
        raise corrupt("a schema element has a field of the wrong type")
    return value
