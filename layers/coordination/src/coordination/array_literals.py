"""Columns of many rows as PostgreSQL's array literals, for `unnest` with a cast.

The driver looks at every item of a list to find its type, which for a shard's results takes longer than scoring them.
A cast names the type anyway, so the text that the server reads is made in one go. Section 8.15.6 of PostgreSQL's manual
says how an array is written.
"""

from collections.abc import Iterable

_ESCAPES = str.maketrans({'"': '\\"', "\\": "\\\\"})


def write_numbers(values: Iterable[float | None]) -> str:
    """Write integers, or floats with as many digits as tell them from all others; None becomes NULL."""
    return "{" + ",".join(["NULL" if value is None else repr(value) for value in values]) + "}"


def write_booleans(values: Iterable[bool | None]) -> str:
    """Write booleans; None becomes NULL."""
    return "{" + ",".join(["NULL" if value is None else "t" if value else "f" for value in values]) + "}"


def write_texts(values: Iterable[str | None]) -> str:
    """Write texts, each in quotes, so that `NULL`, blanks and braces are texts; None becomes NULL.

    A NUL is refused by the driver when the literal is sent.
    """
    return "{" + ",".join(["NULL" if value is None else f'"{_escape(value)}"' for value in values]) + "}"


def _escape(text: str) -> str:
    # To look costs a fifth of a translation, and hardly a text needs one.
    return text.translate(_ESCAPES) if '"' in text or "\\" in text else text
