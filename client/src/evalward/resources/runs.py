"""Runs."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from evalward.errors import WaitedInVainError
from evalward.resources.resource import Resource
from evalward.transport import JsonObject, Write

END_STATES = frozenset({"succeeded", "failed", "error", "cancelled"})
"""States in which a run stays."""

_MEDIA_TYPES = {
    "json": "application/json",
    "html": "text/html",
    "markdown": "text/markdown",
    "junit": "application/xml",
}


class Runs(Resource):
    """Evaluations of datasets and windows."""

    def create(self, project: str, run: JsonObject, *, idempotency_key: str | None = None) -> JsonObject:
        """Create a run; it is evaluated in the background."""
        return self._write(Write(operation="runs.create", path={"project": project}, body=run), idempotency_key)

    def get(self, project: str, run: str, *, wait_seconds: int = 0) -> JsonObject:
        """Read a run; with `wait_seconds` (0 to 20) the answer comes when it has ended, at the latest after that."""
        return self._read("runs.get", {"project": project, "run": run}, {"wait_seconds": wait_seconds or None})

    def wait(
        self,
        project: str,
        run: str,
        *,
        timeout_seconds: float = 3600.0,
        look: Callable[[JsonObject], None] = lambda _run: None,
        poll_seconds: int = 20,
    ) -> JsonObject:
        """Return a run when it has ended.

        Parameters
        ----------
        project, run
            Which.
        timeout_seconds
            How long to wait.
        look
            Is given the run each time it was read, for progress.
        poll_seconds
            How long one question waits for the end (0 to 20).

        Raises
        ------
        WaitedInVainError
            It has not ended by then; it goes on.
        """
        give_up_at = time.monotonic() + timeout_seconds
        while True:
            left = max(0.0, give_up_at - time.monotonic())
            seen = self.get(project, run, wait_seconds=min(poll_seconds, int(left)))
            look(seen)
            if seen["state"] in END_STATES:
                return seen
            if time.monotonic() >= give_up_at:
                raise WaitedInVainError(
                    f"Run {run} is still {seen['state']} after {timeout_seconds:.0f} s; it goes on."
                )
            if int(left) == 0:
                time.sleep(min(left, 0.2))

    def page(self, project: str, **query: Any) -> JsonObject:
        """Return one page of runs (`state`, `label`, `source`, `created_after`), newest first."""
        return self._read("runs.list", {"project": project}, query)

    def each(self, project: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all runs, newest first."""
        return self._each("runs.list", {"project": project}, query)

    def results(self, project: str, run: str, **query: Any) -> JsonObject:
        """Return one page of results (`evaluator`, `status`), in the order of the records."""
        return self._read("runs.results", {"project": project, "run": run}, query)

    def each_result(self, project: str, run: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all results."""
        return self._each("runs.results", {"project": project, "run": run}, query)

    def outputs(self, project: str, run: str, **query: Any) -> JsonObject:
        """Return one page of what the run's target answered, in the order of the records."""
        return self._read("runs.outputs", {"project": project, "run": run}, query)

    def each_output(self, project: str, run: str, **query: Any) -> Iterator[JsonObject]:
        """Go through all that the run's target answered."""
        return self._each("runs.outputs", {"project": project, "run": run}, query)

    def report(self, project: str, run: str, baseline: str | None = None, *, excerpts: bool = False) -> JsonObject:
        """Read the report of a finished run.

        Parameters
        ----------
        project, run
            Which.
        baseline
            The id of a run or `previous`: adds what moved since then.
        excerpts
            Adds what the worst records were asked, answered and expected to answer; for who may read records.
        """
        query = {"baseline": baseline, "excerpts": excerpts or None}
        return self._read("runs.report", {"project": project, "run": run}, query)

    def render_report(
        self, project: str, run: str, form: str, baseline: str | None = None, *, excerpts: bool = False
    ) -> bytes:
        """Read the report as `json`, `html`, `markdown` or `junit`; the rest as for `report`."""
        path = {"project": project, "run": run}
        query = {"format": form, "baseline": baseline, "excerpts": excerpts or None}
        return self._transport.read("runs.report", path, query, accept=_MEDIA_TYPES[form]).content

    def compare(self, project: str, baseline: str, candidate: str) -> JsonObject:
        """Compare two runs record by record."""
        return self._read("runs.compare", {"project": project}, {"baseline": baseline, "candidate": candidate})

    def cancel(
        self, project: str, run: str, *, find: Callable[[], str] | None = None, idempotency_key: str | None = None
    ) -> JsonObject:
        """Cancel a run that has not ended; what it has evaluated stays. `find` as for `delete`."""
        return self._change("runs.cancel", project, run, find, idempotency_key)[1]

    def resume(
        self, project: str, run: str, *, find: Callable[[], str] | None = None, idempotency_key: str | None = None
    ) -> JsonObject:
        """Resume a run that ended in error or was cancelled; only what has no result is evaluated.

        `find` as for `delete`.
        """
        return self._change("runs.resume", project, run, find, idempotency_key)[1]

    def label(
        self,
        project: str,
        run: str,
        labels: dict[str, str | None],
        *,
        find: Callable[[], str] | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Set labels; None takes one off, those left out stay. `find` as for `delete`."""
        return self._change("runs.label", project, run, find, idempotency_key, {"labels": labels})[1]

    def delete(
        self, project: str, run: str, *, find: Callable[[], str] | None = None, idempotency_key: str | None = None
    ) -> str:
        """Delete an ended run with its results and its report.

        Parameters
        ----------
        project, run
            Which: an id, or what its user calls it.
        find
            Returns the id of what its user calls so. Interrupted and made again, the write goes on with the run that
            was found the first time.
        idempotency_key
            A key of your own; nothing is remembered beside it.

        Returns
        -------
        str
            The run's id.
        """
        return self._change("runs.delete", project, run, find, idempotency_key)[0]

    def _change(
        self,
        operation: str,
        project: str,
        run: str,
        find: Callable[[], str] | None,
        idempotency_key: str | None,
        body: Any = None,
    ) -> tuple[str, JsonObject]:
        def make(run_id: str) -> Write:
            return Write(operation=operation, path={"project": project, "run": run_id}, body=body)

        if find is None:
            return run, self._write(make(run), idempotency_key)
        return self._write_found(make, run, find, idempotency_key)
