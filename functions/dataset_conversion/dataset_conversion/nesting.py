"""How deeply a JSON text is nested, found before any parser goes down into it."""

from itertools import accumulate

import orjson

_OPENERS, _CLOSERS = b"[{", b"]}"
_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(_OPENERS + _CLOSERS))


def is_deeper(text: bytes, limit: int) -> bool:
    """Tell whether objects and lists in `text` are nested more than `limit` deep.

    Takes time linear in the text, and no stack. Of a text that is no JSON it tells how deep a parser would go.
    """
    # Escapes first: what is left of a run of backslashes after taking pairs away is one that escapes a quote, or none.
    unescaped = text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text
    outside_strings = b"".join(unescaped.split(b'"')[::2])
    brackets = outside_strings.translate(_TO_BRACKETS, _NOT_BRACKETS)
    if brackets.count(b"[") <= limit:
        return False
    # Each pass takes the innermost level away.
    rest = brackets
    for _ in range(limit):
        rest = rest.replace(b"[]", b"")
        if not rest:
            return False
    return max(accumulate(1 if bracket == _OPENERS[0] else -1 for bracket in brackets)) > limit


def is_record_deeper(text: bytes, limit: int) -> bool:
    """Tell whether a canonical row is nested more than `limit` deep, the object ``metadata`` not counted.

    Members without a meaning of their own lie one level deeper in it than their sender put them. Not counting that
    level makes what was published acceptable again.
    """
    row = orjson.loads(text)
    metadata = row.pop("metadata", {})
    return is_deeper(orjson.dumps([row, metadata]), limit + 1)
