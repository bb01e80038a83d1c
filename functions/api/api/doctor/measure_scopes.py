"""One walk through all scopes for every check that needs one, each scope in one round trip."""

from collections import Counter
from dataclasses import dataclass, field

from coordination.clock import Deadline
from coordination.database import INSTALLATION, Transaction
from coordination.environment import Environment
from coordination.jobengine.registry import MEASURED_TABLES, OperationalTable
from coordination.projects import iterate_projects
from coordination.queries import load_queries
from coordination.source_health import read_source_health
from psycopg import Cursor
from psycopg.rows import DictRow

_QUERIES = load_queries("jobengine")
# Of the request's time: a doctor that does not answer helps nobody.
_SPARE_SECONDS = 9.0
_STUCK_SECONDS = 15 * 60


@dataclass(slots=True)
class TableMeasure:
    """Counts of one table over all scopes, each scope's at most the cap.

    Attributes
    ----------
    eligible_maximum
        Most ended rows that nothing protects, in any scope.
    expired, protected, incomplete
        Sums.
    """

    eligible_maximum: int = 0
    expired: int = 0
    protected: int = 0
    incomplete: int = 0


@dataclass(slots=True)
class Measures:
    """What the walk found.

    Attributes
    ----------
    scope_count, measured_scope_count
        All scopes, the global one included, and those that were reached in time.
    row_cap
        Up to which rows are counted in each scope.
    tables
        By name.
    stuck_dispatches
        Runs of projects that are not paused which nobody took up for 15 minutes.
    source_count, late_source_count, missed_window_count
        Sources in use; those that missed ticks of the last day; entries of their ledgers that say so.
    behind_source_count
        Sources with a window that waits to be read longer than it should.
    missed_reasons
        Missed ticks of the last day by reason.
    idempotency_scope_count, fullest_records, fullest_bytes
        Scopes that hold records, and the most that one of them holds.
    """

    row_cap: int
    scope_count: int = 0
    measured_scope_count: int = 0
    tables: dict[str, TableMeasure] = field(default_factory=lambda: {name: TableMeasure() for name in MEASURED_TABLES})
    stuck_dispatches: int = 0
    source_count: int = 0
    behind_source_count: int = 0
    late_source_count: int = 0
    missed_window_count: int = 0
    missed_reasons: Counter[str] = field(default_factory=Counter[str])
    idempotency_scope_count: int = 0
    fullest_records: int = 0
    fullest_bytes: int = 0


def measure_scopes(environment: Environment, deadline: Deadline) -> Measures:
    """Look at the global scope, the configured tenants and every project.

    Counts are capped, so that a huge backlog costs no more than a small one. Read-only; each scope is a transaction of
    its own. When time runs short the walk ends, and `measured_scope_count` stays below `scope_count`.
    """
    retention = environment.settings.jobengine.retention
    measures = Measures(retention.maximum_terminal_rows_per_scope + 1)
    scopes = sorted({*retention.tenants, *(row["id"] for row in iterate_projects(environment.database))})
    measures.scope_count = 1 + len(scopes)
    for scope in (None, *scopes):
        if deadline.remaining_seconds() < _SPARE_SECONDS:
            break
        with environment.database.transaction(scope or INSTALLATION, is_read=True) as transaction:
            _measure_scope(environment, transaction, scope, measures)
        measures.measured_scope_count += 1
    return measures


def _measure_scope(environment: Environment, transaction: Transaction, scope: str | None, measures: Measures) -> None:
    tables = [table for table in MEASURED_TABLES.values() if table.is_global == (scope is None)]
    asked = [(table.name, _ask(environment, transaction, table, scope, measures.row_cap)) for table in tables]
    # Writes that belong to no project have a scope of idempotency records too.
    pipeline = transaction.submit(
        _QUERIES["measure_pipeline"],
        {"tenant": transaction.tenant, "stuck_seconds": _STUCK_SECONDS, "row_cap": measures.row_cap},
    )
    # The last to ask and the first to wait: all that was submitted comes back with it.
    health = read_source_health(transaction)
    for name, cursor in asked:
        row, table = _read(cursor), measures.tables[name]
        table.eligible_maximum = max(table.eligible_maximum, row["eligible"])
        table.expired += row["expired"]
        table.protected += row["protected"]
        table.incomplete += row["incomplete"]
    row = _read(pipeline)
    measures.stuck_dispatches += row["stuck_dispatches"]
    measures.source_count += row["source_count"]
    measures.idempotency_scope_count += row["idempotency_scope_count"]
    measures.fullest_records = max(measures.fullest_records, row["fullest_records"])
    measures.fullest_bytes = max(measures.fullest_bytes, row["fullest_bytes"])
    measures.behind_source_count += health.behind
    measures.late_source_count += len({missed.source_id for missed in health.missed})
    for missed in health.missed:
        measures.missed_window_count += missed.windows
        measures.missed_reasons[missed.reason] += missed.ticks


def _ask(
    environment: Environment, transaction: Transaction, table: OperationalTable, scope: str | None, row_cap: int
) -> Cursor[DictRow]:
    retention = environment.settings.jobengine.retention
    kept = table.retention(retention) + retention.doctor_grace
    return transaction.submit(
        _QUERIES["measure_aged_table"],
        {
            "table_name": table.name,
            "tenant": scope,
            "kept_seconds": kept.total_seconds(),
            "row_cap": row_cap,
        },
    )


def _read(cursor: Cursor[DictRow]) -> DictRow:
    row = cursor.fetchone()
    assert row is not None  # noqa: S101 - an aggregate is one row
    return row
