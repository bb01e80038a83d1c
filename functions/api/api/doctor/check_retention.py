"""doctor.jobengine.retention.terminal-budgets: does the keeper keep up."""

from collections.abc import Sequence
from typing import Any

from coordination.environment import Environment
from coordination.jobengine.registry import TERMINAL_BUDGETS_CHECK
from coordination.queries import load_queries
from coordination.settings import RetentionSettings
from psycopg.rows import DictRow

from api.doctor.measure_scopes import Measures
from api.doctor.models import Check, judge

_QUERIES = load_queries("jobengine")
_REMEDIATION = (
    "Look at the function retention_sweep and its schedule KeeperPulse; rows that are behind need more "
    "max_batches_per_sweep or a larger batch_size, incomplete ones a person. See docs/runbook.md."
)


def check_retention(environment: Environment, measures: Measures) -> Check:
    """Judge the measures by the windows and budgets, and the keeper by its receipts. Reads the two latest receipts."""
    retention = environment.settings.jobengine.retention
    receipts = environment.database.fetch_all(_QUERIES["list_sweep_receipts"], {"limit": 2})
    installation = environment.database.fetch_one(_QUERIES["read_installation_age"])
    silent_seconds = (
        receipts[0]["age_seconds"]
        if receipts
        else (installation or {}).get("age_seconds", 0.0) - retention.start_delay.total_seconds()
    )
    reasons = [
        *_judge_tables(measures, retention),
        *_judge_keeper(retention, receipts, silent_seconds),
    ]
    evidence: dict[str, Any] = {
        "enabled": retention.enabled,
        "scope_count": measures.scope_count,
        "measured_scope_count": measures.measured_scope_count,
        "windows_days": {
            "terminal": retention.terminal_retention_days,
            "failure_signatures": retention.failure_signature_retention_days,
            "job_history": retention.job_history_retention_days,
        },
        "budgets": {
            "maximum_terminal_rows_per_scope": retention.maximum_terminal_rows_per_scope,
            "batch_size": retention.batch_size,
            "max_batches_per_sweep": retention.max_batches_per_sweep,
            "sweep_interval_seconds": retention.sweep_interval.total_seconds(),
            "doctor_grace_seconds": retention.doctor_grace.total_seconds(),
        },
        "counted_up_to": measures.row_cap,
        "tables": {
            name: {
                "maximum_eligible_terminal_rows_per_scope": table.eligible_maximum,
                "expired_rows": table.expired,
                "protected_rows": table.protected,
                "incomplete_rows": table.incomplete,
            }
            for name, table in measures.tables.items()
        },
        "seconds_since_last_sweep": receipts[0]["age_seconds"] if receipts else None,
        "last_sweeps": [_describe(receipt) for receipt in receipts],
    }
    return judge(
        TERMINAL_BUDGETS_CHECK, reasons, "Ended mechanics are within their windows and budgets.", evidence, _REMEDIATION
    )


def _judge_tables(measures: Measures, retention: RetentionSettings) -> list[str]:
    tables = measures.tables.items()
    reasons: list[str] = []
    if expired := [name for name, table in tables if table.expired]:
        reasons.append(f"rows have expired and are still there: {', '.join(expired)}")
    budget = retention.maximum_terminal_rows_per_scope
    if over := [name for name, table in tables if table.eligible_maximum > budget]:
        reasons.append(f"more than {budget} ended rows in a scope: {', '.join(over)}")
    if incomplete := [name for name, table in tables if table.incomplete]:
        reasons.append(f"ended rows lack what their end must have: {', '.join(incomplete)}")
    if measures.measured_scope_count < measures.scope_count:
        reasons.append("not every scope could be measured in time")
    return reasons


def _judge_keeper(retention: RetentionSettings, receipts: Sequence[DictRow], silent_seconds: float) -> list[str]:
    reasons: list[str] = []
    if not retention.enabled:
        reasons.append("the keeper is disabled")
    if silent_seconds > 2 * retention.sweep_interval.total_seconds():
        reasons.append("no sweep has left a receipt for two intervals")
    if len(receipts) == 2 and all(_is_without_progress(receipt) for receipt in receipts):
        reasons.append("two sweeps made no progress while rows were expired")
    return reasons


def _is_without_progress(receipt: DictRow) -> bool:
    told = receipt["tables"].values()
    return sum(table["deleted"] for table in told) == 0 and any(table["remaining"] for table in told)


def _describe(receipt: DictRow) -> dict[str, Any]:
    told = receipt["tables"]
    return {
        "age_seconds": receipt["age_seconds"],
        "seconds": receipt["seconds"],
        "scope_count": receipt["scope_count"],
        "failed_scope_count": receipt["failed_scope_count"],
        "reached_all_scopes": receipt["reached_all_scopes"],
        "deleted_rows": sum(table["deleted"] for table in told.values()),
        "remaining_rows": sum(table["remaining"] for table in told.values()),
        "behind": sorted(name for name, table in told.items() if table["is_behind"]),
        "oldest_remaining_seconds": max((table["oldest_age_seconds"] or 0.0 for table in told.values()), default=0.0),
    }
