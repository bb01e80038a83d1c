"""Read runs: one, many, their results, their outputs, their report."""

import time
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson
from coordination.clock import Deadline
from coordination.database import Database, Transaction
from coordination.errors import NotFoundError, RunNotFinishedError, RunWithoutReportError
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page, read_number, read_text
from coordination.http.validation import read_path_id
from coordination.queries import load_queries
from coordination.runs import TERMINAL_STATES, Run, to_run

from api.runs.models import Output, Report, Result, ResultQuery, RunQuery

_QUERIES = load_queries("runs")
_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 1.0
_SPARE_SECONDS = 2.0
# Of one page, as JSON: Lambda carries it escaped, which may double it.
_MAX_OUTPUT_BYTES = 2 * 1024 * 1024


def parse_run_id(reference: str) -> UUID:
    """Read a run's id out of the path.

    Raises
    ------
    NotFoundError
        It is no UUID.
    """
    return read_path_id(reference, "run")


def get_run(transaction: Transaction, run_id: UUID) -> Run:
    """Return a run.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    row = transaction.fetch_one(_QUERIES["find_run"], {"tenant": transaction.tenant, "id": run_id})
    if row is None:
        raise NotFoundError("There is no such run here: it never was, or it was deleted or its retention is over.")
    return to_run(row)


def wait_for_run(database: Database, project: str, run_id: UUID, wait_seconds: int, deadline: Deadline) -> None:
    """Return when a run has ended or is unknown, at the latest after `wait_seconds` (0..20).

    Looks in short transactions of their own, at growing intervals: nothing is held while it waits.
    """
    until = time.monotonic() + min(wait_seconds, deadline.remaining_seconds() - _SPARE_SECONDS)
    pause = _FIRST_WAIT_SECONDS
    while time.monotonic() + pause < until:
        with database.transaction(project) as transaction:
            row = transaction.fetch_one(_QUERIES["read_run_state"], {"tenant": project, "id": run_id})
        if row is None or row["state"] in TERMINAL_STATES:
            return
        time.sleep(pause)
        pause = min(_LONGEST_WAIT_SECONDS, pause * 1.5)


def list_runs(transaction: Transaction, query: RunQuery) -> Page[Run]:
    """List runs, newest first."""
    after = decode_cursor("runs", query.cursor, datetime.fromisoformat, UUID)
    key, _, value = (query.label or "").partition("=")
    rows = transaction.fetch_all(
        _QUERIES["list_runs"],
        {
            "tenant": transaction.tenant,
            "state": query.state,
            "label_key": key or None,
            "label_value": value,
            "source": query.source,
            "created_after": query.created_after,
            "after_created_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page("runs", rows, query.limit, to_run, lambda row: [row["created_at"].isoformat(), str(row["id"])])


def list_results(transaction: Transaction, run_id: UUID, query: ResultQuery) -> Page[Result]:
    """List results in the order of the records.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    after = decode_cursor("results", query.cursor, read_number(2**31 - 1), read_number(2**15 - 1), read_text)
    run = transaction.submit(_QUERIES["read_run_state"], {"tenant": transaction.tenant, "id": run_id})
    rows = transaction.fetch_all(
        _QUERIES["list_results"],
        {
            "tenant": transaction.tenant,
            "run_id": run_id,
            "evaluator": query.evaluator,
            "status": query.status,
            "after_record_no": after[0] if after else None,
            "after_trial": after[1] if after else None,
            "after_evaluator": after[2] if after else None,
            "limit": query.limit + 1,
        },
    )
    if run.fetchone() is None:
        raise NotFoundError("There is no such run here.")
    return make_page(
        "results", rows, query.limit, _to_result, lambda row: [row["record_no"], row["trial"], row["evaluator"]]
    )


def list_outputs(transaction: Transaction, run_id: UUID, query: PageQuery) -> Page[Output]:
    """List what a run's target answered, in the order of the records; a page ends early when outputs are large.

    Raises
    ------
    NotFoundError
        There is no such run.
    """
    after = decode_cursor("outputs", query.cursor, read_number(2**31 - 1), read_number(2**15 - 1))
    run = transaction.submit(_QUERIES["read_run_state"], {"tenant": transaction.tenant, "id": run_id})
    rows = transaction.fetch_all(
        _QUERIES["list_outputs"],
        {
            "tenant": transaction.tenant,
            "run_id": run_id,
            "after_record_no": after[0] if after else None,
            "after_trial": after[1] if after else None,
            "limit": query.limit + 1,
            "max_bytes": _MAX_OUTPUT_BYTES,
        },
    )
    if run.fetchone() is None:
        raise NotFoundError("There is no such run here.")
    # Rows that did not fit count as one too many, as the row beyond the limit does.
    shown = min(query.limit, len(rows))
    left = rows[-1:] if rows and rows[0]["fetched"] > shown else []
    return make_page("outputs", [*rows[:shown], *left], shown, _to_output, lambda row: [row["record_no"], row["trial"]])


def read_report(transaction: Transaction, run_id: UUID) -> Report:
    """Return the report of a finished run.

    Raises
    ------
    NotFoundError
        There is no such run.
    RunNotFinishedError
        It has not ended yet.
    RunWithoutReportError
        It ended in error or was cancelled before there was one.
    """
    row = transaction.fetch_one(_QUERIES["read_report"], {"tenant": transaction.tenant, "id": run_id})
    if row is None:
        raise NotFoundError("There is no such run here.")
    if row["report"] is None:
        if row["state"] not in TERMINAL_STATES:
            raise RunNotFinishedError(
                f"The run is {row['state']}. Wait for it: GET …/runs/{run_id}?wait_seconds=20.", retry_after_seconds=5
            )
        raise RunWithoutReportError(f"The run ended as {row['state']}: GET …/runs/{run_id} says why.")
    return Report.model_validate(row["report"])


def _to_output(row: dict[str, Any]) -> Output:
    return Output(
        record=row["record"],
        trial=row["trial"],
        output=orjson.loads(row["output"]) if row["output"] is not None else None,
        error=row["error"],
        latency_ms=row["latency_ms"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cost_usd=row["cost_usd"],
        attempts=row["attempts"],
        created_at=row["created_at"],
    )


def _to_result(row: dict[str, Any]) -> Result:
    return Result(
        record=row["record"],
        trial=row["trial"],
        evaluator=row["evaluator"],
        status=row["status"],
        score=row["score"],
        passed=row["passed"],
        error=row["error"],
    )
