"""What all kinds have in common: one operation a method, lists in pages."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evalward.transport import JsonObject, Transport, Write, read_object


class Resource:
    """Base of the kinds.

    Parameters
    ----------
    transport
        Carries the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _read(
        self, operation: str, path: Mapping[str, str] | None = None, query: Mapping[str, Any] | None = None
    ) -> JsonObject:
        return read_object(self._transport.read(operation, path, query))

    def _write(self, write: Write, idempotency_key: str | None = None) -> JsonObject:
        response = self._transport.write(write, idempotency_key=idempotency_key)
        return read_object(response) if response.content else {}

    def _write_found(
        self, make: Callable[[str], Write], named: str, find: Callable[[], str], idempotency_key: str | None = None
    ) -> tuple[str, JsonObject]:
        """Send a write to something that its user calls by a word.

        Interrupted and made again it goes on with what was found the first time: by then the word may mean something
        else. With a key of the caller's own nothing is remembered.

        Returns
        -------
        (str, dict)
            What was found, and the answer.
        """
        with self._transport.hold(make(named), idempotency_key) as held:
            if not held.note:
                try:
                    held.remember(find())
                except BaseException:
                    held.finish()
                    raise
            response = self._transport.write_under(held, make(held.note))
            return held.note, read_object(response) if response.content else {}

    def _each(
        self, operation: str, path: Mapping[str, str] | None = None, query: Mapping[str, Any] | None = None
    ) -> Iterator[JsonObject]:
        return read_pages(self._transport, operation, path, query or {})


def read_pages(
    transport: Transport, operation: str, path: Mapping[str, str] | None, query: Mapping[str, Any]
) -> Iterator[JsonObject]:
    """Go through a list, one page after the other."""
    cursor: str | None = None
    while True:
        page = read_object(transport.read(operation, path, {"limit": 200, **query, "cursor": cursor}))
        yield from page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return
