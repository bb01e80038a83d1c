"""Sweep the operational tables of one scope: finite calls, one batch per transaction."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.errors import DatabaseUnavailableError
from coordination.jobengine.registry import OPERATIONAL_TABLES, OperationalTable
from coordination.queries import load_queries
from psycopg.errors import ForeignKeyViolation, QueryCanceled
from psycopg.rows import DictRow

logger = Logger(child=True)

_QUERIES = load_queries("jobengine")
SPARE_SECONDS = 15.0
"""What a sweep leaves of its invocation for the receipt."""
# What remains is counted up to here for each table and scope: a huge backlog costs no more than a small one.
_COUNT_CAP = 10_000
_NO_ID = UUID(int=0)


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

    A table that fails does not keep the others of the scope from being swept. Locks: the rows of one batch at a time.
    """
    has_failed = False
    for table in OPERATIONAL_TABLES:
        if table.is_global != (scope is None) or deadline.remaining_seconds() < SPARE_SECONDS:
            continue
        try:
            _sweep_table(environment, sweep, table, scope, deadline)
        except Exception as error:
            has_failed = True
            extra = {"scope": scope, "table": table.name, "error": type(error).__name__}
            logger.exception("table not swept, the next sweep tries again", extra=extra)
    sweep.failed_scope_count += has_failed


def _sweep_table(
    environment: Environment, sweep: Sweep, table: OperationalTable, scope: str | None, deadline: Deadline
) -> None:
    settings = environment.settings.jobengine.retention
    counts = sweep.tables[table.name]
    bound = _ask(
        environment,
        "find_expiry_bound",
        {
            "table_name": table.name,
            "tenant": scope,
            "expired_before": sweep.started_at - table.retention(settings),
            "row_budget": table.row_budget(settings),
        },
        deadline,
    )
    batch = settings.batch_size
    after: dict[str, Any] = {"after_at": "-infinity", "after_id": _NO_ID}
    is_full = False
    for _ in range(settings.max_batches_per_sweep):
        if deadline.remaining_seconds() < SPARE_SECONDS:
            break
        try:
            row = _delete_batch(environment, table, {"tenant": scope, "batch": batch, **bound, **after}, deadline)
        except DatabaseUnavailableError as error:
            if not isinstance(error.__cause__, QueryCanceled):
                raise
            # The batches before it are committed; a smaller one may fit into the time-out.
            batch = max(1, batch // 2)
            is_full = True
            logger.warning("batch timed out, the next is smaller", extra={"table": table.name, "batch": batch})
            continue
        counts.deleted += row["deleted"]
        is_full = row["selected"] == batch
        if not is_full:
            break
        after = {"after_at": row["last_at"], "after_id": row["last_id"]}
    counts.is_budget_used_up |= is_full
    _count_remaining(environment, table, scope, bound, counts, deadline)


def _count_remaining(
    environment: Environment,
    table: OperationalTable,
    scope: str | None,
    bound: DictRow,
    counts: TableCounts,
    deadline: Deadline,
) -> None:
    left = _ask(
        environment,
        "measure_expired",
        {"table_name": table.name, "tenant": scope, **bound, "row_cap": _COUNT_CAP},
        deadline,
    )
    counts.remaining += left["expired"]
    counts.is_remaining_capped |= left["expired"] == _COUNT_CAP
    if left["oldest_age_seconds"] is not None:
        counts.oldest_age_seconds = max(counts.oldest_age_seconds or 0.0, left["oldest_age_seconds"])


def _delete_batch(
    environment: Environment, table: OperationalTable, params: dict[str, Any], deadline: Deadline
) -> DictRow:
    try:
        return _ask(environment, table.routine, params, deadline)
    except ForeignKeyViolation:
        # A trigger took up one of the jobs after the batch had chosen it; in a fresh snapshot it is passed over.
        return _ask(environment, table.routine, params, deadline)


def _ask(environment: Environment, query: str, params: dict[str, Any], deadline: Deadline) -> DictRow:
    """Run one statement of the scope in a transaction of its own that ends before the invocation does."""
    tenant = params["tenant"] or INSTALLATION
    remaining = max(1.0, deadline.remaining_seconds() - SPARE_SECONDS / 2)
    with environment.database.transaction(tenant, statement_seconds=remaining) as transaction:
        row = transaction.fetch_one(_QUERIES[query], params)
    assert row is not None  # noqa: S101 - each of these statements returns one row
    return row
