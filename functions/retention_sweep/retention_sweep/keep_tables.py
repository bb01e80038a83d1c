"""The keeper: decides from the database whether a sweep is due, sweeps every scope, leaves a receipt."""

import math
from collections.abc import Iterator
from datetime import datetime

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.leases import Lease, drop_lease, end_lease, require_lease, take_lease
from coordination.projects import iterate_projects
from coordination.queries import load_queries
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from retention_sweep.sweep_scope import SPARE_SECONDS, Sweep, sweep_scope

logger = Logger(child=True)

_QUERIES = load_queries("jobengine")
_LEASE_NAME = "jobengine-keeper"
_KEPT_RECEIPTS = 90
_SILENT_SECONDS = 30 * 60


def keep_tables(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Sweep the operational tables when a sweep is due; an event that comes late, twice or never changes nothing.

    Under the lease `jobengine-keeper`, so that one keeper works at a time; two would be harmless. Each batch is a
    transaction of its own. A scope that fails is logged and the others go on. When the time is over before all scopes
    were reached, the receipt says after which one the next pulse goes on.

    Returns
    -------
    dict
        `swept` (0 or 1), `stopped_workers`, and of a sweep `scopes`, `failed` scopes, `deleted` rows and `remaining`
        expired rows (counted up to a cap for each table and scope).
    """
    stopped = environment.database.fetch_all(_QUERIES["stop_silent_workers"], {"silent_seconds": _SILENT_SECONDS})
    counts = {"swept": 0, "stopped_workers": len(stopped)}
    if _find_due_sweep(environment) is None:
        return counts
    lease = take_lease(environment.database, _LEASE_NAME, math.ceil(max(1.0, deadline.remaining_seconds())) + 10)
    if lease is None:
        return counts
    # Another keeper may have ended its sweep between the first look and the lease.
    due = _find_due_sweep(environment)
    if due is None:
        drop_lease(environment.database, lease)
        return counts
    sweep = _sweep_scopes(environment, deadline, due)
    _leave_receipt(environment, lease, sweep, due["now"])
    counts |= {
        "swept": 1,
        "scopes": sweep.scope_count,
        "failed": sweep.failed_scope_count,
        "deleted": sweep.deleted,
        "remaining": sweep.remaining,
    }
    logger.info("operational tables swept", extra=counts | {"tables": sweep.describe_tables()})
    return counts


def _find_due_sweep(environment: Environment) -> DictRow | None:
    settings = environment.settings.jobengine.retention
    if not settings.enabled:
        return None
    row = environment.database.fetch_one(
        _QUERIES["find_due_sweep"],
        {
            "interval_seconds": settings.sweep_interval.total_seconds(),
            "start_delay_seconds": settings.start_delay.total_seconds(),
        },
    )
    return row if row and row["is_due"] else None


def _sweep_scopes(environment: Environment, deadline: Deadline, due: DictRow) -> Sweep:
    sweep = Sweep(due["now"])
    after: str = due["stopped_after"] or ""
    for scope in _list_scopes(environment):
        # The global scope is first and costs little: it is swept in every pass.
        if scope is not None and scope <= after:
            continue
        if deadline.remaining_seconds() < SPARE_SECONDS:
            sweep.stopped_after = after or "-"
            break
        sweep.scope_count += 1
        sweep_scope(environment, sweep, scope, deadline)
        after = scope or after
    return sweep


def _list_scopes(environment: Environment) -> Iterator[str | None]:
    """Yield the global scope, then all configured tenants and projects by their ids.

    Every tenant of pack metadata, storage events and the outbox is a project: nothing writes there for another, and an
    adopted database's are made projects when it is adopted.
    """
    yield None
    projects = [row["id"] for row in iterate_projects(environment.database)]
    yield from sorted({*environment.settings.jobengine.retention.tenants, *projects})


def _leave_receipt(environment: Environment, lease: Lease, sweep: Sweep, started_at: datetime) -> None:
    with environment.database.transaction(INSTALLATION) as transaction:
        require_lease(transaction, lease)
        transaction.submit(
            _QUERIES["insert_sweep_receipt"],
            {
                "started_at": started_at,
                "scope_count": sweep.scope_count,
                "failed_scope_count": sweep.failed_scope_count,
                "stopped_after": sweep.stopped_after,
                "tables": Jsonb(sweep.describe_tables()),
            },
        )
        transaction.submit(_QUERIES["prune_sweep_receipts"], {"kept": _KEPT_RECEIPTS})
        end_lease(transaction, lease)
