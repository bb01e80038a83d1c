"""Create, read, change and retire sources."""

from datetime import datetime
from typing import Any

from coordination.access import Principal
from coordination.cron import Ticks, parse_cron
from coordination.database import Transaction
from coordination.errors import InvalidRequestError, NotFoundError, SourceExistsError
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page
from coordination.http.validation import read_faults
from coordination.queries import load_queries
from coordination.settings import Settings
from coordination.sources import SourceConfig, read_ticks, schedule_next_tick, schedule_wake_up, store_config
from psycopg.types.json import Jsonb
from pydantic import ValidationError

from api.sources.models import CreateSource, LastTick, Source, SourceFields, SourceSummary, SourceWindow, UpdateSource
from api.sources.source_rows import make_config, make_schedule, to_fields, to_source

_QUERIES = load_queries("sources")


def create_source(transaction: Transaction, new: CreateSource, settings: Settings, principal: Principal) -> Source:
    """Create a source in the caller's transaction; its ticks count from now on.

    Raises
    ------
    InvalidRequestError
        As `make_config`.
    SourceExistsError
        The id is taken, by a retired source too.
    """
    config = make_config(new, settings, transaction.tenant)
    params = _of(transaction, new.id, **make_schedule(new.schedule.cron), paused=new.paused, created_by=principal.id)
    inserted = transaction.fetch_one(_QUERIES["insert_schedule"], params)
    if inserted is None:
        raise SourceExistsError(f"There is a source {new.id!r}, or was one: a retired source keeps its id and windows.")
    transaction.submit(_QUERIES["insert_source"], params | store_config(config))
    if not new.paused:
        ticks = Ticks(parse_cron(new.schedule.cron))
        schedule_next_tick(transaction, new.id, ticks, config, inserted["cursor_at"])
    return get_source(transaction, new.id)


def find_source_row(transaction: Transaction, source_id: str) -> dict[str, Any]:
    """Return the row of a source.

    Raises
    ------
    NotFoundError
        There is none of that id, or it is retired.
    """
    row = transaction.fetch_one(_QUERIES["find_source"], _of(transaction, source_id))
    if row is None:
        raise NotFoundError("There is no such source here: it never was, or it is retired.")
    return row


def get_source(transaction: Transaction, source_id: str) -> Source:
    """Return a source.

    Raises
    ------
    NotFoundError
        There is none of that id, or it is retired.
    """
    return to_source(find_source_row(transaction, source_id))


def list_sources(transaction: Transaction, query: PageQuery) -> Page[Source]:
    """List sources by id; retired ones are left out."""
    after = decode_cursor("sources", query.cursor, str)
    rows = transaction.fetch_all(
        _QUERIES["list_sources"],
        {"tenant": transaction.tenant, "after": after[0] if after else None, "limit": query.limit + 1},
    )
    return make_page("sources", rows, query.limit, to_source, lambda row: [row["id"]])


def read_time(transaction: Transaction) -> datetime:
    """Return the time from which a new source's ticks would count: the database's, as for those that are stored."""
    row = transaction.fetch_one(_QUERIES["read_time"])
    assert row is not None  # noqa: S101 - a SELECT of one row
    return row["now"]


def update_source(transaction: Transaction, source_id: str, update: UpdateSource, settings: Settings) -> Source:
    """Change fields of a source in the caller's transaction.

    Another meaning of the cron, pausing and resuming let ticks count from now on: what was open is skipped, and no tick
    in the past is worked on. Locks the schedule's row: a pull that is reading meanwhile finds its cursor moved.

    Raises
    ------
    NotFoundError
        There is none of that id.
    InvalidRequestError
        The source would not be valid with these fields.
    """
    lock_source(transaction, source_id)
    row = find_source_row(transaction, source_id)
    wanted = to_fields(row) | update.model_dump(mode="json")
    try:
        fields = SourceFields.model_validate(wanted)
    except ValidationError as error:
        raise InvalidRequestError.at(read_faults(error, wanted)) from error
    config = make_config(fields, settings, transaction.tenant)
    sets = parse_cron(fields.schedule.cron)
    is_restarted = sets != read_ticks(row).sets or fields.paused != row["paused"]
    params = _of(transaction, source_id, **make_schedule(fields.schedule.cron), paused=fields.paused)
    transaction.submit(_QUERIES["update_source"], params | store_config(config))
    _write_schedule(transaction, params, Ticks(sets), config, is_restarted=is_restarted)
    return get_source(transaction, source_id)


def pause_source(transaction: Transaction, source_id: str, *, is_paused: bool) -> Source:
    """Pause or resume a source in the caller's transaction; one that is so already stays as it is.

    Nothing of it is checked again: a source can always be paused.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    lock_source(transaction, source_id)
    row = find_source_row(transaction, source_id)
    if row["paused"] != is_paused:
        schedule = {
            "cron": row["cron"],
            "cron_sets": Jsonb(row["cron_sets"]),
            "grammar_version": row["grammar_version"],
        }
        config = SourceConfig.model_validate(row["config"])
        params = _of(transaction, source_id, **schedule, paused=is_paused)
        _write_schedule(transaction, params, read_ticks(row), config, is_restarted=True)
    return get_source(transaction, source_id)


def retire_source(transaction: Transaction, source_id: str) -> None:
    """Take a source out of use in the caller's transaction; its runs, ticks and windows stay.

    Raises
    ------
    NotFoundError
        There is none of that id, or it is retired already.
    """
    if transaction.fetch_one(_QUERIES["retire_schedule"], _of(transaction, source_id)) is None:
        raise NotFoundError("There is no such source here: it never was, or it is retired.")
    give_up_open_windows(transaction, source_id, ["working", "requested"])
    schedule_wake_up(transaction, source_id, None)


def lock_source(transaction: Transaction, source_id: str) -> dict[str, Any]:
    """Lock a source's schedule until the transaction ends and return it.

    Raises
    ------
    NotFoundError
        There is none of that id, or it is retired.
    """
    row = transaction.fetch_one(_QUERIES["lock_schedule"], _of(transaction, source_id))
    if row is None:
        raise NotFoundError("There is no such source here: it never was, or it is retired.")
    return row


def give_up_open_windows(
    transaction: Transaction, source_id: str, states: list[str], tick_at: datetime | None = None
) -> None:
    """Skip windows that are open, or the one of a tick, and cancel what was being planned of them."""
    params = _of(transaction, source_id)
    transaction.submit(_QUERIES["skip_windows"], params | {"states": states, "tick_at": tick_at})
    ended = transaction.fetch_all(_QUERIES["fail_open_ticks"], params | {"state": "cancelled"})
    ids = [row["id"] for row in ended]
    transaction.submit(_QUERIES["end_graph_jobs"], params | {"state": "canceled", "ids": ids})


def read_summary(transaction: Transaction, source_id: str) -> SourceSummary:
    """Return what a source did last, computed from the latest tick that is kept.

    Raises
    ------
    NotFoundError
        There is none of that id, or it is retired.
    """
    row = transaction.fetch_one(_QUERIES["read_source_summary"], _of(transaction, source_id))
    source = get_source(transaction, source_id)
    return SourceSummary(
        source=source_id,
        last_tick=None if row is None else _to_last_tick(row),
        missed_deadline=source.missed_deadline,
        missed_overlap=source.missed_overlap,
        failed_attempts=source.failed_attempts,
    )


def _write_schedule(
    transaction: Transaction, params: dict[str, Any], ticks: Ticks, config: SourceConfig, *, is_restarted: bool
) -> None:
    written = transaction.fetch_one(_QUERIES["update_schedule"], params | {"is_restarted": is_restarted})
    assert written is not None  # noqa: S101 - the row is locked
    source_id = params["id"]
    if is_restarted:
        give_up_open_windows(transaction, source_id, ["working"])
    if params["paused"]:
        # Windows that were asked for by hand are run all the same: one look finds them.
        schedule_wake_up(transaction, source_id, written["cursor_at"])
    else:
        schedule_next_tick(transaction, source_id, ticks, config, written["cursor_at"])


def _to_last_tick(row: dict[str, Any]) -> LastTick:
    return LastTick(
        tick=row["tick_at"],
        window=SourceWindow(start=row["window_start"], end=row["window_end"]),
        state=row["state"],
        run=row["evaluation_id"],
        run_state=row["run_state"],
        records=row["records_total"],
        scored=row["results_scored"],
        skipped=row["results_skipped"],
        errors=row["results_errors"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
    )


def _of(transaction: Transaction, source_id: str, **params: Any) -> dict[str, Any]:
    return {"tenant": transaction.tenant, "id": source_id, **params}
