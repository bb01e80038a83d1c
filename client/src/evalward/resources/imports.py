"""Imports of files in the bucket."""

from collections.abc import Iterator
from typing import Any

from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Imports(Resource):
    """Files in the bucket on their way to a dataset."""

    def create(self, project: str, wanted: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Import an object (`name`, `uri`, `format`, `mapping`, `nul`, `validate_only`) in the background."""
        return self._write(Write(operation="datasets.import", path={"project": project}, body=wanted), idempotency_key)

    def get(self, project: str, import_id: str) -> JsonObject:
        """Read an import."""
        return self._read("imports.get", {"project": project, "import": import_id})

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of imports, newest first."""
        return self._read("imports.list", {"project": project}, query)

    def each(self, project: str) -> Iterator[JsonObject]:
        """Go through all imports, newest first."""
        return self._each("imports.list", {"project": project})
