"""Webhooks and their deliveries."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Webhooks(Resource):
    """Endpoints that are told what happened."""

    def create(self, project: str, webhook: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Create a webhook (`id`, `url`, `events`).

        Returns
        -------
        dict
            With `secret`, which verifies signatures, in the first answer only: a replay has none.
        """
        return self._write(Write(operation="webhooks.create", path={"project": project}, body=webhook), idempotency_key)

    def get(self, project: str, webhook: str) -> JsonObject:
        """Read a webhook, without its secret."""
        return self._read("webhooks.get", {"project": project, "webhook": webhook})

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of webhooks, newest first."""
        return self._read("webhooks.list", {"project": project}, query)

    def each(self, project: str) -> Iterator[JsonObject]:
        """Go through all webhooks."""
        return self._each("webhooks.list", {"project": project})

    def delete(self, project: str, webhook: str, *, idempotency_key: str | None = None) -> None:
        """Delete a webhook with its deliveries."""
        self._write(self._of("webhooks.delete", project, webhook), idempotency_key)

    def test(self, project: str, webhook: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Send a ping now, once, and return what became of it."""
        return self._write(self._of("webhooks.test", project, webhook), idempotency_key)

    def deliveries(self, project: str, webhook: str, **query: Any) -> JsonObject:
        """Return one page of deliveries (`state`), newest first."""
        return self._read("webhooks.list_deliveries", {"project": project, "webhook": webhook}, query)

    def each_delivery(self, project: str, webhook: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all deliveries, newest first."""
        return self._each("webhooks.list_deliveries", {"project": project, "webhook": webhook}, query)

    def redeliver(self, project: str, delivery: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Send a delivery again, under the same id."""
        path = {"project": project, "delivery": delivery}
        return self._write(Write(operation="webhooks.redeliver", path=path), idempotency_key)

    @staticmethod
    def _of(operation: str, project: str, webhook: str) -> Write:
        return Write(operation=operation, path={"project": project, "webhook": webhook})
