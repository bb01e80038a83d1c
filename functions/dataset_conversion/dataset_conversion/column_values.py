"""From Arrow arrays to values that canonical JSON can write, one converter for each type.

What JSON cannot say exactly becomes text: decimals their digits, times RFC 3339, durations ISO 8601, binaries base64
(RFC 4648), UUIDs RFC 9562. Numbers stay numbers, in the shortest form that their width needs. Nulls inside structs are
dropped: Parquet cannot tell null from absent.
"""

import base64
import re
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any, Literal, override

import pyarrow as pa
import pyarrow.types as pt
from records.canonical_json import NotCanonicalError, canonical_float, write_prepared
from records.json_pointer import read_pointer, write_pointer
from records.row_errors import Reason

from dataset_conversion.column_texts import (
    Array,
    Text,
    join,
    offsets_from_zero,
    pc,
    read_content,
    write_floats,
    write_lists,
    write_members,
    write_strings,
    write_values,
)
from dataset_conversion.json_text import JsonTextReader
from dataset_conversion.parquet_refusal import ParquetRefusedError, corrupt
from dataset_conversion.parquet_schema import Leaf

# pyarrow has no types of its own.
type DataType = Any

_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# RFC 3339 has years of four digits: 0001-01-01 to 9999-12-31, in days from 1970-01-01.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_SECONDS = 86_400
_REPLACEMENT = "\ufffd"


class ValueProblemError(Exception):
    """A value cannot be converted.

    Parameters
    ----------
    reason, message
        See `records.row_errors.RowError`.
    path
        Where it is, below the column.
    """

    def __init__(self, reason: Reason, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.path = path

    def below(self, step: str | int) -> "ValueProblemError":
        """Return the same problem seen from one level up."""
        return ValueProblemError(self.reason, self.message, (step, *self.path))


class Converter(ABC):
    """Converts the arrays of one column, or of a part of it."""

    @abstractmethod
    def values(self, array: Array) -> list[Any]:
        """Return the values of `array`, ``None`` for nulls.

        Raises
        ------
        ValueProblemError
            One of them cannot be converted. Its path is exact in an array of one row.
        """

    def is_plain(self, array: Array) -> bool:  # noqa: ARG002 - most types are never plain
        """Tell whether Arrow's own conversion to Python gives the same values."""
        return False

    def write(self, array: Array) -> Text:
        """Return the values of `array` as canonical JSON, null for nulls.

        Raises
        ------
        ValueProblemError
            See `values`.
        orjson.JSONEncodeError
            A value has no JSON text.
        """
        return [write_values(None if value is None else write_prepared(value) for value in self.values(array))]

    def least_bytes(self, array: Array) -> int:
        """Return a number of bytes that the values take at least in canonical JSON."""
        return len(array) - array.null_count


class _Plain(Converter):
    """Integers, booleans, and columns that hold nothing but nulls."""

    @override
    def values(self, array: Array) -> list[Any]:
        return array.to_pylist()

    @override
    def is_plain(self, array: Array) -> bool:
        return True

    @override
    def write(self, array: Array) -> Text:
        return [array.cast(pa.string())]


class _Text(Converter):
    def __init__(self, nul: Literal["refuse", "replace"], on_replaced: Callable[[int], None]) -> None:
        self._nul = nul
        self._on_replaced = on_replaced

    @override
    def values(self, array: Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        if not _has_nul(array):
            return values
        at_fault = sum(value is not None and "\x00" in value for value in values)
        if at_fault and self._nul == "refuse":
            message = "a NUL character, which databases cannot store: remove it, or publish with nul=replace"
            raise ValueProblemError("nul", message)
        self._on_replaced(at_fault)
        return [value and value.replace("\x00", _REPLACEMENT) for value in values]

    @override
    def is_plain(self, array: Array) -> bool:
        return not _has_nul(array)

    @override
    def write(self, array: Array) -> Text:
        text = write_strings(array)
        if text is None:
            raise ValueProblemError("nul", "a NUL character")
        return text

    @override
    def least_bytes(self, array: Array) -> int:
        return pc.sum(pc.binary_length(array)).as_py() or 0


class _Cast(Converter):
    """Another Arrow type first, then the converter for that."""

    def __init__(self, cast: Callable[[Array], Array], converter: Converter) -> None:
        self._cast = cast
        self._converter = converter

    @override
    def values(self, array: Array) -> list[Any]:
        return self._converter.values(self._cast(array))

    @override
    def write(self, array: Array) -> Text:
        return self._converter.write(self._cast(array))

    @override
    def least_bytes(self, array: Array) -> int:
        return self._converter.least_bytes(self._cast(array))


class _JsonText(Converter):
    def __init__(self, reader: JsonTextReader, depth: int) -> None:
        self._reader = reader
        self._depth = depth

    @override
    def values(self, array: Array) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return [None if value is None else self._read(value) for value in values]

    @override
    def write(self, array: Array) -> Text:
        # What is replaced is counted where values are read.
        if rb"\u0000" in read_content(array.cast(pa.string())):
            raise ValueProblemError("nul", "a NUL character")
        return super().write(array)

    def _read(self, text: str) -> Any:
        reading = self._reader.read(text, self._depth)
        for problem in reading.problems:
            message = f"in a column of JSON texts: {problem.message}"
            raise ValueProblemError(problem.reason, message, read_pointer(problem.field or ""))
        return reading.value


def _write_floats(values: list[float | None]) -> list[Any]:
    try:
        return [None if value is None else canonical_float(value) for value in values]
    except NotCanonicalError:
        message = "NaN or an infinite number, which JSON does not have: write null instead"
        raise ValueProblemError("not_finite", message) from None


class _Half(Converter):
    """Numbers of half precision, widened."""

    @override
    def values(self, array: Array) -> list[Any]:
        return _write_floats([value if value is None else shortest_half(value) for value in array.to_pylist()])


class _Float(Converter):
    @override
    def values(self, array: Array) -> list[Any]:
        return array.to_pylist() if self.is_plain(array) else _write_floats(array.to_pylist())

    @override
    def is_plain(self, array: Array) -> bool:
        if len(array) == array.null_count:
            return True
        # NaN is not equal to itself, so it has to be looked for.
        is_plain = pc.and_(pc.is_finite(array), pc.not_equal(pc.floor(array), array))
        return bool(pc.all(is_plain).as_py()) and pc.min(pc.abs(array)).as_py() >= 1e-5

    @override
    def write(self, array: Array) -> Text:
        texts = write_floats(array)
        return super().write(array) if texts is None else [texts]


class _ByValue(Converter):
    """One Python function for each value that is not null."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    @override
    def values(self, array: Array) -> list[Any]:
        convert = self._convert
        return [None if value is None else convert(value) for value in array.to_pylist()]


class _Time(Converter):
    """Dates, times and timestamps, whose stored integers have to lie between bounds.

    Parameters
    ----------
    integer
        Arrow type of the stored integers.
    least, most
        The bounds, inclusive; in the unit of the column.
    write
        Turns an array into texts.
    suffix
        What follows each text.
    """

    def __init__(
        self, integer: DataType, least: int, most: int, write: Callable[[Array], Array], suffix: str = ""
    ) -> None:
        self._suffix = suffix
        self._integer = integer
        self._least = least
        self._most = most
        self._write = write

    @override
    def values(self, array: Array) -> list[Any]:
        suffix = self._suffix
        return [text and text + suffix for text in self._write_checked(array).to_pylist()]

    @override
    def write(self, array: Array) -> Text:
        return ['"', self._write_checked(array), f'{self._suffix}"']

    def _write_checked(self, array: Array) -> Array:
        bounds = pc.min_max(array.cast(self._integer)).as_py()
        if bounds["min"] is not None and not (self._least <= bounds["min"] and bounds["max"] <= self._most):
            message = "a date or time outside of the years 0001 to 9999, which RFC 3339 cannot write"
            raise ValueProblemError("timestamp_range", message)
        return self._write(array)


class StructConverter(Converter):
    """Objects, without the members that are null."""

    def __init__(self, members: list[tuple[str, Converter]]) -> None:
        self._names = [name for name, _ in members]
        self._members = members

    def _parts(self, array: Array) -> list[Array]:
        # What lies below a null struct is not data.
        return array.flatten() if array.null_count else [array.field(position) for position in range(len(self._names))]

    @override
    def values(self, array: Array) -> list[Any]:
        columns: list[list[Any]] = []
        for (name, converter), part in zip(self._members, self._parts(array), strict=True):
            try:
                columns.append(converter.values(part))
            except ValueProblemError as problem:
                raise problem.below(name) from None
        names = self._names
        rows: list[Any] = [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]
        return _with_nulls(rows, array)

    @override
    def write(self, array: Array) -> Text:
        return _null_as(array, write_members(self.write_parts(array)))

    def write_parts(self, array: Array) -> list[tuple[str, Text]]:
        """Return the names and texts of the members.

        Raises
        ------
        ValueProblemError, orjson.JSONEncodeError
            See `write`.
        """
        parts = zip(self._members, self._parts(array), strict=True)
        return [(name, converter.write(part)) for (name, converter), part in parts]

    @override
    def is_plain(self, array: Array) -> bool:
        if array.null_count:
            return False
        parts = self._parts(array)
        return all(
            not part.null_count and converter.is_plain(part)
            for (_, converter), part in zip(self._members, parts, strict=True)
        )

    @override
    def least_bytes(self, array: Array) -> int:
        parts = zip(self._members, self._parts(array), strict=True)
        return sum(converter.least_bytes(part) for (_, converter), part in parts)


class _List(Converter):
    def __init__(self, items: Converter) -> None:
        self._items = items

    @override
    def values(self, array: Array) -> list[Any]:
        offsets: list[int] = array.offsets.to_pylist()
        items = array.values.slice(offsets[0], offsets[-1] - offsets[0])
        try:
            flat = self._items.values(items)
        except ValueProblemError as problem:
            raise _find_item(self._items, items) if len(array) == 1 else problem from None
        return _cut(flat, offsets, array)

    @override
    def write(self, array: Array) -> Text:
        offsets, items = offsets_from_zero(array)
        return _null_as(array, write_lists(offsets, self._items.write(items)))

    @override
    def is_plain(self, array: Array) -> bool:
        return self._items.is_plain(array.flatten())

    @override
    def least_bytes(self, array: Array) -> int:
        items = array.flatten()
        return len(items) + self._items.least_bytes(items)


class _Map(Converter):
    """An object where the keys are texts, and unique; a list of pairs everywhere else."""

    def __init__(self, keys: Converter, items: Converter, *, has_text_keys: bool) -> None:
        self._keys = keys
        self._items = items
        self._has_text_keys = has_text_keys

    @override
    def values(self, array: Array) -> list[Any]:
        offsets: list[int] = array.offsets.to_pylist()
        start, size = offsets[0], offsets[-1] - offsets[0]
        key_array, item_array = array.keys.slice(start, size), array.items.slice(start, size)
        keys = self._keys.values(key_array)
        try:
            items = self._items.values(item_array)
        except ValueProblemError as problem:
            raise self._find_entry(keys, item_array) if len(array) == 1 else problem from None
        pairs = _cut([[key, item] for key, item in zip(keys, items, strict=True)], offsets, array)
        return [self._as_object(entries) for entries in pairs] if self._has_text_keys else pairs

    def _find_entry(self, keys: list[Any], items: Array) -> ValueProblemError:
        problem = _find_item(self._items, items)
        position, *rest = problem.path
        is_object = self._has_text_keys and len(set(keys)) == len(keys)
        path = (keys[int(position)],) if is_object else (position, 1)
        return ValueProblemError(problem.reason, problem.message, (*path, *rest))

    @staticmethod
    def _as_object(pairs: list[list[Any]] | None) -> Any:
        if pairs is None:
            return None
        members = dict(pairs)
        return members if len(members) == len(pairs) else pairs

    @override
    def least_bytes(self, array: Array) -> int:
        offsets = array.offsets
        start, end = offsets[0].as_py(), offsets[len(array)].as_py()
        keys, items = array.keys.slice(start, end - start), array.items.slice(start, end - start)
        return len(keys) + self._keys.least_bytes(keys) + self._items.least_bytes(items)


def _cut(flat: list[Any], offsets: list[int], array: Array) -> list[Any]:
    start = offsets[0]
    return _with_nulls([flat[a - start : b - start] for a, b in pairwise(offsets)], array)


def _with_nulls(values: list[Any], array: Array) -> list[Any]:
    if not array.null_count:
        return values
    return [value if is_valid else None for value, is_valid in zip(values, array.is_valid().to_pylist(), strict=True)]


def _null_as(array: Array, text: Text) -> Text:
    """Return a text that is null where a value is."""
    return text if not array.null_count else [pc.if_else(array.is_valid(), join(text), None)]


def _find_item(converter: Converter, items: Array) -> ValueProblemError:
    for position in range(len(items)):
        try:
            converter.values(items.slice(position, 1))
        except ValueProblemError as problem:
            return problem.below(position)
    raise AssertionError("the items of a list were refused together and accepted one by one")


def find_invalid_text(array: Array) -> tuple[str | int, ...] | None:
    """Return where in an array of one value a text is not UTF-8: names and positions from the value down.

    ``None`` when all are: Arrow's own validation of a slice looks at what lies around it, too.
    """
    data_type = array.type
    if pt.is_dictionary(data_type):
        return find_invalid_text(array.dictionary_decode())
    if pt.is_struct(data_type):
        return _find_first((data_type.field(at).name, part) for at, part in enumerate(array.flatten()))
    if pt.is_map(data_type):
        start, end = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        keys, items = array.keys.slice(start, end - start), array.items.slice(start, end - start)
        # What is wrong with a key is found before the key is known.
        if find_invalid_text(keys) is not None:
            return ()
        return _find_first((key, items.slice(at, 1)) for at, key in enumerate(keys.to_pylist()))
    if pt.is_nested(data_type):
        items = array.flatten()
        return _find_first((at, items.slice(at, 1)) for at in range(len(items)))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return ()
    return None


def _find_first(parts: Iterable[tuple[str | int, Array]]) -> tuple[str | int, ...] | None:
    for step, part in parts:
        path = find_invalid_text(part)
        if path is not None:
            return (step, *path)
    return None


def _has_nul(array: Array) -> bool:
    buffers = array.buffers()
    return len(buffers) > 2 and any(buffer is not None and re.search(b"\x00", buffer) for buffer in buffers[2:])


# --------------------------------------------------------------------------------------------- how values are written
def _write_decimal(digits: str) -> str:
    # Arrow writes an exponent where there are many zeros.
    return f"{Decimal(digits):f}" if "E" in digits else digits


def write_duration(count: int, unit: str) -> str:
    """Return an ISO 8601 duration in seconds: ``PT0.005S``; a negative one begins with a minus sign."""
    seconds, nanoseconds = divmod(abs(count) * _NANOSECONDS[unit], 10**9)
    fraction = f".{nanoseconds:09}".rstrip("0").rstrip(".")
    return f"{'-' if count < 0 else ''}PT{seconds}{fraction}S"


@cache
def shortest_half(number: float) -> float:
    """Return the double whose shortest text is the shortest that reads back as this half-precision number."""
    if number == 0 or number - number != 0:
        return number
    bits = struct.pack("<e", number)
    # Five digits tell any two of IEEE 754's binary16 apart.
    candidates = (float(f"{number:.{digits}g}") for digits in range(1, 6))
    return next((candidate for candidate in candidates if _half_bits(candidate) == bits), number)


def _half_bits(number: float) -> bytes:
    try:
        return struct.pack("<e", number)
    except OverflowError:
        return b""


def _write_base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _write_uuid(value: bytes) -> str:
    return str(uuid.UUID(bytes=value))


def _without_trailing_zeros(texts: Array, unit: str) -> Array:
    return texts if unit == "s" else pc.replace_substring_regex(texts, r"\.?0+$", "")


def _write_timestamps(unit: str) -> Callable[[Array], Array]:
    def write(array: Array) -> Array:
        # Stored values are instants in UTC; the zone of the type is for display only.
        texts = array.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
        return pc.replace_substring(_without_trailing_zeros(texts, unit), " ", "T", max_replacements=1)

    return write


def _write_times(unit: str) -> Callable[[Array], Array]:
    return lambda array: _without_trailing_zeros(array.cast(pa.string()), unit)


# --------------------------------------------------------------------------------------------- which converter for what
class ConverterFactory:
    """Chooses converters for the columns of one file.

    Parameters
    ----------
    leaves
        The columns as the footer has them, in its order.
    nul
        What to do with NUL characters in texts.
    json_reader
        Reads texts of Parquet's logical type JSON.
    depth
        Nesting that a row may have; its outer object counts 1.
    """

    def __init__(
        self, leaves: list[Leaf], nul: Literal["refuse", "replace"], json_reader: JsonTextReader, depth: int
    ) -> None:
        self._depth = depth
        self._leaves: Iterator[Leaf] = iter(leaves)
        self._json_reader = json_reader
        self.replaced_nuls = 0
        self._text = _Text(nul, self._count_replaced)

    def _count_replaced(self, count: int) -> None:
        self.replaced_nuls += count

    def make(self, path: tuple[str, ...], data_type: DataType, level: int = 1) -> Converter:
        """Return the converter for the next column.

        Parameters
        ----------
        path
            Name of the column; for a member of a struct below it the names down to it.
        data_type
            Of the column or member.
        level
            Depth of the object that it is a member of: 1 for the row.

        Raises
        ------
        ParquetRefusedError
            ``unsupported_type``: JSON has nothing for it; ``depth``: it is nested too deep.
        """
        if "\x00" in path[-1]:
            message = "the name of a column has a NUL character, which databases cannot store: rename it"
            raise ParquetRefusedError("nul", message, write_pointer(path))
        return self._make(data_type, path, level)

    def check_exhausted(self) -> None:
        """Check that every column of the footer got its converter.

        Raises
        ------
        ParquetRefusedError
            The decoder sees other columns than the footer has.
        """
        if next(self._leaves, None) is not None:
            raise corrupt("its two schemas disagree")

    def _make(self, data_type: DataType, path: tuple[str, ...], level: int) -> Converter:
        if isinstance(data_type, pa.BaseExtensionType):
            return self._make_extension(data_type, path, level)
        if pt.is_dictionary(data_type):
            return _Cast(lambda array: array.dictionary_decode(), self._make(data_type.value_type, path, level))
        if pt.is_nested(data_type):
            return self._make_nested(data_type, path, level + 1)
        leaf = next(self._leaves, None)
        if leaf is None:
            raise corrupt("its two schemas disagree")
        return self._make_leaf(data_type, leaf, level)

    def _make_nested(self, data_type: DataType, path: tuple[str, ...], level: int) -> Converter:
        if level > self._depth:
            message = f"columns are nested more than {self._depth} deep: flatten them"
            raise ParquetRefusedError("depth", message, write_pointer(path[:1]))
        if pt.is_struct(data_type):
            return StructConverter(
                [(field.name, self.make((*path, field.name), field.type, level)) for field in data_type]
            )
        if pt.is_map(data_type):
            # A level more than an object takes: keys that repeat make it a list of pairs.
            keys = self._make(data_type.key_type, path, level + 1)
            items = self._make(data_type.item_type, path, level + 1)
            return _Map(keys, items, has_text_keys=_is_text(data_type.key_type))
        if pt.is_list(data_type) or pt.is_large_list(data_type):
            return _List(self._make(data_type.value_type, path, level))
        if pt.is_fixed_size_list(data_type) or pt.is_list_view(data_type) or pt.is_large_list_view(data_type):
            target = pa.large_list(data_type.value_type)
            return _Cast(lambda array: array.cast(target), _List(self._make(data_type.value_type, path, level)))
        message = f"the type {data_type} has no form in JSON: convert the column to another"
        raise ParquetRefusedError("unsupported_type", message, write_pointer(path[:1]))

    def _make_extension(self, data_type: Any, path: tuple[str, ...], level: int) -> Converter:
        return _Cast(lambda array: array.storage, self._make(data_type.storage_type, path, level))

    def _make_json_text(self, level: int) -> Converter:
        return _JsonText(self._json_reader, self._depth - level)

    def _make_leaf(self, data_type: DataType, leaf: Leaf, level: int) -> Converter:
        if _is_text(data_type):
            if leaf.is_json:
                return self._make_json_text(level)
            return self._text if not pt.is_string_view(data_type) else _Cast(_to_string, self._text)
        if pt.is_integer(data_type) or pt.is_boolean(data_type) or pt.is_null(data_type):
            return _Plain()
        if pt.is_float64(data_type):
            return _Float()
        if pt.is_float32(data_type):
            # Arrow writes the shortest text for the width; read as a double it is the number to publish.
            return _Cast(lambda array: array.cast(pa.string()).cast(pa.float64()), _Float())
        if pt.is_float16(data_type):
            return _Cast(lambda array: array.cast(pa.float32()), _Half())
        if pt.is_decimal(data_type):
            return _Cast(_to_string, _ByValue(_write_decimal))
        if _is_binary(data_type) and not leaf.is_interval:
            return self._make_binary(data_type, leaf, level)
        return _make_temporal(data_type, leaf)

    def _make_binary(self, data_type: DataType, leaf: Leaf, level: int) -> Converter:
        if leaf.is_enum or leaf.is_json:
            text = self._make_json_text(level) if leaf.is_json else self._text
            return _Cast(_to_checked_text, text)
        is_uuid = leaf.is_uuid and pt.is_fixed_size_binary(data_type) and data_type.byte_width == 16
        return _ByValue(_write_uuid if is_uuid else _write_base64)


def _make_temporal(data_type: DataType, leaf: Leaf) -> Converter:
    if pt.is_timestamp(data_type):
        per_second = 10**9 // _NANOSECONDS[data_type.unit]
        least = _FIRST_DAY * _DAY_SECONDS * per_second
        most = (_LAST_DAY + 1) * _DAY_SECONDS * per_second - 1
        return _Time(pa.int64(), least, most, _write_timestamps(data_type.unit), "Z")
    if pt.is_date32(data_type):
        return _Time(pa.int32(), _FIRST_DAY, _LAST_DAY, _to_string)
    if pt.is_date64(data_type):
        per_day = _DAY_SECONDS * 1000
        return _Time(pa.int64(), _FIRST_DAY * per_day, (_LAST_DAY + 1) * per_day - 1, _to_string)
    if pt.is_time(data_type):
        per_day = _DAY_SECONDS * 10**9 // _NANOSECONDS[data_type.unit]
        integer = pa.int32() if pt.is_time32(data_type) else pa.int64()
        return _Time(integer, 0, per_day - 1, _write_times(data_type.unit))
    if pt.is_duration(data_type):
        unit = data_type.unit
        return _Cast(lambda array: array.cast(pa.int64()), _ByValue(lambda count: write_duration(count, unit)))
    message = f"the type {data_type} has no form in JSON: convert the column to text or a number"
    raise ParquetRefusedError("unsupported_type", message, leaf.pointer)


def _is_text(data_type: DataType) -> bool:
    return pt.is_string(data_type) or pt.is_large_string(data_type) or pt.is_string_view(data_type)


def _is_binary(data_type: DataType) -> bool:
    return (
        pt.is_binary(data_type)
        or pt.is_large_binary(data_type)
        or pt.is_binary_view(data_type)
        or pt.is_fixed_size_binary(data_type)
    )


def _to_string(array: Array) -> Array:
    return array.cast(pa.string())


def _to_checked_text(array: Array) -> Array:
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        raise ValueProblemError("not_utf8", "a text is not UTF-8") from None
