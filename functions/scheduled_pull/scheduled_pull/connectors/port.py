"""What a trace store must be able to do."""

from collections.abc import Sequence
from typing import Protocol

from scheduled_pull.traces import Trace, Window


class Connector(Protocol):
    """One place in one trace store.

    Either call raises `PullFailedError` for what the store does wrong, and stops when the pull's deadline passes.
    """

    def list(self, window: Window) -> Sequence[str]:
        """Return the ids of the traces that start in a window; an id may come twice, and some may lie outside."""
        ...

    def fetch(self, trace_ids: Sequence[str]) -> Sequence[Trace]:
        """Return traces with all their spans, in any order; one that is missing is simply not among them."""
        ...
