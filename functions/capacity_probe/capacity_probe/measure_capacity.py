"""Measure the physical size of what the capacity envelope names, and leave a receipt."""

from aws_lambda_powertools import Logger
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.jobengine.registry import CAPACITY_ENTRIES
from coordination.leases import drop_lease, end_lease, require_lease, take_lease
from coordination.queries import load_queries

logger = Logger(child=True)

_QUERIES = load_queries("jobengine")
_LEASE_NAME = "capacity-probe"
_LEASE_SECONDS = 60
_KEPT_RECEIPTS = 90
# From one measurement to the next. Pulses come more often: a database without a receipt, as that of a new deployment,
# and a table without a size, as after an upgrade, wait for the next one only.
_INTERVAL_SECONDS = 3600


def measure_capacity(environment: Environment) -> dict[str, int]:
    """Write one receipt with the sizes (bytes on disk, indexes and TOAST included) and keep the newest 90.

    As the owner, on its one connection, in one transaction under the lease `capacity-probe`. Nothing is paused: the
    doctor judges the receipt.

    Returns
    -------
    dict
        `measured` tables (0 when it is not due or someone else is at it) and `database_bytes`.
    """
    database = environment.database
    if not _is_due(environment):
        return {"measured": 0}
    lease = take_lease(database, _LEASE_NAME, _LEASE_SECONDS)
    if lease is None:
        return {"measured": 0}
    # Another one may have measured between the first look and the lease.
    if not _is_due(environment):
        drop_lease(database, lease)
        return {"measured": 0}
    with database.transaction(INSTALLATION) as transaction:
        require_lease(transaction, lease)
        receipt = transaction.fetch_one(_QUERIES["insert_capacity_receipt"], {"tables": list(CAPACITY_ENTRIES)})
        transaction.submit(_QUERIES["prune_capacity_receipts"], {"kept": _KEPT_RECEIPTS})
        end_lease(transaction, lease)
    assert receipt is not None  # noqa: S101 - the statement inserts one row
    counts = {"measured": len(receipt["entries"]), "database_bytes": receipt["database_bytes"]}
    logger.info("capacity measured", extra=counts | {"entries": receipt["entries"]})
    return counts


def _is_due(environment: Environment) -> bool:
    params = {"seconds": _INTERVAL_SECONDS, "tables": list(CAPACITY_ENTRIES)}
    row = environment.database.fetch_one(_QUERIES["find_due_probe"], params)
    return bool(row and row["is_due"])
