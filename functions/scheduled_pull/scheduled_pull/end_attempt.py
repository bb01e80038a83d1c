"""The last transaction of a pull: the window is a run, or empty, or its attempt has failed."""

import hashlib
from datetime import datetime
from typing import Any

from coordination.database import Transaction
from coordination.failures import record_failure, resolve_failures
from coordination.queries import load_queries
from coordination.run_quota import require_room_for_run
from coordination.sinks import insert_sinks
from coordination.snapshots import snapshot_key
from coordination.sources import name_window, schedule_next_tick, schedule_wake_up
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.canonical_json import canonical_json

from scheduled_pull.begin_attempt import Attempt
from scheduled_pull.snapshot import Snapshot
from scheduled_pull.traces import PullFailedError

_QUERIES = load_queries("sources")
_RUNS = load_queries("runs")


class CursorMovedError(Exception):
    """The source was edited, paused, retired or decided by somebody else meanwhile: nothing of this pull counts."""


def complete_attempt(transaction: Transaction, attempt: Attempt, snapshot: Snapshot | None) -> None:
    """Write all that a window becomes, in the caller's transaction, which holds the lease.

    Parameters
    ----------
    transaction
        Locks the schedule's row, the project's and the quota's lock, the rows of tick and window, the wake-ups.
    attempt
        The attempt that read it.
    snapshot
        Its records, stored; None for an empty window, which makes no run.

    Raises
    ------
    CursorMovedError
        The cursor is not where the attempt saw it.
    RunQuotaExceededError
        The project stores as many runs as it may.
    """
    params = _of(attempt)
    if attempt.cursor_at is not None:
        moved = transaction.fetch_one(
            _QUERIES["move_cursor"], params | {"cursor_at": attempt.tick_at, "expected": attempt.cursor_at}
        )
        if moved is None:
            raise CursorMovedError(attempt.source_id)
    elif transaction.fetch_one(_QUERIES["lock_schedule"], params) is None:
        raise CursorMovedError(attempt.source_id)
    run_id = None
    if snapshot is not None:
        run_id = attempt.run_id
        _insert_run(transaction, attempt, snapshot)
        transaction.submit(_QUERIES["note_latest_run"], params | {"evaluation_id": run_id})
    outcome = params | {
        "evaluation_id": run_id,
        "traces": snapshot.records if snapshot else 0,
        "snapshot_bytes": len(snapshot.content) if snapshot else None,
    }
    transaction.submit(_QUERIES["complete_window"], outcome)
    transaction.submit(_QUERIES["complete_tick"], outcome)
    transaction.submit(_QUERIES["complete_graph_job"], outcome)
    resolve_failures(transaction, ["pull"], attempt.source_id)
    _schedule_next(transaction, attempt)


def fail_attempt(transaction: Transaction, attempt: Attempt, failure: PullFailedError) -> None:
    """Note why an attempt failed; the cursor stays, and the same window is tried again when its time has come."""
    params = _of(attempt)
    row = transaction.fetch_one(
        _QUERIES["fail_window"],
        params | {"error_code": failure.code, "error": failure.detail, "trace_id": failure.trace_id},
    )
    transaction.submit(_QUERIES["count_failed_attempt"], params)
    transaction.submit(_QUERIES["fail_graph_job"], params | {"error": failure.code})
    record_failure(transaction, "pull", attempt.source_id, f"{failure.code}: {failure.detail}")
    schedule_wake_up(transaction, attempt.source_id, _retry_at(attempt, row["next_attempt_at"] if row else None))


def _retry_at(attempt: Attempt, next_attempt_at: datetime | None) -> datetime:
    """Return when to look again: the next attempt, or the deadline at which the window is missed."""
    until = attempt.tick_at + attempt.config.starting_deadline
    return until if next_attempt_at is None else min(next_attempt_at, until) if attempt.cursor_at else next_attempt_at


def _schedule_next(transaction: Transaction, attempt: Attempt) -> None:
    # The tick after this one may be due already; one whose cursor did not move is looked at again right away.
    after = attempt.tick_at if attempt.cursor_at is not None else None
    if after is None:
        schedule_wake_up(transaction, attempt.source_id, attempt.tick_at)
    else:
        schedule_next_tick(transaction, attempt.source_id, attempt.ticks, attempt.config, after)


def _insert_run(transaction: Transaction, attempt: Attempt, snapshot: Snapshot) -> None:
    """Insert the run with all it owns; one of that id that is there already is the same run, and stays as it is."""
    require_room_for_run(transaction)
    config = attempt.config.run.model_dump(mode="json")
    params = _of(attempt) | {"run_id": attempt.run_id}
    inserted = transaction.fetch_one(
        _QUERIES["insert_source_run"],
        params
        | {
            "name": name_window(attempt.source_id, attempt.window.start),
            "config": Jsonb(config),
            "config_sha256": hashlib.sha256(canonical_json(config)).hexdigest(),
            "records": snapshot.records,
            "created_by": f"source:{attempt.source_id}",
        },
    )
    if inserted is None:
        return
    labels = attempt.config.labels
    if labels:
        transaction.submit(_RUNS["insert_run_labels"], params | {"keys": list(labels), "values": list(labels.values())})
    transaction.submit(
        _QUERIES["insert_source_snapshot"],
        params
        | {
            "sha256": snapshot.sha256,
            "path": snapshot_key(attempt.project, attempt.run_id, snapshot.sha256),
            "records": snapshot.records,
            "bytes": len(snapshot.content),
            "redactions": Jsonb(snapshot.redactions),
            "excluded": sorted(attempt.excluded),
        },
    )
    insert_sinks(transaction, attempt.run_id, attempt.config.sinks)
    transaction.submit(_RUNS["insert_dispatch"], params)
    transaction.wake(WakeUp("evaluation", "run", attempt.project, str(attempt.run_id)))


def _of(attempt: Attempt) -> dict[str, Any]:
    return {
        "tenant": attempt.project,
        "id": attempt.source_id,
        "tick_id": attempt.tick_id,
        "tick_at": attempt.tick_at,
        "window_start": attempt.window.start,
        "window_end": attempt.window.end,
    }
