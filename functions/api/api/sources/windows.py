"""The ledger of a source's windows: read it, run a window by hand, give one up."""

from datetime import datetime, timedelta
from typing import Any

from coordination.access import Principal
from coordination.clock import read_instant
from coordination.cron import Ticks
from coordination.database import Transaction
from coordination.errors import NotFoundError, WindowNotOpenError
from coordination.http.pages import Page, decode_cursor, make_page
from coordination.queries import load_queries
from coordination.sources import LedgerEntry, SourceConfig, read_ticks, source_wake_up, to_ledger_entry

from api.sources.manage_sources import find_source_row, give_up_open_windows, lock_source
from api.sources.models import RunWindow, WindowQuery

_QUERIES = load_queries("sources")
_NO_WINDOW = "No window that was decided starts then; GET …/windows lists them."


def list_windows(transaction: Transaction, source_id: str, query: WindowQuery) -> Page[LedgerEntry]:
    """List what became of a source's ticks, newest first.

    Raises
    ------
    NotFoundError
        There is no such source.
    """
    after = decode_cursor("windows", query.cursor, datetime.fromisoformat)
    rows = transaction.fetch_all(
        _QUERIES["list_windows"],
        _of(transaction, source_id, state=query.state, after=after[0] if after else None, limit=query.limit + 1),
    )
    find_source_row(transaction, source_id)
    return make_page("windows", rows, query.limit, to_ledger_entry, lambda row: [row["tick_at"].isoformat()])


def run_window(
    transaction: Transaction, source_id: str, start: str, request: RunWindow, principal: Principal
) -> LedgerEntry:
    """Have a window run by hand, in the caller's transaction: a missed one, or a decided one again as a new run.

    A window that is being tried is tried again at once, without the traces named. Locks the schedule's row.

    Raises
    ------
    NotFoundError
        There is no such source, or no decided window that starts then.
    """
    schedule = lock_source(transaction, source_id)
    source = find_source_row(transaction, source_id)
    config = SourceConfig.model_validate(source["config"])
    window = _find_window(transaction, source_id, schedule, config, _read_start(start))
    params = _of(
        transaction,
        source_id,
        **window,
        exclude_trace_ids=request.exclude_trace_ids,
        requested_by=principal.id,
        deadline_seconds=config.starting_deadline_seconds,
    )
    is_open = window["state"] == "working"
    transaction.submit(_QUERIES["exclude_traces_of_window" if is_open else "request_window"], params)
    transaction.wake(source_wake_up(transaction.tenant, source_id))
    return _read_window(transaction, source_id, window["window_start"])


def skip_window(transaction: Transaction, source_id: str, start: str) -> LedgerEntry:
    """Give up a window that is being tried, in the caller's transaction: its tick is decided.

    Locks the schedule's row: a pull that is reading it meanwhile finds the cursor moved and writes nothing.

    Raises
    ------
    NotFoundError
        There is no such source, or no window that starts then.
    WindowNotOpenError
        It is decided already.
    """
    schedule = lock_source(transaction, source_id)
    instant = _read_start(start)
    row = transaction.fetch_one(_QUERIES["find_window_by_start"], _of(transaction, source_id, start=instant))
    if row is None:
        raise NotFoundError(_NO_WINDOW)
    if row["state"] not in ("working", "requested"):
        raise WindowNotOpenError(f"The window is {row['state']}; only one that is working or requested can be skipped.")
    if row["state"] == "working":
        moved = _of(transaction, source_id, cursor_at=row["tick_at"], expected=schedule["cursor_at"])
        transaction.submit(_QUERIES["move_cursor"], moved)
    give_up_open_windows(transaction, source_id, [row["state"]], row["tick_at"])
    transaction.wake(source_wake_up(transaction.tenant, source_id))
    return _read_window(transaction, source_id, instant)


def _find_window(
    transaction: Transaction, source_id: str, schedule: dict[str, Any], config: SourceConfig, start: datetime
) -> dict[str, Any]:
    """Return tick, window and state of a decided window; one inside a gap has no entry of its own yet."""
    params = _of(transaction, source_id, start=start)
    row = transaction.fetch_one(_QUERIES["find_window_by_start"], params)
    if row is not None:
        return {name: row[name] for name in ("tick_at", "window_start", "window_end", "state")}
    try:
        tick = start + config.window
    except OverflowError:
        raise NotFoundError(_NO_WINDOW) from None
    ticks = read_ticks(schedule)
    if ticks.is_tick(tick):
        gap = transaction.fetch_one(_QUERIES["find_gap_of_tick"], params | {"tick_at": tick})
        if gap is not None:
            if gap["tick_at"] == tick:
                _shorten_gap(transaction, source_id, ticks, gap)
            return {"tick_at": tick, "window_start": start, "window_end": tick, "state": "missed_deadline"}
    raise NotFoundError(_NO_WINDOW)


def _shorten_gap(transaction: Transaction, source_id: str, ticks: Ticks, gap: dict[str, Any]) -> None:
    """Let a gap end before its last tick, whose entry takes the gap's place, and before others that have one."""
    last: datetime = gap["tick_at"]
    left: int = gap["ticks"]
    is_taken = True
    while is_taken and left > 1:
        before = ticks.last_until(last - timedelta(microseconds=1))
        assert before is not None  # noqa: S101 - a gap has as many ticks
        last, left = before, left - 1
        params = _of(transaction, source_id, tick_at=last)
        is_taken = transaction.fetch_one(_QUERIES["find_window_of_tick"], params) is not None
    if is_taken:
        raise NotFoundError(_NO_WINDOW)
    params = _of(transaction, source_id, tick_at=gap["tick_at"], last_tick_at=last, ticks=left)
    transaction.submit(_QUERIES["shorten_gap"], params)


def _read_window(transaction: Transaction, source_id: str, start: datetime) -> LedgerEntry:
    row = transaction.fetch_one(_QUERIES["find_window_by_start"], _of(transaction, source_id, start=start))
    assert row is not None  # noqa: S101 - it was written in this transaction
    return to_ledger_entry(row)


def _read_start(text: str) -> datetime:
    """Read the start of a window out of the path.

    Raises
    ------
    NotFoundError
        It is no instant.
    """
    try:
        return read_instant(text)
    except ValueError as error:
        raise NotFoundError(f"A window is named by its start, which {error}.") from None


def _of(transaction: Transaction, source_id: str, **params: Any) -> dict[str, Any]:
    return {"tenant": transaction.tenant, "id": source_id, **params}
