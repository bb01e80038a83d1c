"""Projects."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Projects(Resource):
    """The tenants of an installation."""

    def create(self, project: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Create a project (`id`, and what CreateProject has)."""
        return self._write(Write(operation="projects.create", body=project), idempotency_key)

    def update(self, project: str, changes: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Change fields of a project; those left out stay."""
        return self._write(Write(operation="projects.update", path={"project": project}, body=changes), idempotency_key)

    def get(self, project: str) -> JsonObject:
        """Read a project."""
        return self._read("projects.get", {"project": project})

    def page(self, **query: Any) -> JsonObject:
        """Return one page (`limit`, `cursor`) of the projects the key sees."""
        return self._read("projects.list", query=query)

    def each(self) -> Iterator[JsonObject]:
        """Go through all projects the key sees."""
        return self._each("projects.list")
