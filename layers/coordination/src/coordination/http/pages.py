"""Lists: `limit`, an opaque `cursor`, keyset order, stable under inserts."""

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field

from coordination.errors import InvalidCursorError
from coordination.models import QueryModel, ResponseModel


class PageQuery(QueryModel):
    """Query parameters of every list."""

    limit: Annotated[int, Field(ge=1, le=200, description="how many items at most")] = 50
    cursor: Annotated[
        str | None,
        # What a cursor is made of; one that is not ours is refused where it is read, in words.
        Field(
            max_length=2000,
            description="`next_cursor` of the page before; opaque",
            json_schema_extra={"pattern": "^[A-Za-z0-9_-]*$"},
        ),
    ] = None


class Page[Item](ResponseModel):
    """One page of a list."""

    items: list[Item]
    next_cursor: Annotated[str | None, Field(description="send it as `cursor` for the next page; null at the end")]


def encode_cursor(kind: str, position: Sequence[Any]) -> str:
    """Write the place after which the next page begins."""
    return base64.urlsafe_b64encode(orjson.dumps([kind, *position])).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, *readers: Callable[[Any], Any]) -> list[Any] | None:
    """Read a cursor of the same kind of list; None for the first page.

    Parameters
    ----------
    kind
        Which list it must belong to.
    cursor
        As the caller sent it.
    readers
        One for each part of the position; a ValueError or TypeError of one means that the cursor is none of ours.

    Raises
    ------
    InvalidCursorError
        It is none of this list.
    """
    if cursor is None:
        return None
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as error:
        raise InvalidCursorError("Send `next_cursor` of the page before, unchanged.") from error
    if not isinstance(parts, list) or len(parts) != len(readers) + 1 or parts[0] != kind:
        raise InvalidCursorError("The cursor belongs to another list; begin without one.")
    try:
        return [reader(part) for reader, part in zip(readers, parts[1:], strict=True)]
    except (TypeError, ValueError) as error:
        raise InvalidCursorError("Send `next_cursor` of the page before, unchanged.") from error


def read_number(maximum: int) -> Callable[[Any], int]:
    """Return a reader of whole numbers from 0 to `maximum`, for `decode_cursor`."""

    def read(part: Any) -> int:
        if not isinstance(part, int) or not 0 <= part <= maximum:
            raise ValueError("not a whole number in its range")
        return part

    return read


def read_text(part: Any) -> str:
    """Read a text that the database can hold, for `decode_cursor`."""
    if not isinstance(part, str) or "\0" in part:
        raise ValueError("not a text")
    return part


def make_page[Row, Item](
    kind: str,
    rows: Sequence[Row],
    limit: int,
    to_item: Callable[[Row], Item],
    to_position: Callable[[Row], Sequence[Any]],
) -> Page[Item]:
    """Make a page of rows that were read with `limit + 1`: the one too many tells that there is more."""
    kept = rows[:limit]
    cursor = encode_cursor(kind, to_position(kept[-1])) if len(rows) > limit else None
    return Page(items=[to_item(row) for row in kept], next_cursor=cursor)
