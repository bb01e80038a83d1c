"""Events that webhooks listen to: one delivery for each listening webhook, in the transaction in which it happens.

Payloads hold ids, states, gates and links, never the content of a record. Links are paths of the API: which host name
the API has, only its callers know.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal
from uuid import UUID

from psycopg.types.json import Json

from coordination.database import Transaction
from coordination.queries import load_queries

_QUERIES = load_queries("webhooks")

type EventName = Literal[
    "run.finished", "run.gate_failed", "dataset.published", "dataset.import_failed", "source.window_missed", "ping"
]


def emit_event(transaction: Transaction, event: EventName, data: Mapping[str, Any], run_id: UUID | None = None) -> None:
    """Write a delivery, its job and its wake-up for every webhook of the project that listens. No round trip.

    Locks the listening webhooks' rows, shared, until the transaction ends.

    Parameters
    ----------
    transaction
        Of the project, the one in which it happens.
    event
        Its name.
    data
        Its own fields; type and time are added.
    run_id
        The run that it is about: its deliveries are deleted with it.
    """
    transaction.wake_all(
        _QUERIES["emit_event"],
        {"tenant": transaction.tenant, "event": event, "run_id": run_id, "data": Json(dict(data))},
    )


def emit_run_finished(
    transaction: Transaction,
    run_id: UUID,
    state: str,
    gates: Sequence[Mapping[str, Any]] | None = None,
    error_code: str | None = None,
) -> None:
    """Say that a run has ended, and once more when a gate failed.

    Parameters
    ----------
    transaction
        The one that ends the run.
    run_id, state
        The run, and how it ended: succeeded, failed, error or cancelled.
    gates
        Each with its value and whether it passed; None when the run ended before they were decided.
    error_code
        Why it ended in error.
    """
    path = f"/v1/projects/{transaction.tenant}/runs/{run_id}"
    links = {"run": path} if gates is None else {"run": path, "report": f"{path}/report"}
    data = {
        "project": transaction.tenant,
        "run": str(run_id),
        "state": state,
        "gates": None if gates is None else [dict(gate) for gate in gates],
        "error": error_code,
        "links": links,
    }
    emit_event(transaction, "run.finished", data, run_id)
    if state == "failed":
        emit_event(transaction, "run.gate_failed", data, run_id)


def emit_import_failed(transaction: Transaction, import_id: UUID, *, name: str, uri: str, error_code: str) -> None:
    """Say that an import has failed, in the transaction that notes it; rows and fields stay with the import."""
    data = {
        "project": transaction.tenant,
        "import": str(import_id),
        "name": name,
        "uri": uri,
        "error": error_code,
        "links": {"import": f"/v1/projects/{transaction.tenant}/imports/{import_id}"},
    }
    emit_event(transaction, "dataset.import_failed", data)
