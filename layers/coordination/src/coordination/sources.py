"""Sources: what api and scheduled_pull know of them alike."""

import hashlib
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID, uuid5

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field
from records.canonical_json import canonical_json
from records.redaction import RedactionRules

from coordination.clock import format_instant
from coordination.cron import CronSets, Ticks
from coordination.database import Transaction
from coordination.models import Instant, ResponseModel
from coordination.queries import load_queries
from coordination.runs import RunConfig
from coordination.sinks import Sink
from coordination.source_locations import ConnectorName
from coordination.wake_ups import WakeUp

_QUERIES = load_queries("sources")
_WAKE_UPS = load_queries("wake_ups")

# Names of runs that sources make; never to be changed, or a retry would make a second run.
_RUN_IDS = UUID("5d6c1d7e-95a5-4f0e-8a0b-0e3f6f3a9c11")

type WindowState = Literal["requested", "working", "done", "empty", "missed_deadline", "missed_overlap", "skipped"]


class SourceConfig(BaseModel):
    """All that decides what a source pulls and how it is evaluated, complete: defaults applied.

    Attributes
    ----------
    connector, location
        The trace store and the place in it.
    endpoint, credentials
        Address of the store, and the name of the secret that opens it.
    window_seconds, settle_seconds, starting_deadline_seconds
        Length of a window; how long after a tick its window is read; how long after a tick it may be begun.
    max_traces, max_snapshot_bytes
        A window with more is not cut: its attempt fails.
    redaction, mapping
        What is taken out, and where fields of records are found instead of their usual places.
    run
        Evaluators and gates.
    labels, sinks
        Of each run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connector: ConnectorName
    location: str
    endpoint: str | None = None
    credentials: str | None = None
    window_seconds: int
    settle_seconds: int
    starting_deadline_seconds: int
    max_traces: int
    max_snapshot_bytes: int
    redaction: RedactionRules
    mapping: dict[str, str]
    run: RunConfig
    labels: dict[str, str]
    sinks: list[Sink] = []

    @property
    def sha256(self) -> str:
        """SHA-256 over its canonical JSON, 64 hex digits."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    @property
    def window(self) -> timedelta:
        """Length of a window."""
        return timedelta(seconds=self.window_seconds)

    @property
    def settle(self) -> timedelta:
        """How long after its tick a window is read."""
        return timedelta(seconds=self.settle_seconds)

    @property
    def starting_deadline(self) -> timedelta:
        """How long after its tick a window may be worked on."""
        return timedelta(seconds=self.starting_deadline_seconds)


class SourceWindow(ResponseModel):
    """A window: start inclusive, end exclusive."""

    start: Instant
    end: Instant


class LedgerEntry(ResponseModel):
    """What became of one tick; a gap too long for an entry a tick is one entry that counts them."""

    tick: Annotated[Instant, Field(description="of a gap: its last tick")]
    window: Annotated[SourceWindow, Field(description="of a gap: from its first window to its last")]
    ticks: Annotated[int, Field(description="more than 1 for a gap")]
    state: Annotated[
        str, Field(description="requested, working, done, empty, missed_deadline, missed_overlap or skipped")
    ]
    attempts: int
    traces: Annotated[int | None, Field(description="in the window; null until it was read")]
    error_code: str | None
    error: Annotated[str | None, Field(description="why the last attempt failed")]
    trace_id: Annotated[str | None, Field(description="the trace it failed at")]
    run: Annotated[UUID | None, Field(description="the latest run made of this window")]
    excluded_trace_ids: list[str]
    requested_by: Annotated[str | None, Field(description="who asked for it to be run by hand")]
    next_attempt_at: Instant | None
    updated_at: Instant


def source_wake_up(project: str, source_id: str) -> WakeUp:
    """Return the nudge that makes a source look at its ticks; each active source has one."""
    return WakeUp("pull", "source_tick", project, source_id)


def make_run_id(project: str, source_id: str, config_sha256: str, start: datetime, end: datetime) -> UUID:
    """Name the run of a window: the same for every attempt, another one when the source has changed."""
    return uuid5(
        _RUN_IDS, "\n".join((project, source_id, config_sha256, str(to_microseconds(start)), str(to_microseconds(end))))
    )


def to_microseconds(instant: datetime) -> int:
    """Return microseconds since 1970, exactly."""
    return (instant - datetime.fromtimestamp(0, instant.tzinfo)) // timedelta(microseconds=1)


def schedule_wake_up(transaction: Transaction, source_id: str, due_at: datetime | None) -> None:
    """Make a source look at its ticks at an instant; None when it has none any more. Locks the wake-up's row."""
    wake_up = source_wake_up(transaction.tenant, source_id)
    if due_at is None:
        transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
    else:
        transaction.submit(_QUERIES["schedule_source"], wake_up.row_key | {"due_at": due_at})


def schedule_next_tick(
    transaction: Transaction, source_id: str, ticks: Ticks, config: SourceConfig, after: datetime
) -> None:
    """Make a source wake up when the first tick after an instant is due."""
    tick = ticks.next_after(after)
    schedule_wake_up(transaction, source_id, None if tick is None else tick + config.settle)


def read_ticks(row: dict[str, Any]) -> Ticks:
    """Return the ticks of a schedule's row: of the sets that were stored, whatever a library thinks today."""
    return Ticks(CronSets.from_json(row["cron_sets"]))


def to_ledger_entry(row: dict[str, Any]) -> LedgerEntry:
    """Make an entry of its row."""
    return LedgerEntry(
        tick=row["tick_at"],
        window=SourceWindow(start=row["window_start"], end=row["window_end"]),
        ticks=row["ticks"],
        state=row["state"],
        attempts=row["attempts"],
        traces=row["traces"],
        error_code=row["error_code"],
        error=row["error"],
        trace_id=row["trace_id"],
        run=row["evaluation_id"],
        excluded_trace_ids=row["exclude_trace_ids"],
        requested_by=row["requested_by"],
        next_attempt_at=row["next_attempt_at"],
        updated_at=row["updated_at"],
    )


def store_config(config: SourceConfig) -> dict[str, Any]:
    """Return the columns that hold a configuration."""
    return {"config": Jsonb(config.model_dump(mode="json")), "config_sha256": config.sha256}


def name_window(source_id: str, start: datetime) -> str:
    """Name the run of a window, for people."""
    return f"{source_id} {format_instant(start)}"
