"""What a source does now: pure, the time is an argument.

Tick T has the window [T - length, T). It is due at T + settle and may be worked on until T + deadline, both included.
Ticks are taken in order; those whose time has run out are missed, however many, in one step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from coordination.cron import Ticks

_MICROSECOND = timedelta(microseconds=1)
BUSY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a source.

    Attributes
    ----------
    ticks
        Of its schedule.
    settle
        How long after a tick its window is read.
    deadline
        How long after a tick it may be worked on.
    """

    ticks: Ticks
    settle: timedelta
    deadline: timedelta


@dataclass(frozen=True, slots=True)
class LastRun:
    """The latest run of a source.

    Attributes
    ----------
    created_at, finished_at
        None while it is open.
    """

    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class Missed:
    """Ticks whose time has run out.

    Attributes
    ----------
    reason
        `overlap`: the last run was open when their time ran out; else `deadline`.
    after, until
        They lie after the one and at or before the other.
    count
        How many; > 0.
    """

    reason: Literal["deadline", "overlap"]
    after: datetime
    until: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do.

    Attributes
    ----------
    missed
        Ticks to note as missed, oldest first.
    cursor
        The last tick that is decided now.
    tick
        The tick to work on; None when there is nothing to do yet.
    wake_at
        When to look again, if there is nothing to do now; None when there will be no more ticks.
    """

    missed: list[Missed]
    cursor: datetime
    tick: datetime | None
    wake_at: datetime | None


def decide_tick(timing: Timing, cursor: datetime, now: datetime, last_run: LastRun | None) -> Decision:
    """Decide what a source does, from its cursor, one reading of the database's clock and its latest run."""
    # Exactly at its deadline a tick may still be worked on.
    expired = now - timing.deadline - _MICROSECOND
    missed = list(_split_missed(timing, cursor, expired, now, last_run))
    if missed:
        last = timing.ticks.last_until(expired)
        assert last is not None  # noqa: S101 - it is one of those that were just counted
        cursor = last
    tick = timing.ticks.next_after(cursor)
    if tick is None:
        return Decision(missed, cursor, None, None)
    due_at = tick + timing.settle
    if last_run is not None and last_run.finished_at is None:
        return Decision(missed, cursor, None, max(due_at, now + timedelta(seconds=BUSY_SECONDS)))
    return Decision(missed, cursor, tick, None) if due_at <= now else Decision(missed, cursor, None, due_at)


def _split_missed(
    timing: Timing, cursor: datetime, expired: datetime, now: datetime, last_run: LastRun | None
) -> Iterator[Missed]:
    """Count the ticks after the cursor whose time has run out, apart by whether a run was in their way then."""
    borders: list[tuple[Literal["deadline", "overlap"], datetime]] = [("deadline", expired)]
    if last_run is not None:
        opened = last_run.created_at - timing.deadline - _MICROSECOND
        closed = (last_run.finished_at or now) - timing.deadline - _MICROSECOND
        borders = [("deadline", opened), ("overlap", closed), ("deadline", expired)]
    after = cursor
    for reason, border in borders:
        until = min(border, expired)
        if until <= after:
            continue
        count = timing.ticks.count(after, until)
        if count:
            yield Missed(reason, after, until, count)
        after = until
