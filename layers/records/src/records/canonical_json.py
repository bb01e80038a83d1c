"""Canonical JSON: RFC 8785 (JSON Canonicalization Scheme), with integers of 64 bits kept exact.

RFC 8785 knows only doubles, so it stops at integers of 2**53 - 1. Ids and counters go further: integers of 64 bits,
signed or unsigned, are written with all their digits. An integer beyond 64 bits is accepted only when it is the
RFC 8785 spelling of a double (10**21 written out, for instance), so that canonical text can be read and written again.
"""

from typing import Any, cast

import orjson

from records.ecmascript_number import EXACT_INTEGER_MAX, number_text

DEPTH_MAX = 254
"""Deepest nesting that can be written; the outermost list or object counts 1."""

INTEGER_MIN = -(2**63)
INTEGER_MAX = 2**64 - 1

# orjson writes an exponent here where ECMAScript writes zeros.
_SMALL_FROM, _SMALL_BELOW = 1e-6, 1e-5
# A double is 0 or has at least 1 and at most 309 digits before its point.
_DOUBLE_DIGITS_MAX = 310

SORTED = orjson.OPT_SORT_KEYS
_WRITTEN_AS_THEY_ARE = frozenset((str, bool, type(None)))


class NotCanonicalError(ValueError):
    """A value has no canonical JSON text.

    Parameters
    ----------
    reason
        ``integer_range``, ``not_finite``, ``surrogate``, ``depth`` or ``not_json``.
    message
        What was met, without any text of the value.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def canonical_json(value: object) -> bytes:
    """Return the canonical text of a JSON value as UTF-8.

    Two values that JSON calls equal give the same bytes: members are sorted by the UTF-16 code units of their names,
    numbers are written in ECMAScript's shortest form, strings stay as they are (no Unicode normalization).

    Parameters
    ----------
    value
        ``None``, bool, int, float, str, and lists, tuples and dicts with text keys of these.

    Returns
    -------
    bytes
        Without a final newline.

    Raises
    ------
    NotCanonicalError
        A number is not finite or an integer beyond 64 bits, a string holds half a surrogate pair, the nesting is
        deeper than `DEPTH_MAX`, or something is no JSON value.
    """
    try:
        return write_prepared(_prepare(value))
    except orjson.JSONEncodeError as error:
        if "surrogates" in str(error):
            raise NotCanonicalError("surrogate", "a string holds half of a surrogate pair") from None
        raise NotCanonicalError("depth", f"nesting is deeper than {DEPTH_MAX}") from None
    except RecursionError:
        raise NotCanonicalError("depth", f"nesting is deeper than {DEPTH_MAX}") from None


def canonical_float(number: float) -> float | orjson.Fragment:
    """Return what makes orjson write `number` as RFC 8785 does: the number itself, or its text.

    Integral numbers come back as text too, never as an int: a reader that looks at types still sees that the sender
    wrote a float.

    Raises
    ------
    NotCanonicalError
        `number` is NaN or infinite.
    """
    size = abs(number)
    if number.is_integer():
        return orjson.Fragment(str(int(number)) if size <= EXACT_INTEGER_MAX else number_text(number))
    if _SMALL_FROM <= size < _SMALL_BELOW:
        return orjson.Fragment(number_text(number))
    if size - size != 0:
        raise NotCanonicalError("not_finite", "NaN and infinite numbers have no JSON text")
    return number


def canonical_integer(number: int) -> int | orjson.Fragment:
    """Return what makes orjson write `number`: the number, or its text when only a double can hold it.

    Raises
    ------
    NotCanonicalError
        `number` is beyond 64 bits and not the RFC 8785 spelling of a double.
    """
    if INTEGER_MIN <= number <= INTEGER_MAX:
        return number
    if number.bit_length() <= _DOUBLE_DIGITS_MAX * 4:
        text = str(number)
        try:
            is_spelling = number_text(float(number)) == text
        except OverflowError:
            is_spelling = False
        if is_spelling:
            return orjson.Fragment(text)
    raise NotCanonicalError("integer_range", "an integer is beyond 64 bits")


def is_order_unsure(text: bytes) -> bool:
    """Tell whether orjson's member order may differ from RFC 8785's in `text`.

    orjson sorts names by their UTF-8 bytes, RFC 8785 by UTF-16 code units. They differ only between U+E000..U+FFFF
    (first byte 0xEE or 0xEF) and the characters above U+FFFF (first byte 0xF0 to 0xF4): no name of one kind, no
    difference.
    """
    return (
        not text.isascii()
        and (b"\xee" in text or b"\xef" in text)
        and (b"\xf0" in text or b"\xf1" in text or b"\xf2" in text or b"\xf3" in text or b"\xf4" in text)
    )


def in_utf16_order(value: Any) -> Any:
    """Return `value` with the members of every object in the order of RFC 8785, to be written unsorted."""
    kind = type(value)
    if kind is dict:
        members = cast("dict[str, Any]", value)
        return {name: in_utf16_order(members[name]) for name in sorted(members, key=_utf16_code_units)}
    if kind is list:
        return [in_utf16_order(item) for item in cast("list[Any]", value)]
    return value


def write_prepared(value: Any) -> bytes:
    """Write a value whose numbers have been through `canonical_float` and `canonical_integer`.

    Raises
    ------
    orjson.JSONEncodeError
        A string holds half a surrogate pair, an integer is beyond 64 bits, or the nesting is too deep.
    """
    text = orjson.dumps(value, None, SORTED)
    if is_order_unsure(text):
        return orjson.dumps(in_utf16_order(value))
    return text


def _utf16_code_units(name: str) -> bytes:
    return name.encode("utf-16-be")


def _prepare(value: Any, depth: int = DEPTH_MAX) -> Any:
    kind = type(value)
    if kind in _WRITTEN_AS_THEY_ARE:
        return value
    if kind is int:
        return canonical_integer(value)
    if kind is float:
        return canonical_float(value)
    if depth == 0:
        raise NotCanonicalError("depth", f"nesting is deeper than {DEPTH_MAX}")
    if kind is dict:
        members = cast("dict[Any, Any]", value)
        if not {str}.issuperset(map(type, members)):
            raise NotCanonicalError("not_json", "an object has a name that is not text")
        return {
            name: item if type(item) in _WRITTEN_AS_THEY_ARE else _prepare(item, depth - 1)
            for name, item in members.items()
        }
    if kind is list or kind is tuple:
        items = cast("list[Any]", value)
        return [item if type(item) in _WRITTEN_AS_THEY_ARE else _prepare(item, depth - 1) for item in items]
    raise NotCanonicalError("not_json", f"{kind.__name__} is no JSON value")
