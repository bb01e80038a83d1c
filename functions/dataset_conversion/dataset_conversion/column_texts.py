"""Canonical JSON of whole columns, put together by Arrow: no Python object is made for a value.

A text is a list of parts that follow one another, each a constant or an Arrow array of strings with a part for each
row. Constants of neighbours become one, and a struct in a struct is copied once.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute

# pyarrow has no types of its own; its arrays are Any here, and its functions are made while it is imported.
type Array = Any
type Text = list[str | Array]
pc: Any = pyarrow.compute

_SCAN = msgspec.json.Decoder(msgspec.Raw).decode
# RFC 8785; backslashes first, which the others bring along.
_OWN_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\b": r"\b", "\f": r"\f"}
_ESCAPES = _OWN_ESCAPES | {chr(code): f"\\u{code:04x}" for code in range(1, 0x20) if chr(code) not in _OWN_ESCAPES}
# Below it, Arrow writes doubles as RFC 8785 does, but for minus zero.
_ARROW_WRITES_BELOW = 1e10


def join(text: Text) -> Array:
    """Return the array of a text; null where one of its parts is."""
    parts: Text = []
    for part in text:
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    if len(parts) == 1 and not isinstance(parts[0], str):
        return parts[0]
    return pc.binary_join_element_wise(*map(_as_argument, parts), _constant(""))


def count_nulls(text: Text) -> int:
    """Return how many rows have no text."""
    # Where several parts follow one another, none of them is null.
    return max((part.null_count for part in text if not isinstance(part, str)), default=0)


def write_strings(array: Array) -> Text | None:
    """Return the JSON of strings; ``None`` when one has a NUL character."""
    strings = array.cast(pa.string())
    content = read_content(strings)
    if b"\\" in content or not _is_inside_quotes(content):
        if b"\0" in content:
            return None
        for character, escape in _ESCAPES.items():
            if character.encode() in content:
                strings = pc.replace_substring(strings, character, escape)
    return ['"', strings, '"']


def write_floats(array: Array) -> Array | None:
    """Return the JSON of doubles; ``None`` when they have to be written one by one."""
    bounds = pc.min_max(array).as_py()
    if bounds["min"] is None:
        return array.cast(pa.string())
    is_finite = pc.all(pc.is_finite(array)).as_py()
    if not (is_finite and bounds["min"] > -_ARROW_WRITES_BELOW and bounds["max"] < _ARROW_WRITES_BELOW):
        return None
    texts = array.cast(pa.string())
    return None if pc.any(pc.equal(texts, _constant("-0"))).as_py() else texts


def write_values(values: Iterable[bytes | None]) -> Array:
    """Return an array of JSON texts that were written one by one."""
    return pa.array(list(values), pa.binary()).view(pa.string())


def write_members(members: Sequence[tuple[str, Text]]) -> Text:
    """Return the JSON of objects; where a member is null, the object lacks it.

    Parameters
    ----------
    members
        Names and texts; no name twice.
    """
    ordered = sorted(members, key=lambda member: member[0].encode("utf-16-be"))
    named = [(f"{orjson.dumps(name).decode()}:", text) for name, text in ordered]
    if not any(count_nulls(text) for _, text in named):
        parts: Text = ["{"]
        for position, (name, text) in enumerate(named):
            parts += ["," * (position > 0) + name, *text]
        return [*parts, "}"]
    arrays = [join([name, *text]) for name, text in named]
    return ["{", pc.binary_join_element_wise(*arrays, _constant(","), null_handling="skip"), "}"]


def write_lists(offsets: Array, items: Text) -> Text:
    """Return the JSON of lists.

    Parameters
    ----------
    offsets
        Where each list begins among the items, and where the last one ends; the first is 0.
    items
        Texts of the items of all lists; null becomes ``null``.
    """
    starts = offsets.cast(pa.int32())
    if not count_nulls(items) and not pc.any(pc.equal(starts[1:], starts[:-1])).as_py():
        before = items[0] if isinstance(items[0], str) else ""
        after = items[-1] if isinstance(items[-1], str) else ""
        array = join(items[bool(before) : len(items) - bool(after)])
    else:
        # What stands around every item must not stand where there is none.
        before = after = ""
        array = join(items).fill_null("null")
    lists = pa.ListArray.from_arrays(starts, array)
    return [f"[{before}", pc.binary_join(lists, _constant(f"{after},{before}")), f"{after}]"]


def offsets_from_zero(array: Array) -> tuple[Array, Array]:
    """Return offsets that begin with 0, and the items that they refer to."""
    offsets = array.offsets
    start, end = offsets[0].as_py(), offsets[len(offsets) - 1].as_py()
    return (pc.subtract(offsets, offsets[0]) if start else offsets), array.values.slice(start, end - start)


def read_content(strings: Array) -> bytes:
    """Return the characters of all strings, one after the other."""
    _, offsets, content = strings.buffers()
    if content is None or not len(strings):
        return b""
    positions = memoryview(offsets).cast("i")
    return bytes(memoryview(content)[positions[strings.offset] : positions[strings.offset + len(strings)]])


def _is_inside_quotes(content: bytes) -> bool:
    """Tell whether a JSON text of this content ends where the content does: it has no quote, no control character."""
    try:
        _SCAN(b'"%b"' % content)
    except msgspec.DecodeError:
        return False
    return True


def _as_argument(part: str | Array) -> Array:
    return _constant(part) if isinstance(part, str) else part


@cache
def _constant(text: str) -> Any:
    return pa.scalar(text, pa.string())
