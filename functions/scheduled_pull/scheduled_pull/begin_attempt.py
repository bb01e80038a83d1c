"""The first transaction of a pull: note missed ticks, choose the window, note the attempt."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from coordination.clock import format_instant
from coordination.cron import Ticks
from coordination.database import Transaction
from coordination.events import emit_event
from coordination.failures import record_failure
from coordination.queries import load_queries
from coordination.sources import SourceConfig, make_run_id, read_ticks, schedule_wake_up

from scheduled_pull.decide_tick import BUSY_SECONDS, Decision, LastRun, Missed, Timing, decide_tick
from scheduled_pull.traces import Window

_QUERIES = load_queries("sources")
# A gap has an entry for its first tick, one a tick for its newest ones, and one for all between them.
_ENTRIES_MAX = 50
_FIRST_RETRY_SECONDS = 60
_LONGEST_RETRY_SECONDS = 900
_CUT_SHORT = "attempt_cut_short"
_CUT_SHORT_DETAIL = (
    "The attempt never told how it ended: its function was killed, ran out of time or memory, or lost the database."
)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at one window.

    Attributes
    ----------
    project, source_id
        Whose.
    config
        As it was when the attempt began.
    ticks
        Of the schedule.
    tick_at, tick_id
        The tick, and its row.
    window
        What is read.
    run_id
        Of the run it becomes.
    excluded
        Traces to pass over.
    cursor_at
        The cursor as it was seen; None when the window is run by hand, which moves no cursor.
    """

    project: str
    source_id: str
    config: SourceConfig
    ticks: Ticks
    tick_at: datetime
    tick_id: UUID
    window: Window
    run_id: UUID
    excluded: frozenset[str]
    cursor_at: datetime | None


@dataclass(frozen=True, slots=True)
class _Source:
    source_id: str
    config: SourceConfig
    timing: Timing
    cursor_at: datetime
    now: datetime
    last_run: LastRun | None
    is_paused: bool
    has_cut_short: bool


def begin_attempt(transaction: Transaction, source_id: str) -> Attempt | None:
    """Decide what a source does now and note it; None when there is nothing to read yet.

    The source's wake-up is put to when there will be. Locks the schedule's row, then those of the source.
    """
    source = _read_source(transaction, source_id)
    if source is None:
        schedule_wake_up(transaction, source_id, None)
        return None
    if source.has_cut_short:
        _fail_cut_short(transaction, source_id)
    attempt, requested_at = _begin_requested(transaction, source)
    if attempt is not None:
        return attempt
    if source.is_paused:
        schedule_wake_up(transaction, source_id, requested_at)
        return None
    decision = decide_tick(source.timing, source.cursor_at, source.now, source.last_run)
    _note_missed(transaction, source, decision)
    if decision.tick is None:
        schedule_wake_up(transaction, source_id, _earliest(decision.wake_at, requested_at))
        return None
    known = transaction.fetch_one(_QUERIES["find_window_of_tick"], _of(transaction, source_id, tick_at=decision.tick))
    if known is not None and known["next_attempt_at"] is not None and known["next_attempt_at"] > source.now:
        schedule_wake_up(transaction, source_id, _earliest(known["next_attempt_at"], requested_at))
        return None
    attempts = known["attempts"] if known is not None else 0
    window = Window(decision.tick - source.config.window, decision.tick)
    run_id = make_run_id(transaction.tenant, source_id, source.config.sha256, window.start, window.end)
    return _begin(transaction, source, decision.tick, window, run_id, attempts, cursor_at=decision.cursor)


def _read_source(transaction: Transaction, source_id: str) -> _Source | None:
    row = transaction.fetch_one(_QUERIES["read_source_to_pull"], _of(transaction, source_id))
    if row is None:
        return None
    config = SourceConfig.model_validate(row["config"])
    last_run = LastRun(row["last_created_at"], row["last_finished_at"]) if row["last_created_at"] else None
    timing = Timing(read_ticks(row), config.settle, config.starting_deadline)
    return _Source(
        source_id, config, timing, row["cursor_at"], row["now"], last_run, row["paused"], row["has_cut_short"]
    )


def _fail_cut_short(transaction: Transaction, source_id: str) -> None:
    """Note the attempts that died: the lease is ours, so whoever made them is gone or can write nothing any more."""
    params = _of(transaction, source_id, error_code=_CUT_SHORT, error=_CUT_SHORT_DETAIL)
    for _ in transaction.fetch_all(_QUERIES["fail_cut_short_attempts"], params):
        transaction.submit(_QUERIES["count_failed_attempt"], params)
        record_failure(transaction, "pull", source_id, f"{_CUT_SHORT}: {_CUT_SHORT_DETAIL}")


def _begin_requested(transaction: Transaction, source: _Source) -> tuple[Attempt | None, datetime | None]:
    """Begin with the window that somebody asked for, if there is one; else say when it is to be tried again."""
    params = _of(transaction, source.source_id)
    row = transaction.fetch_one(_QUERIES["find_requested_window"], params)
    if row is None:
        return None, None
    if row["deadline_at"] < source.now:
        transaction.submit(_QUERIES["end_requested_window"], params | {"tick_at": row["tick_at"]})
        _end_planning(transaction, source.source_id)
        return None, source.now
    if source.last_run is not None and source.last_run.finished_at is None:
        return None, source.now + timedelta(seconds=BUSY_SECONDS)
    if row["next_attempt_at"] is not None and row["next_attempt_at"] > source.now:
        return None, row["next_attempt_at"]
    window = Window(row["window_start"], row["window_end"])
    # A run by hand is a new run, also of a window that has one.
    attempt = _begin(transaction, source, row["tick_at"], window, uuid4(), row["attempts"], cursor_at=None)
    return attempt, None


def _begin(
    transaction: Transaction,
    source: _Source,
    tick_at: datetime,
    window: Window,
    run_id: UUID,
    attempts: int,
    *,
    cursor_at: datetime | None,
) -> Attempt:
    params = _of(transaction, source.source_id, tick_at=tick_at, window_start=window.start, window_end=window.end)
    # Noted before the attempt: a worker that dies has used it up, and the next one comes no sooner.
    retry_seconds = min(_FIRST_RETRY_SECONDS << min(attempts, 8), _LONGEST_RETRY_SECONDS)
    transaction.submit(_QUERIES["begin_window"], params | {"retry_seconds": retry_seconds})
    transaction.submit(_QUERIES["begin_attempt"], params)
    tick = transaction.submit(_QUERIES["begin_tick"], params)
    excluded = transaction.fetch_one(_QUERIES["read_excluded_traces"], params)
    tick_row = tick.fetchone()
    assert tick_row is not None  # noqa: S101 - INSERT … RETURNING returns its row
    assert excluded is not None  # noqa: S101 - it was inserted above
    transaction.submit(_QUERIES["begin_graph_job"], params | {"tick_id": tick_row["id"]})
    return Attempt(
        project=transaction.tenant,
        source_id=source.source_id,
        config=source.config,
        ticks=source.timing.ticks,
        tick_at=tick_at,
        tick_id=tick_row["id"],
        window=window,
        run_id=run_id,
        excluded=frozenset(excluded["exclude_trace_ids"]),
        cursor_at=cursor_at,
    )


def _note_missed(transaction: Transaction, source: _Source, decision: Decision) -> None:
    if not decision.missed:
        return
    params = _of(transaction, source.source_id)
    moved = transaction.submit(
        _QUERIES["move_cursor"], params | {"cursor_at": decision.cursor, "expected": source.cursor_at}
    )
    counts = {"deadline": 0, "overlap": 0}
    for missed in decision.missed:
        counts[missed.reason] += missed.count
        _note_in_ledger(transaction, source, missed)
    transaction.submit(_QUERIES["count_missed"], params | counts)
    _end_planning(transaction, source.source_id)
    assert moved.fetchone() is not None  # noqa: S101 - the schedule's row is locked


def _end_planning(transaction: Transaction, source_id: str) -> None:
    """End what was being planned of windows whose time has run out."""
    params = _of(transaction, source_id)
    ended = transaction.fetch_all(_QUERIES["fail_open_ticks"], params | {"state": "error"})
    ids = [row["id"] for row in ended]
    transaction.submit(_QUERIES["end_graph_jobs"], params | {"state": "failed", "ids": ids})


def _note_in_ledger(transaction: Transaction, source: _Source, missed: Missed) -> None:
    ticks, length = source.timing.ticks, source.config.window
    newest = ticks.list_newest(missed.after, missed.until, _ENTRIES_MAX)
    ends, starts, numbers = list(newest), [tick - length for tick in newest], [1] * len(newest)
    rest = missed.count - len(newest)
    if rest:
        first = ticks.next_after(missed.after)
        assert first is not None  # noqa: S101 - there are more ticks than entries
        if rest > 1:
            second = ticks.next_after(first)
            last = ticks.last_until(newest[0] - timedelta(microseconds=1))
            assert second is not None  # noqa: S101 - as above
            assert last is not None  # noqa: S101 - as above
            ends, starts, numbers = [last, *ends], [second - length, *starts], [rest - 1, *numbers]
        # Apart from the gap: it may have been worked on, and has an entry with a reason then.
        ends, starts, numbers = [first, *ends], [first - length, *starts], [1, *numbers]
    transaction.submit(
        _QUERIES["insert_missed_windows"],
        _of(
            transaction,
            source.source_id,
            state=f"missed_{missed.reason}",
            tick_ats=ends,
            window_starts=starts,
            window_ends=ends,
            ticks=numbers,
        ),
    )
    emit_event(
        transaction,
        "source.window_missed",
        {
            "project": transaction.tenant,
            "source": source.source_id,
            "reason": missed.reason,
            "ticks": missed.count,
            "window": {"start": format_instant(starts[0]), "end": format_instant(ends[-1])},
            "links": {"windows": f"/v1/projects/{transaction.tenant}/sources/{source.source_id}/windows"},
        },
    )


def _earliest(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((instant for instant in (one, other) if instant is not None), default=None)


def _of(transaction: Transaction, source_id: str, **params: Any) -> dict[str, Any]:
    return {"tenant": transaction.tenant, "id": source_id, **params}
