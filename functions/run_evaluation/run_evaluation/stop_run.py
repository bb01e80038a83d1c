"""End a run that cannot finish."""

from typing import Any
from uuid import UUID

from coordination.database import Transaction
from coordination.queries import load_queries
from coordination.runs import RunFailure
from psycopg.types.json import Jsonb

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")


def stop_run(transaction: Transaction, run_id: UUID, failure: RunFailure) -> bool:
    """Set a pending or running run to error, cancel its open shards and take back their wake-ups.

    Parameters
    ----------
    transaction
        Of the run's project. Locks the run's row and the shards'.
    failure
        The reason, for people.

    Returns
    -------
    bool
        Whether the run was stopped now; False when it had ended already.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    error = Jsonb(failure.model_dump(mode="json"))
    if transaction.fetch_one(_QUERIES["stop_run"], params | {"error": error}) is None:
        return False
    shards = transaction.fetch_all(_QUERIES["cancel_open_shards"], params)
    open_work = {"shard": [str(shard["id"]) for shard in shards], "run": [str(run_id)], "finish": [str(run_id)]}
    for kind, ref_ids in open_work.items():
        transaction.submit(
            _WAKE_UPS["delete_wake_ups"], {"project": transaction.tenant, "kind": kind, "ref_ids": ref_ids}
        )
    transaction.submit(_QUERIES["complete_dispatch"], params | {"outcome": "error"})
    return True
