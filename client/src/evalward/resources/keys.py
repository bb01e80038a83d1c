"""API keys."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Keys(Resource):
    """Keys of an installation."""

    def create(self, key: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Create a key (`name`, `grants`, `expires_at`).

        Returns
        -------
        dict
            With `secret`, the key's whole text, in the first answer only: a replay has none.
        """
        return self._write(Write(operation="keys.create", body=key), idempotency_key)

    def page(self, **query: Any) -> JsonObject:
        """Return one page of the keys, without secrets."""
        return self._read("keys.list", query=query)

    def each(self) -> Iterator[JsonObject]:
        """Go through all keys."""
        return self._each("keys.list")

    def delete(self, key: str, *, idempotency_key: str | None = None) -> None:
        """Delete a key by its id: it stops working at once."""
        self._write(Write(operation="keys.delete", path={"key": key}), idempotency_key)
