"""Delete a run for somebody who asks for it."""

from typing import Any
from uuid import UUID

from coordination.access import Principal
from coordination.database import Transaction
from coordination.errors import NotFoundError, RunActiveError
from coordination.queries import load_queries
from coordination.run_deletion import delete_locked_run, lock_run
from coordination.runs import TERMINAL_STATES
from psycopg.types.json import Jsonb

_QUERIES = load_queries("runs")
_TOMBSTONE_SECONDS = 86_400
_RETRY_LEASED_SECONDS = 5


def delete_run(transaction: Transaction, run_id: UUID, principal: Principal) -> None:
    """Delete an ended run and all it owns in the caller's transaction, and remember for 24 hours that it was deleted.

    A repeated deletion finds that memory and changes nothing: the caller has been authorized by then, like the first.
    The project's quota has room again with the commit. Locks the run's leases, its row and all rows it owns; waits for
    whoever is writing to it.

    Raises
    ------
    NotFoundError
        There is no such run, and none was deleted in the last 24 hours.
    RunActiveError
        It has not ended, or a worker has not let go of it yet.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    run = lock_run(transaction, run_id)
    if run is None:
        if transaction.fetch_one(_QUERIES["find_run_tombstone"], params) is None:
            raise NotFoundError("There is no such run here: it never was, or it was deleted or its retention is over.")
        return
    if run.state not in TERMINAL_STATES:
        raise RunActiveError(f"The run is {run.state}. Cancel it first: POST …/runs/{run_id}/cancel.")
    if run.is_leased:
        raise RunActiveError(
            "A worker has not let go of the run yet. Try again.", retry_after_seconds=_RETRY_LEASED_SECONDS
        )
    delete_locked_run(transaction, run)
    transaction.submit(
        _QUERIES["insert_run_tombstone"],
        params | {"labels": Jsonb(run.labels), "deleted_by": principal.id, "seconds": _TOMBSTONE_SECONDS},
    )
