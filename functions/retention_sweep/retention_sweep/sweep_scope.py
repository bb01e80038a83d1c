"""Sweep the operational tables of one scope: finite calls, one batch per transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.errors import DatabaseUnavailableError
from coordination.jobengine.registry import OPERATIONAL_TABLES, OperationalTable
from coordination.queries import load_queries
from psycopg.errors import QueryCanceled
from psycopg.rows import DictRow

logger = Logger(child=True)

_QUERIES = load_queries("jobengine")
SPARE_SECONDS = 15.0
"""What a sweep leaves of its invocation for the receipt."""
# What remains is counted up to here for each table and scope: a huge backlog costs no more than a small one.
_COUNT_CAP = 10_000
_FROM_THE_OLDEST: Mapping[str, Any] = MappingProxyType({"after_at": "-infinity", "after_id": UUID(int=0)})


@dataclass(slots=True)
class TableCounts:
    """What a sweep did to one table, over all scopes.

    Attributes
    ----------
    deleted
        Rows.
    remaining
        Rows that have expired and are still there, counted up to a cap for each scope.
    is_remaining_capped
        Whether there may be more than `remaining`.
    is_budget_used_up
        Whether all calls of a scope were made, and the last one was full.
    oldest_age_seconds
        Age of the oldest row that remains; None when none does.
    """

    deleted: int = 0
    remaining: int = 0
    is_remaining_capped: bool = False
    is_budget_used_up: bool = False
    oldest_age_seconds: float | None = None

    def add_remaining(self, left: Mapping[str, Any], row_cap: int) -> None:
        """Add what a scope has left, as `measure_expired` returns it when it counts up to `row_cap` (rows, >= 1)."""
        self.remaining += left["expired"]
        self.is_remaining_capped |= left["expired"] == row_cap
        if left["oldest_age_seconds"] is not None:
            self.oldest_age_seconds = max(self.oldest_age_seconds or 0.0, left["oldest_age_seconds"])


@dataclass(slots=True)
class Sweep:
    """One sweep.

    Attributes
    ----------
    started_at
        On the database's clock; all cut-offs of the sweep count from here.
    scope_count, failed_scope_count
        Scopes that were looked at, and those in which something failed.
    stopped_after
        The last scope that was reached when the time was over; None when all were.
    tables
        What became of each table.
    """

    started_at: datetime
    scope_count: int = 0
    failed_scope_count: int = 0
    stopped_after: str | None = None
    tables: dict[str, TableCounts] = field(
        default_factory=lambda: {table.name: TableCounts() for table in OPERATIONAL_TABLES}
    )

    @property
    def deleted(self) -> int:
        """Rows deleted from all tables."""
        return sum(counts.deleted for counts in self.tables.values())

    @property
    def remaining(self) -> int:
        """Expired rows left in all tables, as far as they were counted."""
        return sum(counts.remaining for counts in self.tables.values())

    def describe_tables(self) -> dict[str, dict[str, Any]]:
        """Return the counts as the receipt holds them."""
        return {
            name: {
                "deleted": counts.deleted,
                "remaining": counts.remaining,
                "is_remaining_capped": counts.is_remaining_capped,
                "is_budget_used_up": counts.is_budget_used_up,
                "is_behind": counts.remaining > 0,
                "oldest_age_seconds": counts.oldest_age_seconds,
            }
            for name, counts in self.tables.items()
        }


def sweep_scope(environment: Environment, sweep: Sweep, scope: str | None, deadline: Deadline) -> None:
    """Sweep the tables of a tenant, or with None the global ones; what fails is logged and counted, not raised.

    One round trip tells what has expired, so that a scope without such rows costs no more. A table that fails does not
    keep the others of the scope from being swept. What is left is counted only where something may be. Locks: the rows
    of one batch at a time.
    """
    tables = [table for table in OPERATIONAL_TABLES if table.is_global == (scope is None)]
    try:
        bounds = _find_expired(environment, sweep, tables, scope, deadline)
    except Exception as error:
        sweep.failed_scope_count += 1
        logger.exception("scope not swept, the next sweep tries again", extra=_describe(scope, error))
        return
    has_failed = False
    unswept: dict[str, dict[str, Any]] = {}
    for table in tables:
        if table.name not in bounds:
            continue
        bound = {"tenant": scope, **bounds[table.name]}
        try:
            after = _sweep_table(environment, table, bound, sweep.tables[table.name], deadline)
        except Exception as error:
            has_failed = True
            after = _FROM_THE_OLDEST
            extra = _describe(scope, error) | {"table": table.name}
            logger.exception("table not swept, the next sweep tries again", extra=extra)
        if after is not None:
            unswept[table.name] = {"table_name": table.name, "row_cap": _COUNT_CAP, **bound, **after}
    if unswept:
        try:
            left, row_cap = _ask_all(environment, "measure_expired", unswept, scope, deadline), _COUNT_CAP
        except Exception as error:
            has_failed = True
            # Of what cannot be counted it is known that there was a row at the beginning, and that there may be more.
            left, row_cap = {name: {"expired": 1, "oldest_age_seconds": None} for name in unswept}, 1
            logger.exception("what is left was not counted", extra=_describe(scope, error))
        for name, measured in left.items():
            sweep.tables[name].add_remaining(measured, row_cap)
    sweep.failed_scope_count += has_failed


def _describe(scope: str | None, error: Exception) -> dict[str, str | None]:
    return {"scope": scope, "error": type(error).__name__}


def _find_expired(
    environment: Environment,
    sweep: Sweep,
    tables: Sequence[OperationalTable],
    scope: str | None,
    deadline: Deadline,
) -> dict[str, dict[str, Any]]:
    """Fix before which place (age, id) rows of each table go, for the whole sweep; only tables that have such rows."""
    settings = environment.settings.jobengine.retention
    params = {
        "tenant": scope,
        "table_names": [table.name for table in tables],
        "expired_before": [sweep.started_at - table.retention(settings) for table in tables],
        "row_budgets": [table.row_budget(settings) for table in tables],
    }
    with environment.database.transaction(
        scope or INSTALLATION, is_read=True, statement_seconds=_statement_seconds(deadline)
    ) as transaction:
        rows = transaction.fetch_all(_QUERIES["find_expired"], params)
    return {row.pop("table_name"): row for row in rows}


def _sweep_table(
    environment: Environment,
    table: OperationalTable,
    bound: Mapping[str, Any],
    counts: TableCounts,
    deadline: Deadline,
) -> Mapping[str, Any] | None:
    """Delete batch after batch; return the place (age, id) after which rows may be left, None when there is none."""
    settings = environment.settings.jobengine.retention
    batch = settings.batch_size
    after, is_full, may_have_passed_over = _FROM_THE_OLDEST, False, False
    for _ in range(settings.max_batches_per_sweep):
        if deadline.remaining_seconds() < SPARE_SECONDS:
            break
        try:
            row = _ask(environment, table.routine, {"batch": batch, **bound, **after}, deadline)
        except DatabaseUnavailableError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            # The batches before it are committed; a smaller one may fit into the time-out.
            batch = max(1, batch // 2)
            is_full = True
            logger.warning("batch timed out, the next is smaller", extra={"table": table.name, "batch": batch})
            continue
        counts.deleted += row["deleted"]
        may_have_passed_over |= row["may_have_passed_over"]
        if row["selected"] < batch:
            # The end: what is left was passed over, if anything is.
            return _FROM_THE_OLDEST if may_have_passed_over else None
        is_full = True
        after = {"after_at": row["last_at"], "after_id": row["last_id"]}
    counts.is_budget_used_up |= is_full
    return _FROM_THE_OLDEST if may_have_passed_over else after


def _ask(environment: Environment, query: str, params: dict[str, Any], deadline: Deadline) -> DictRow:
    """Run one statement of the scope in a transaction of its own."""
    return _ask_all(environment, query, {"": params}, params["tenant"], deadline)[""]


def _ask_all(
    environment: Environment,
    query: str,
    params: Mapping[str, dict[str, Any]],
    scope: str | None,
    deadline: Deadline,
) -> dict[str, DictRow]:
    """Run a statement with several sets of parameters in one transaction that ends before the invocation does."""
    with environment.database.transaction(
        scope or INSTALLATION, statement_seconds=_statement_seconds(deadline)
    ) as transaction:
        cursors = {name: transaction.submit(_QUERIES[query], one) for name, one in params.items()}
    rows = {name: cursor.fetchone() for name, cursor in cursors.items()}
    return {name: row for name, row in rows.items() if row is not None}


def _statement_seconds(deadline: Deadline) -> float:
    return max(1.0, deadline.remaining_seconds() - SPARE_SECONDS / 2)
