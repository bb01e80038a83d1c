"""Delete a run with all that is its own: the one way, for the API and for retention.

Locks are taken in the order leases, run, everything else. Whoever works on a run locks its lease before it writes
(`coordination.leases.require_lease`), so once the leases are ours nobody is in the middle of a write, and a resumption
that waits for the run's row finds it gone.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from coordination.database import Transaction
from coordination.datasets import wake_removal_of_deleted
from coordination.queries import load_queries
from coordination.runs import TERMINAL_STATES

_QUERIES = load_queries("runs")

KEEP_LABEL = ("evalsi.keep", "true")
"""A run with this label is never deleted by retention."""

OWNED_ROWS = (
    "delete_run_deliveries",
    "delete_run_sinks",
    "delete_run_wake_ups",
    "delete_run_shards",
    "delete_run_dispatch",
    "delete_run_results",
    "delete_run_outputs",
    "delete_run_slices",
    "delete_run_labels",
    "queue_snapshot_removal",
    "delete_run_snapshot",
    "delete_run",
)
"""The statements that take away what a run owns, in their order. A table that gets rows of runs gets one here; a test
finds tables that have none."""


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run that this transaction may delete.

    Attributes
    ----------
    id
        Of the run.
    state
        As it is now; nobody can change it before the transaction ends.
    labels
        As they are now.
    lease_names
        Of the run's and its shards' lease rows, all locked.
    is_leased
        Whether somebody is at work on it.
    ended_seconds_ago
        Since it finished, else since it was created; in seconds on the database's clock.
    """

    id: UUID
    state: str
    labels: dict[str, str]
    lease_names: list[str]
    is_leased: bool
    ended_seconds_ago: float

    @property
    def is_deletable(self) -> bool:
        """Whether it has ended and nobody is at work on it."""
        return self.state in TERMINAL_STATES and not self.is_leased


def lock_run(transaction: Transaction, run_id: UUID) -> LockedRun | None:
    """Lock a run and its leases until the transaction ends; None when there is no such run.

    Waits for whoever is writing to the run. One round trip.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    leases = transaction.submit(_QUERIES["lock_run_leases"], params)
    run = transaction.submit(_QUERIES["lock_run_to_delete"], params)
    # A statement of its own: one that waited for the run's row would see the labels as they were before the wait.
    labels = transaction.fetch_one(_QUERIES["read_run_labels"], params)
    row, lease_rows = run.fetchone(), leases.fetchall()
    if row is None or labels is None:
        return None
    return LockedRun(
        id=run_id,
        state=row["state"],
        labels=labels["labels"],
        lease_names=[lease["name"] for lease in lease_rows],
        is_leased=any(lease["is_live"] for lease in lease_rows),
        ended_seconds_ago=row["ended_seconds_ago"],
    )


def delete_locked_run(transaction: Transaction, run: LockedRun) -> None:
    """Delete all rows of a run that `lock_run` has locked, in the caller's transaction.

    Datasets and what sinks have exported stay: a run does not own them. The object of a dataset that was deleted
    before goes with the last run that refers to it. Locks: the advisory lock `dataset-content` (project and sha256).

    Raises
    ------
    ValueError
        The run has not ended, or somebody is at work on it.
    """
    if not run.is_deletable:
        message = f"run {run.id} is {run.state} and cannot be deleted"
        raise ValueError(message)
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run.id}
    snapshot = transaction.fetch_one(_QUERIES["find_run_content"], params)
    if snapshot is not None:
        wake_removal_of_deleted(transaction, snapshot["sha256"])
    for name in OWNED_ROWS:
        transaction.submit(_QUERIES[name], params)
    transaction.submit(_QUERIES["delete_leases"], {"names": run.lease_names})
