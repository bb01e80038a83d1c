"""Claims: keyed writes without an outcome."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Claims(Resource):
    """Writes in progress and uncertain ones, of a project or (project None) of the installation."""

    def page(self, project: str | None, **query: Any) -> JsonObject:
        """Return one page of claims (`principal`), oldest first; your own by default."""
        return self._read(*self._operation("list", project), query)

    def each(self, project: str | None, **query: Any) -> Iterator[JsonObject]:
        """Go through all claims, oldest first."""
        return self._each(*self._operation("list", project), query)

    def resolve(
        self, project: str | None, claim: str, outcome: str, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """Say what became of an uncertain write: `happened` or `did_not_happen`."""
        operation, path = self._operation("resolve", project)
        write = Write(operation=operation, path={**path, "claim": claim}, body={"outcome": outcome})
        return self._write(write, idempotency_key)

    @staticmethod
    def _operation(name: str, project: str | None) -> tuple[str, dict[str, str]]:
        return (f"installation_claims.{name}", {}) if project is None else (f"claims.{name}", {"project": project})
