"""Traces as every connector hands them over, and the rule for which of them are complete."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

_ID_CHARACTERS_MAX, _DETAIL_CHARACTERS_MAX = 256, 2000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PullFailedError(Exception):
    """An attempt at a window failed: nothing is written, the same window is tried again.

    Parameters
    ----------
    code
        Stable, for programs.
    detail
        What happened and what would help, for people. Holds nothing of a trace but its id. Cut at 2000 characters.
    trace_id
        The trace it failed at; what a store calls so may be anything. Cut at 256 characters.
    """

    def __init__(self, code: str, detail: str, trace_id: str | None = None) -> None:
        super().__init__(detail)
        self.code = code
        # The ledger cannot keep a NUL.
        self.detail = detail.replace("\0", "\ufffd")[:_DETAIL_CHARACTERS_MAX]
        self.trace_id = None if trace_id is None else trace_id.replace("\0", "\ufffd")[:_ID_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class Window:
    """What is asked of a store: start inclusive, end exclusive, whole microseconds."""

    start: datetime
    end: datetime

    def has(self, instant: datetime) -> bool:
        """Tell whether an instant lies in the window."""
        return self.start <= instant < self.end


@dataclass(slots=True)
class Span:
    """One span.

    Attributes
    ----------
    span_id, parent_id
        Parent None: a root.
    name
        As the store has it.
    start, end
        Floored to microseconds; end None while it is in progress.
    attributes
        JSON values by attribute name.
    is_error
        Whether its status says so.
    """

    span_id: str
    parent_id: str | None
    name: str
    start: datetime
    end: datetime | None
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    is_error: bool = False


@dataclass(slots=True)
class Trace:
    """One trace with all its spans.

    Attributes
    ----------
    trace_id
        As the store writes it.
    spans
        In no order.
    resource
        Attributes of what made it.
    tags
        What the store knows beside the spans.
    is_in_progress
        Whether the store itself says that it is not finished.
    """

    trace_id: str
    spans: list[Span]
    resource: dict[str, Any] = field(default_factory=dict[str, Any])
    tags: dict[str, Any] = field(default_factory=dict[str, Any])
    is_in_progress: bool = False

    @property
    def start(self) -> datetime:
        """The start of its first span."""
        return min(span.start for span in self.spans)

    @property
    def root(self) -> Span:
        """The first of its roots; a complete trace has one."""
        return min((span for span in self.spans if span.parent_id is None), key=lambda span: (span.start, span.span_id))


def floor_nanoseconds(nanoseconds: int) -> datetime:
    """Return an instant given in nanoseconds since 1970, floored to whole microseconds once and for all.

    Raises
    ------
    OverflowError
        It lies outside of the calendar.
    """
    return _EPOCH + timedelta(microseconds=nanoseconds // 1000)


def require_complete(trace: Trace) -> None:
    """Refuse a trace that is not finished, by its spans: what a store says about its state is not always so.

    Raises
    ------
    PullFailedError
        It has no spans, no root, a span without an end, or one that ends before it starts.
    """
    if not trace.spans:
        raise PullFailedError("trace_without_spans", "The store has the trace, but none of its spans.", trace.trace_id)
    if trace.is_in_progress:
        raise PullFailedError("trace_in_progress", "The store says that the trace is in progress.", trace.trace_id)
    if all(span.parent_id is not None for span in trace.spans):
        raise PullFailedError("trace_in_progress", "The trace has no root span yet.", trace.trace_id)
    for span in trace.spans:
        if span.end is None:
            raise PullFailedError("trace_in_progress", "A span of the trace has no end yet.", trace.trace_id)
        if span.end < span.start:
            raise PullFailedError("trace_in_progress", "A span of the trace ends before it starts.", trace.trace_id)
