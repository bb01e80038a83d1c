"""Named SQL statements, read from `sql/queries/*.sql`.

A statement begins with a line `-- name: verb_object`; the comment lines after it say what it is for, its parameters
with their units, and its locks. Placeholders are named and cast, `%(run_id)s::uuid`, but for the arguments of our own
routines: their signatures say the types, and a cast is read at every call.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import LiteralString, cast

from psycopg import sql
from psycopg.abc import AdaptContext

_NAME = re.compile(r"^-- name: ([a-z][a-z0-9_]*)$", re.MULTILINE)


class DuplicateQueryError(ValueError):
    """Two statements of one file have the same name."""


def parse_queries(text: str) -> dict[str, str]:
    """Split the text of one file into its statements by name.

    Raises
    ------
    DuplicateQueryError
        A name stands twice.
    """
    parts = _NAME.split(text)
    names, statements = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise DuplicateQueryError(f"a name stands twice among {names}")
    return {name: body.strip().removesuffix(";") for name, body in zip(names, statements, strict=True)}


class Statement(sql.SQL):
    """A named statement whose bytes are made once: psycopg finds what it knows of them by the bytes, at every call."""

    def __init__(self, text: LiteralString) -> None:
        super().__init__(text)
        self._bytes = text.encode()

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:  # noqa: ARG002 - psycopg's signature
        """Return the text in UTF-8, which every connection speaks; it is ASCII anyhow."""
        return self._bytes


@cache
def load_queries(room: str) -> Mapping[str, sql.SQL]:
    """Read the statements of `sql/queries/<room>.sql` once, without their comments.

    Comments are for readers: the server would parse them each time, and a proxy that reads statement text for words
    such as SET or LOCK would find them.

    Parameters
    ----------
    room
        The slice whose statements these are: `projects`, `runs`, …
    """
    text = files("coordination").joinpath("sql", "queries", f"{room}.sql").read_text("utf-8")
    # The files are part of the code: the text is as literal as if it stood here.
    return MappingProxyType(
        {name: Statement(cast("LiteralString", _without_comments(body))) for name, body in parse_queries(text).items()}
    )


def _without_comments(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.lstrip().startswith("--"))
