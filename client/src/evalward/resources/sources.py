"""Sources."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any, Literal

from evalward.errors import ConfigurationError, ProblemError
from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write, read_object

type Applied = Literal["created", "updated", "unchanged"]


class Sources(Resource):
    """Scheduled pulls from trace stores."""

    def create(self, project: str, source: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Create a source."""
        return self._write(Write(operation="sources.create", path={"project": project}, body=source), idempotency_key)

    def update(
        self, project: str, source: str, changes: JsonObject, *, idempotency_key: str | None = None
    ) -> JsonObject:
        """Change fields of a source, each as a whole; another cron lets ticks count from now on.

        None removes the endpoint or the credentials of a source that can do without.
        """
        return self._write(self._of("sources.update", project, source, changes), idempotency_key)

    def apply(
        self, project: str, source: JsonObject, *, idempotency_key: str | None = None
    ) -> tuple[Applied, JsonObject]:
        """Make a source what a document says: create it, or change the fields that differ.

        Fields that the document leaves out stay as they are; None removes an endpoint or credentials. Interrupted, it
        can be made again at any time: it looks what there is before it writes.

        Returns
        -------
        (str, dict)
            `created`, `updated` or `unchanged`, and the source.

        Raises
        ------
        ConfigurationError
            The document has no id, or wants another connector than the source has: that makes it another source.
        """
        if not isinstance(source.get("id"), str):
            raise ConfigurationError("A source needs an id, such as `id: nightly-support`.")
        present = self._find(project, source["id"])
        if present is not None and source.get("connector", present["connector"]) != present["connector"]:
            raise ConfigurationError(
                f"{source['id']} has the connector {present['connector']}, which cannot be changed: retire it and give "
                "the new source another id."
            )
        create = Write(operation="sources.create", path={"project": project}, body=source)
        # The key belongs to the document: that the source says the same is the end of an interrupted attempt too.
        with self._transport.hold(create, idempotency_key, is_harmless_twice=True) as held:
            if present is None:
                return "created", read_object(self._transport.write_under(held, create))
            changes = {
                name: value
                for name, value in source.items()
                if name not in ("id", "connector") and not _says_the_same(value, present.get(name))
            }
            if not changes:
                held.finish()
                return "unchanged", present
            update = self._of("sources.update", project, source["id"], changes)
            suffix = _suffix_of(changes, present)
            return "updated", read_object(self._transport.write_under(held, update, suffix=suffix))

    def get(self, project: str, source: str) -> JsonObject:
        """Read a source with its cursor and its counters."""
        return self._read("sources.get", {"project": project, "source": source})

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of sources by id."""
        return self._read("sources.list", {"project": project}, query)

    def each(self, project: str) -> Iterator[JsonObject]:
        """Go through all sources by id."""
        return self._each("sources.list", {"project": project})

    def preview(self, project: str, source: str, *, after: str | None = None) -> JsonObject:
        """Tell when a source ticks next, from now or after an instant."""
        write = self._of("sources.preview", project, source, query={"after": after})
        return self._write(write)

    def preview_new(self, project: str, source: JsonObject, *, after: str | None = None) -> JsonObject:
        """Check a source that does not exist yet, and tell when it would tick; nothing is stored."""
        write = Write(operation="sources.preview_new", path={"project": project}, query={"after": after}, body=source)
        return self._write(write)

    def windows(self, project: str, source: str, **query: Any) -> JsonObject:
        """Return one page of the window ledger (`state`), newest first."""
        return self._read("sources.windows", {"project": project, "source": source}, query)

    def each_window(self, project: str, source: str, **query: Any) -> Iterator[JsonObject]:
        """Go through the window ledger, newest first."""
        return self._each("sources.windows", {"project": project, "source": source}, query)

    def run_window(
        self,
        project: str,
        source: str,
        start: str,
        *,
        exclude_trace_ids: list[str] | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Run one window by hand: a missed one, or a decided one again as a new run."""
        path = {"project": project, "source": source, "start": start}
        body = {"exclude_trace_ids": exclude_trace_ids or []}
        return self._write(Write(operation="sources.run_window", path=path, body=body), idempotency_key)

    def skip_window(self, project: str, source: str, start: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Give up a window that is being tried."""
        path = {"project": project, "source": source, "start": start}
        return self._write(Write(operation="sources.skip_window", path=path), idempotency_key)

    def summary(self, project: str, source: str) -> JsonObject:
        """Tell what a source did last."""
        return self._read("sources.summary", {"project": project, "source": source})

    def pause(self, project: str, source: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Pause a source; what was being tried is skipped."""
        return self._write(self._of("sources.pause", project, source), idempotency_key)

    def resume(self, project: str, source: str, *, idempotency_key: str | None = None) -> JsonObject:
        """Resume a source; ticks count from now on."""
        return self._write(self._of("sources.resume", project, source), idempotency_key)

    def retire(self, project: str, source: str, *, idempotency_key: str | None = None) -> None:
        """Retire a source; its runs and windows stay."""
        self._write(self._of("sources.retire", project, source), idempotency_key)

    def _find(self, project: str, source: str) -> JsonObject | None:
        try:
            return self.get(project, source)
        except ProblemError as error:
            if error.status != 404:
                raise
            return None

    @staticmethod
    def _of(operation: str, project: str, source: str, body: Any = None, query: JsonObject | None = None) -> Write:
        return Write(operation=operation, path={"project": project, "source": source}, query=query or {}, body=body)


def _suffix_of(changes: JsonObject, present: JsonObject) -> str:
    """Tell changes apart: the same ones to a source that was changed meanwhile are another request."""
    request = json.dumps([changes, present["updated_at"]], sort_keys=True)
    return f"-{hashlib.sha256(request.encode()).hexdigest()[:12]}"


def _says_the_same(wanted: Any, present: Any) -> bool:
    """Tell whether a value is what is there; members that the service filled with defaults may be left out."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        return all(name in present and _says_the_same(value, present[name]) for name, value in wanted.items())
    if isinstance(wanted, list) and isinstance(present, list):
        return len(wanted) == len(present) and all(map(_says_the_same, wanted, present))
    return wanted == present
