"""How the sources of a project are doing, for the doctor: how far behind, and what was missed and why."""

from dataclasses import dataclass
from datetime import datetime

from coordination.database import Transaction
from coordination.queries import load_queries

_QUERIES = load_queries("sources")
# The pulse comes once a minute; this is three of them.
_PATIENCE_SECONDS = 180


@dataclass(frozen=True, slots=True)
class MissedTicks:
    """Ticks of one source that were missed for one reason.

    Attributes
    ----------
    source_id
        Whose.
    reason
        `error_code` of the last attempt, `overlap` or `not_begun`.
    windows
        Entries of the ledger, one for a gap of many ticks; > 0.
    ticks
        How many; > 0.
    last_tick_at
        The latest of them.
    """

    source_id: str
    reason: str
    windows: int
    ticks: int
    last_tick_at: datetime


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How the sources of one project are doing.

    Attributes
    ----------
    active
        Sources that are neither paused nor retired.
    behind
        Those with a window that waits to be read longer than it should.
    worst_source, worst_lag_seconds, worst_error_code, worst_trace_id
        The one that is most behind, since when, and why its last attempt failed; None when none is behind.
    missed
        What was missed lately, most first.
    """

    active: int
    behind: int
    worst_source: str | None
    worst_lag_seconds: float | None
    worst_error_code: str | None
    worst_trace_id: str | None
    missed: list[MissedTicks]


def read_source_health(transaction: Transaction, period_seconds: int = 86_400) -> SourceHealth:
    """Measure the sources of the transaction's project; two statements that travel with what was submitted before them.

    No lock.

    Parameters
    ----------
    period_seconds
        How far back missed ticks count; > 0.
    """
    params = {"tenant": transaction.tenant}
    asked = transaction.submit(_QUERIES["measure_source_lag"], params | {"patience_seconds": _PATIENCE_SECONDS})
    missed = transaction.fetch_all(_QUERIES["count_missed_reasons"], params | {"period_seconds": period_seconds})
    lag = asked.fetchone()
    assert lag is not None  # noqa: S101 - the statement has one row
    return SourceHealth(
        active=lag["active"],
        behind=lag["behind"],
        worst_source=lag["worst_source"],
        worst_lag_seconds=lag["worst_lag_seconds"],
        worst_error_code=lag["worst_error_code"],
        worst_trace_id=lag["worst_trace_id"],
        missed=[MissedTicks(**row) for row in missed],
    )
