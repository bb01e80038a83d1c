"""JSON Pointers (RFC 6901): writing the place of an error, and finding what a mapping names."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, cast

_POSITION = re.compile("0|[1-9][0-9]{0,8}")

MISSING = object()
"""Returned by `look_up` where there is nothing; ``None`` is JSON's null."""


def write_pointer(tokens: Iterable[str | int]) -> str:
    """Return the pointer to a place given by names and list positions from the root on; ``""`` is the root."""
    return "".join(f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in tokens)


def read_pointer(pointer: str) -> tuple[str, ...]:
    """Return the tokens of a pointer.

    Raises
    ------
    ValueError
        It is neither empty nor begins with ``/``, or has a ``~`` that is not ``~0`` or ``~1``.
    """
    if pointer == "":
        return ()
    if not pointer.startswith("/"):
        message = "a JSON Pointer begins with /"
        raise ValueError(message)
    if "~" in pointer.replace("~0", "").replace("~1", ""):
        message = "in a JSON Pointer ~ is followed by 0 or 1"
        raise ValueError(message)
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in pointer[1:].split("/"))


def look_up(value: Any, tokens: Sequence[str]) -> Any:
    """Return what `tokens` point to in `value`, or `MISSING`."""
    for token in tokens:
        if type(value) is dict:
            value = cast("dict[str, Any]", value).get(token, MISSING)
        elif type(value) is list:
            items = cast("list[Any]", value)
            position = int(token) if _POSITION.fullmatch(token) else len(items)
            value = items[position] if position < len(items) else MISSING
        else:
            return MISSING
    return value
