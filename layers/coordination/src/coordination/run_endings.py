"""End a run before all of it is evaluated: what the API and the workers do alike."""

from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb

from coordination.database import Transaction
from coordination.events import emit_run_finished
from coordination.failures import record_run_failure
from coordination.queries import load_queries
from coordination.runs import RunFailure

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")

SNAPSHOT_MISSING = RunFailure(code="snapshot_missing", detail="The records of this run are no longer in the bucket.")
"""Why a run ends whose object is gone, whoever misses it first."""


def end_open_run(
    transaction: Transaction, run_id: UUID, state: Literal["error", "cancelled"], failure: RunFailure | None = None
) -> bool:
    """End a pending or running run, cancel its open shards, take back their wake-ups and say that it has finished.

    A shard whose worker is writing at this moment is left to that worker: it waits for the run's row, sees that the run
    has ended, and cancels its shard.

    Parameters
    ----------
    transaction
        Of the run's project. Locks the run's row, then those of the shards that nobody else holds.
    run_id
        The run.
    state
        What becomes of it.
    failure
        The reason, for people; None for a run that somebody cancelled.

    Returns
    -------
    bool
        Whether the run ended now; False when it had ended already, or is gone.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    error = Jsonb(failure.model_dump(mode="json")) if failure else None
    if transaction.fetch_one(_QUERIES["end_open_run"], params | {"state": state, "error": error}) is None:
        return False
    shards = transaction.fetch_all(_QUERIES["cancel_open_shards"], params)
    open_work = {"shard": [str(shard["id"]) for shard in shards], "run": [str(run_id)], "finish": [str(run_id)]}
    for kind, ref_ids in open_work.items():
        transaction.submit(
            _WAKE_UPS["delete_wake_ups"], {"project": transaction.tenant, "kind": kind, "ref_ids": ref_ids}
        )
    transaction.submit(_QUERIES["complete_dispatch"], params | {"outcome": state})
    if failure:
        kind = "shard" if failure.code == "attempts_exhausted" else "run"
        record_run_failure(transaction, kind, run_id, f"{failure.code}: {failure.detail}")
    emit_run_finished(transaction, run_id, state, error_code=failure.code if failure else None)
    return True
