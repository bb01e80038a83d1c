"""Datasets, and how a file becomes one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evalward.publish_file import Publication, WantedDataset, publish_file
from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write


class Datasets(Resource):
    """Published datasets, addressed by sha256 or name@version."""

    def publish(
        self,
        project: str,
        file: Path,
        wanted: WantedDataset,
        *,
        idempotency_key: str | None = None,
        progress: Callable[[int, int], None] = lambda _sent, _total: None,
    ) -> Publication:
        """Publish a file, directly (up to 4 MiB) or through a presigned upload; as `publish_file`."""
        return publish_file(self._transport, project, file, wanted, idempotency_key=idempotency_key, progress=progress)

    def get(self, project: str, dataset: str) -> JsonObject:
        """Read a dataset version."""
        return self._read("datasets.get", {"project": project, "dataset": dataset})

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of versions (`name`), newest first."""
        return self._read("datasets.list", {"project": project}, query)

    def each(self, project: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all versions, newest first."""
        return self._each("datasets.list", {"project": project}, query)

    def records(self, project: str, dataset: str, **query: Any) -> JsonObject:
        """Return one page of a dataset's records, as they were published."""
        return self._read("datasets.records", {"project": project, "dataset": dataset}, query)

    def content(self, project: str, dataset: str) -> bytes:
        """Read the canonical JSONL object of a dataset (at most 64 MiB)."""
        answer = self._transport.read("datasets.content", {"project": project, "dataset": dataset})
        return self._transport.fetch(answer.headers["location"]).content

    def delete(self, project: str, sha256: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Delete a dataset by its content: all names and versions that have it; runs keep what they evaluate."""
        return self.delete_named(project, sha256, lambda: sha256, idempotency_key=idempotency_key)

    def delete_named(
        self, project: str, named: str, find: Callable[[], str], *, idempotency_key: str | None = None
    ) -> JsonObject:
        """Delete a dataset by what its user calls it.

        Interrupted and made again it goes on with the content that was found the first time: by then the name may say
        nothing, or another content.

        Parameters
        ----------
        project, named
            Which, in the user's words.
        find
            Returns its sha256; what it raises ends the deletion before it has begun.
        idempotency_key
            A key of your own; nothing is remembered beside it.
        """

        def make(dataset: str) -> Write:
            return Write(operation="datasets.delete", path={"project": project, "dataset": dataset})

        return self._write_found(make, named, find, idempotency_key)[1]
