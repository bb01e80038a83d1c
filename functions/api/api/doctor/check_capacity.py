"""doctor.jobengine.capacity.budget: is the database within its envelope."""

from typing import Any

from coordination.environment import Environment
from coordination.jobengine.registry import CAPACITY_CHECK, CAPACITY_ENTRIES
from coordination.queries import load_queries

from api.doctor.models import Check, judge

_QUERIES = load_queries("jobengine")
_STALE_SECONDS = 3 * 3600
_REMEDIATION = (
    "Nothing is paused by itself: pause projects, shorten windows or enlarge the envelope; when there is no fresh "
    "receipt, look at the function capacity_probe. See docs/runbook.md."
)
_FIRST_REMEDIATION = (
    "A fresh deployment is measured by the next pulse, within five minutes. When it is older, look at the log and the "
    "schedule of the function capacity_probe. See docs/runbook.md."
)


def check_capacity(environment: Environment) -> Check:
    """Judge the newest receipt of the capacity probe by the envelope. Reads one row."""
    capacity = environment.settings.jobengine.capacity
    receipt = environment.database.fetch_one(_QUERIES["read_capacity_receipt"])
    sizes: dict[str, int] = receipt["entries"] if receipt else {}
    entries: dict[str, dict[str, Any]] = {}
    reasons: list[str] = []
    if receipt is None:
        reasons.append("the capacity probe has left no receipt")
    elif receipt["age_seconds"] > _STALE_SECONDS:
        reasons.append("the newest receipt of the capacity probe is older than 3 hours")
    for name in CAPACITY_ENTRIES:
        limit = capacity.limit(name)
        entries[name] = {"bytes": sizes.get(name), **limit.model_dump()}
        if receipt is not None and name not in sizes:
            reasons.append(f"{name} was not measured")
        elif sizes.get(name, 0) >= limit.stop_line_bytes:
            reasons.append(f"{name} has reached its stop line")
    if receipt is not None and receipt["database_bytes"] >= capacity.database.stop_line_bytes:
        reasons.append("the database has reached its stop line")
    evidence: dict[str, Any] = {
        "pause_required": bool(reasons),
        "receipt_age_seconds": receipt["age_seconds"] if receipt else None,
        "stale_after_seconds": _STALE_SECONDS,
        "database": {
            "bytes": receipt["database_bytes"] if receipt else None,
            **capacity.database.model_dump(),
        },
        "entries": entries,
    }
    remediation = _FIRST_REMEDIATION if receipt is None else _REMEDIATION
    return judge(CAPACITY_CHECK, reasons, "The database is within its envelope.", evidence, remediation)
