"""The quota on stored runs: no race past the limit, whoever makes runs."""

from coordination.advisory_locks import take_lock
from coordination.database import Transaction
from coordination.errors import NotFoundError, RunQuotaExceededError
from coordination.queries import load_queries

_PROJECTS = load_queries("projects")
_RUNS = load_queries("runs")
_RETRY_SECONDS = 60


def require_room_for_run(transaction: Transaction) -> None:
    """Make sure that the transaction's project may store one run more.

    Locks the project's row, shared; with a quota the advisory lock (`stored-runs`, project), both until the transaction
    ends.

    Raises
    ------
    NotFoundError
        The project is gone.
    RunQuotaExceededError
        The project stores as many runs as it may.
    """
    project = transaction.fetch_one(_PROJECTS["share_project"], {"id": transaction.tenant})
    if project is None:
        raise NotFoundError(f"There is no project {transaction.tenant!r}.")
    limit = project["max_stored_runs"]
    if limit is None:
        return
    take_lock(transaction, "stored-runs", transaction.tenant)
    # A statement of its own after the lock: its snapshot sees what the transaction before us committed.
    row = transaction.fetch_one(_RUNS["count_runs"], {"tenant": transaction.tenant})
    if row is not None and row["runs"] >= limit:
        raise RunQuotaExceededError(
            f"The project stores {limit} runs, as many as it may. Delete runs, or raise quotas.max_stored_runs.",
            retry_after_seconds=_RETRY_SECONDS,
        )
