"""The registry: each operational table with its predicate, window, budget, doctor check and safety test.

The keeper and the doctor work from it; tests hold the SQL routines, the indexes and the CHECK constraints to it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from coordination.settings import RetentionSettings

TERMINAL_BUDGETS_CHECK = "doctor.jobengine.retention.terminal-budgets"
CAPACITY_CHECK = "doctor.jobengine.capacity.budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationalTable:
    """How rows of one table end and go.

    Attributes
    ----------
    name
        schema.table; its routines are `scheduler_app.expire_<table>`, `terminal_<table>` and `open_<table>`.
    terminal
        SQL condition on a row `t`: it has ended and carries what its end must carry.
    age_column
        From when its age counts.
    guards
        SQL conditions on a row `t` that keep it although it has ended.
    state_column, terminal_states, active_states
        Every state that the column's CHECK allows, in one of two classes; None and () where timestamps are the state.
    window
        Name of the setting (days) after which an ended row goes.
    has_row_budget
        Whether a scope keeps at most `maximum_terminal_rows_per_scope` ended rows.
    is_global
        Whether its rows belong to no tenant.
    doctor_check
        Id of the check that reports it; None for what is outside of the contract's eight.
    safety_test
        Name of the test which shows that a row that is at work again is not deleted.
    """

    name: str
    terminal: LiteralString
    age_column: str
    guards: tuple[LiteralString, ...] = ()
    state_column: str | None = None
    terminal_states: tuple[str, ...] = ()
    active_states: tuple[str, ...] = ()
    window: str = "terminal_retention_days"
    has_row_budget: bool = True
    is_global: bool = False
    doctor_check: str | None = TERMINAL_BUDGETS_CHECK
    safety_test: str = "test_row_at_work_again_is_not_deleted"

    @property
    def bare_name(self) -> str:
        """The name without its schema: the end of its routines' names."""
        return self.name.partition(".")[2]

    @property
    def routine(self) -> str:
        """The named query that deletes a batch."""
        return f"expire_{self.bare_name}"

    def retention(self, settings: "RetentionSettings") -> timedelta:
        """Return how long its ended rows are kept."""
        days: int = getattr(settings, self.window)
        return timedelta(days=days)

    def row_budget(self, settings: "RetentionSettings") -> int | None:
        """Return how many ended rows a scope keeps at most (rows, >= 1); None for no limit."""
        return settings.maximum_terminal_rows_per_scope if self.has_row_budget else None


_JOB_LEASE: LiteralString = (
    "NOT EXISTS ( SELECT 1 FROM coordination.leases l WHERE l.name = CASE t.kind WHEN 'dataset_import'"
    " THEN 'import:' WHEN 'webhook_delivery' THEN 'webhook:' ELSE 'sink:' END || t.tenant_id || ':' || t.id"
    " AND l.expires_at > statement_timestamp())"
)
_SHARD_LEASE: LiteralString = (
    "NOT EXISTS ( SELECT 1 FROM coordination.leases l WHERE l.name = 'shard:' || t.tenant_id || ':' || t.id"
    " AND l.expires_at > statement_timestamp())"
)
_PLANNING_LEASE: LiteralString = (
    "NOT EXISTS ( SELECT 1 FROM coordination.leases l WHERE l.name = 'run:' || t.tenant_id || ':' || t.id"
    " AND l.expires_at > statement_timestamp())"
)
_FINISHING_LEASE: LiteralString = (
    "NOT EXISTS ( SELECT 1 FROM coordination.leases l WHERE l.name = 'finish:' || t.tenant_id || ':' || t.id"
    " AND l.expires_at > statement_timestamp())"
)

OPERATIONAL_TABLES: tuple[OperationalTable, ...] = (
    OperationalTable(
        name="scheduler.jobs",
        terminal="t.state IN ('succeeded', 'failed', 'canceled', 'timed_out') AND t.completed_at IS NOT NULL",
        age_column="completed_at",
        guards=(
            "NOT EXISTS ( SELECT 1 FROM scheduler.triggers g WHERE g.tenant_id = t.tenant_id AND g.last_job_id = t.id)",
            _JOB_LEASE,
        ),
        state_column="state",
        terminal_states=("succeeded", "failed", "canceled", "timed_out"),
        active_states=("queued", "running"),
    ),
    OperationalTable(
        name="scheduler.runs",
        terminal="t.state IN ('completed', 'error', 'cancelled') AND t.finished_at IS NOT NULL",
        age_column="finished_at",
        state_column="state",
        terminal_states=("completed", "error", "cancelled"),
        active_states=("planning", "queued", "running"),
    ),
    OperationalTable(
        name="scheduler.graph_jobs",
        terminal="t.state IN ('completed', 'failed', 'canceled')",
        age_column="updated_at",
        state_column="state",
        terminal_states=("completed", "failed", "canceled"),
        active_states=("queued", "running"),
    ),
    OperationalTable(
        name="scheduler.policy_run_jobs",
        terminal="t.state IN ('completed', 'failed', 'cancelled')",
        age_column="updated_at",
        guards=(_SHARD_LEASE,),
        state_column="state",
        terminal_states=("completed", "failed", "cancelled"),
        active_states=("queued", "running"),
    ),
    OperationalTable(
        name="scheduler.estate_run_queue",
        terminal="t.acknowledged_at IS NOT NULL AND t.outcome IS NOT NULL AND t.completed_at IS NOT NULL",
        age_column="completed_at",
        guards=(
            _PLANNING_LEASE,
            _FINISHING_LEASE,
        ),
        # The outcome is a run's terminal state; a dispatch that is open has none.
        state_column="outcome",
        terminal_states=("succeeded", "failed", "error", "cancelled"),
    ),
    OperationalTable(
        name="packs.pack_storage_outbox", terminal="t.published_at IS NOT NULL", age_column="published_at"
    ),
    OperationalTable(
        name="scheduler.failure_signatures",
        terminal="t.state = 'resolved' AND t.resolved_at IS NOT NULL",
        age_column="resolved_at",
        state_column="state",
        terminal_states=("resolved",),
        active_states=("unresolved", "investigating", "wont_fix"),
        window="failure_signature_retention_days",
    ),
    OperationalTable(
        name="scheduler.workers",
        terminal="t.state = 'stopped' AND t.active_count = 0",
        age_column="heartbeat_at",
        state_column="state",
        terminal_states=("stopped",),
        active_states=("active", "draining"),
        is_global=True,
    ),
    # What was archived has ended for good: every row counts, and only its age.
    OperationalTable(
        name="scheduler.job_history",
        terminal="true",
        age_column="completed_at",
        state_column="state",
        terminal_states=("succeeded", "failed", "canceled", "timed_out"),
        window="job_history_retention_days",
        has_row_budget=False,
        doctor_check=None,
        safety_test="test_history_goes_after_its_own_window",
    ),
)

MEASURED_TABLES: Mapping[str, OperationalTable] = {
    table.name: table for table in OPERATIONAL_TABLES if table.doctor_check is not None
}
"""The eight tables that the doctor reports."""

CAPACITY_ENTRIES: tuple[str, ...] = (
    *MEASURED_TABLES,
    "scheduler.job_history",
    "packs.packs",
)
"""What the capacity probe measures, beside the whole database."""
