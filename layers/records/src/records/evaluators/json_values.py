"""Questions about JSON values: are two of them the same, and can one be kept."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, cast

MAX_DEPTH = 64
"""Nesting that evaluators follow, as for a row of a dataset; far deeper values crash the JSON Schema library."""


def json_equal(left: Any, right: Any) -> bool:
    """Whether two JSON values are the same value.

    Numbers are compared as numbers (``1`` and ``1.0`` are the same, exactly, at any size), never with booleans; objects
    without regard to the order of their names; texts by code points, without Unicode normalization.
    """
    if isinstance(left, str):
        return isinstance(right, str) and left == right
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(cast("dict[str, Any]", right)):
            return False
        others = cast("dict[str, Any]", right)
        return all(
            name in others and json_equal(value, others[name]) for name, value in cast("dict[str, Any]", left).items()
        )
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(cast("list[Any]", right)):
            return False
        return all(map(json_equal, cast("list[Any]", left), cast("list[Any]", right)))
    if left is None or isinstance(left, bool):
        return left is right
    return isinstance(right, int | float) and not isinstance(right, bool) and left == right


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects stand inside each other more than `levels` deep; the outermost one counts 1."""
    inner: Iterable[Any]
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    else:
        return False
    return levels == 0 or any(is_nested_deeper(item, levels - 1) for item in inner)


def find_flaw(value: Any) -> str | None:
    """Say why a value can be kept neither as UTF-8 text in PostgreSQL nor as JSON, or return ``None``.

    The answer names the kind of flaw and quotes nothing of the value.
    """
    if _is_sound(value, MAX_DEPTH):
        return None
    found = find_flaw_and_pointer(value)
    return None if found is None else found[0]


def _is_sound(value: Any, levels: int) -> bool:
    # The quick answer for nearly every output: where the flaw lies is asked only when there is one.
    if isinstance(value, str):
        return "\0" not in value and (value.isascii() or _find_text_flaw(value) is None)
    if isinstance(value, dict):
        return levels > 0 and all(
            _is_sound(name, 0) and _is_sound(inner, levels - 1) for name, inner in cast("dict[str, Any]", value).items()
        )
    if isinstance(value, list):
        return levels > 0 and all(_is_sound(inner, levels - 1) for inner in cast("list[Any]", value))
    return not isinstance(value, float) or math.isfinite(value)


def find_flaw_and_pointer(value: Any) -> tuple[str, str] | None:
    """Like `find_flaw`, with the JSON Pointer of the place."""
    for found in _find_flaws(value):
        return found
    return None


def _find_flaws(value: Any) -> Iterator[tuple[str, str]]:
    pending: list[tuple[Any, str, int]] = [(value, "", 0)]
    while pending:
        item, pointer, depth = pending.pop()
        if isinstance(item, str):
            flaw = _find_text_flaw(item)
            if flaw is not None:
                yield flaw, pointer
        elif isinstance(item, dict):
            if depth == MAX_DEPTH:
                yield f"it is nested deeper than {MAX_DEPTH} levels", pointer
                continue
            for name, inner in cast("dict[str, Any]", item).items():
                flaw = _find_text_flaw(name)
                if flaw is not None:
                    yield f"in a name, {flaw}", pointer
                else:
                    pending.append((inner, f"{pointer}/{escape_pointer(name)}", depth + 1))
        elif isinstance(item, list):
            if depth == MAX_DEPTH:
                yield f"it is nested deeper than {MAX_DEPTH} levels", pointer
                continue
            pending.extend((inner, f"{pointer}/{at}", depth + 1) for at, inner in enumerate(cast("list[Any]", item)))
        elif isinstance(item, float) and not math.isfinite(item):
            yield "it contains a number that is not finite, which JSON cannot express", pointer


def _find_text_flaw(text: str) -> str | None:
    if "\0" in text:
        return "it contains the character NUL (U+0000), which no text in the database can hold"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it contains half a surrogate pair, which no UTF-8 text can hold"
    return None


def escape_pointer(name: str) -> str:
    """Escape one reference token of a JSON Pointer (RFC 6901, section 3)."""
    return name.replace("~", "~0").replace("/", "~1")
