"""Failures: what went wrong in a project, grouped."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Failures(Resource):
    """Failures of a project's work with the same cause, counted."""

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of failures (`state`, `kind`), last seen first."""
        return self._read("failures.list", {"project": project}, query)

    def each(self, project: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all failures, last seen first."""
        return self._each("failures.list", {"project": project}, query)

    def resolve(
        self, project: str, failure: str, *, state: str = "resolved", idempotency_key: str | None = None
    ) -> JsonObject:
        """Say what is done about a failure: `resolved`, `investigating`, `wont_fix` or `unresolved`."""
        path = {"project": project, "failure": failure}
        return self._write(Write(operation="failures.resolve", path=path, body={"state": state}), idempotency_key)
