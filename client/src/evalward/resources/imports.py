"""Imports of files in the bucket."""

import time
from collections.abc import Iterator
from typing import Any

from evalward.errors import WaitedInVainError
from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write

END_STATES = frozenset({"succeeded", "failed"})
"""States in which an import stays."""


class Imports(Resource):
    """Files in the bucket on their way to a dataset."""

    def create(self, project: str, wanted: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Import an object (`name`, `uri`, `format`, `mapping`, `nul`, `validate_only`) in the background."""
        return self._write(Write(operation="datasets.import", path={"project": project}, body=wanted), idempotency_key)

    def get(self, project: str, import_id: str) -> JsonObject:
        """Read an import."""
        return self._read("imports.get", {"project": project, "import": import_id})

    def wait(
        self, project: str, import_id: str, *, timeout_seconds: float = 3600.0, poll_seconds: float = 1.0
    ) -> JsonObject:
        """Return an import when it has succeeded or failed.

        Raises
        ------
        WaitedInVainError
            It has not by then; it goes on.
        """
        give_up_at = time.monotonic() + timeout_seconds
        while (seen := self.get(project, import_id))["state"] not in END_STATES:
            if time.monotonic() + poll_seconds > give_up_at:
                raise WaitedInVainError(
                    f"Import {import_id} is still {seen['state']} after {timeout_seconds:.0f} s; it goes on."
                )
            time.sleep(poll_seconds)
        return seen

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of imports, newest first."""
        return self._read("imports.list", {"project": project}, query)

    def each(self, project: str) -> Iterator[JsonObject]:
        """Go through all imports, newest first."""
        return self._each("imports.list", {"project": project})
