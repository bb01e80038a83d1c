"""Cancel a run, resume it, label it: every change of state is compare-and-set on the state it starts from."""

from typing import Any
from uuid import UUID

from coordination.database import Transaction
from coordination.errors import Fault, InvalidRequestError, NotFoundError, RunAlreadyEndedError, RunNotResumableError
from coordination.queries import load_queries
from coordination.run_endings import end_open_run
from coordination.runs import Run
from coordination.wake_ups import WakeUp

from api.runs.models import MAX_LABELS, UpdateRun
from api.runs.read_runs import get_run

_QUERIES = load_queries("runs")


def cancel_run(transaction: Transaction, run_id: UUID) -> Run:
    """Cancel a pending or running run in the caller's transaction; a cancelled one stays as it is.

    What its shards have written stays, so that the run can be resumed. A worker that is evaluating a shard at this
    moment writes nothing more. Locks the run's row and those of its shards.

    Raises
    ------
    NotFoundError
        There is no such run.
    RunAlreadyEndedError
        It ended as succeeded, failed or error.
    """
    end_open_run(transaction, run_id, "cancelled")
    run = get_run(transaction, run_id)
    if run.state != "cancelled":
        raise RunAlreadyEndedError(f"The run ended as {run.state}; only a pending or running run can be cancelled.")
    return run


def resume_run(transaction: Transaction, run_id: UUID) -> Run:
    """Make a run that ended in error or was cancelled pending again, in the caller's transaction.

    Only what has no result yet is evaluated again: the planner queues the shards that have none. Locks the run's row;
    a deletion at the same time waits for it and then finds the run active.

    Raises
    ------
    NotFoundError
        There is no such run.
    RunNotResumableError
        It is pending, running, succeeded or failed, or it has more errors than its `max_errors` allows.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    row = _lock(transaction, run_id)
    if row["max_errors"] is not None and row["results_errors"] > row["max_errors"]:
        raise RunNotResumableError(
            f"{row['results_errors']} results are errors and stay, max_errors allows {row['max_errors']}: it would "
            "stop again. Create a run with a higher max_errors."
        )
    if transaction.fetch_one(_QUERIES["reopen_run"], params) is None:
        raise RunNotResumableError(f"The run is {row['state']}; only one in error or cancelled can be resumed.")
    transaction.submit(_QUERIES["reopen_dispatch"], params)
    transaction.wake(WakeUp("evaluation", "run", transaction.tenant, str(run_id)))
    return get_run(transaction, run_id)


def label_run(transaction: Transaction, run_id: UUID, update: UpdateRun) -> Run:
    """Set and remove labels of a run in any state, in the caller's transaction. Locks the run's row.

    Raises
    ------
    NotFoundError
        There is no such run.
    InvalidRequestError
        It would have more than 50 labels.
    """
    _lock(transaction, run_id)
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    wanted = {key: value for key, value in update.labels.items() if value is not None}
    unwanted = [key for key, value in update.labels.items() if value is None]
    transaction.submit(_QUERIES["remove_run_labels"], params | {"keys": unwanted})
    transaction.submit(_QUERIES["set_run_labels"], params | {"keys": list(wanted), "values": list(wanted.values())})
    run = get_run(transaction, run_id)
    if len(run.labels) > MAX_LABELS:
        raise InvalidRequestError.at(
            [Fault("/labels", f"the run would have {len(run.labels)} labels, it may have {MAX_LABELS}")]
        )
    return run


def _lock(transaction: Transaction, run_id: UUID) -> dict[str, Any]:
    row = transaction.fetch_one(_QUERIES["lock_run_to_change"], {"tenant": transaction.tenant, "run_id": run_id})
    if row is None:
        raise NotFoundError("There is no such run here: it never was, or it was deleted or its retention is over.")
    return row
