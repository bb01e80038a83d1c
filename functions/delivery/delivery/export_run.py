"""Bring the outcome of a run to one of its sinks."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.errors import StorageUnavailableError
from coordination.failures import record_failure, resolve_failures
from coordination.leases import Lease, drop_lease, end_lease, release_lease, require_lease, take_lease
from coordination.ports.event_bus import EventNotTakenError
from coordination.queries import load_queries
from coordination.sinks import name_destination
from coordination.wake_ups import WakeUp

from delivery.export_objects import ExportConflictError, ExportRefusedError, ExportTooLongError, RunGoneError, put_run

logger = Logger(child=True)

_QUERIES = load_queries("sinks")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
_RETRY_SECONDS = (5, 30, 180, 900, 3600)
_MAX_ATTEMPTS = len(_RETRY_SECONDS) + 1


def export_run(environment: Environment, project: str, sink_id: str, deadline: Deadline) -> None:
    """Make an attempt at a queued sink, under a lease; the sink's own row says whether it is done.

    Objects are written only where none are, so an attempt that died is repeated without harm; an event that was put
    before its sender died is put again with the same `id`.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """
    wake_up = WakeUp("delivery", "sink", project, sink_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this sink", extra={"sink": sink_id})
        return
    try:
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            sink = transaction.fetch_one(_QUERIES["begin_sink"], _params(wake_up))
            if sink is None:
                _forget(transaction, wake_up, lease)
        if sink is not None:
            _work(environment, wake_up, lease, sink, deadline)
    finally:
        drop_lease(environment.database, lease)


def _work(environment: Environment, wake_up: WakeUp, lease: Lease, sink: Mapping[str, Any], deadline: Deadline) -> None:
    if sink["attempts"] > _MAX_ATTEMPTS:
        _end(environment, wake_up, lease, sink, "the last attempt was interrupted")
        return
    try:
        if sink["config"]["kind"] == "s3":
            put_run(environment, wake_up, sink, deadline)
        else:
            _put_event(environment, wake_up, sink)
    except RunGoneError:
        logger.info("the run was deleted while it was exported", extra={"run": str(sink["run_id"])})
        with environment.database.transaction(wake_up.project) as transaction:
            _forget(transaction, wake_up, lease)
    except (ExportConflictError, ExportRefusedError) as error:
        _end(environment, wake_up, lease, sink, str(error))
    except (StorageUnavailableError, EventNotTakenError, ExportTooLongError) as error:
        if sink["attempts"] >= _MAX_ATTEMPTS:
            _end(environment, wake_up, lease, sink, _describe(error))
        else:
            _postpone(environment, wake_up, lease, sink, _describe(error))
    else:
        _end(environment, wake_up, lease, sink, None)


def _put_event(environment: Environment, wake_up: WakeUp, sink: Mapping[str, Any]) -> None:
    path = f"/v1/projects/{wake_up.project}/runs/{sink['run_id']}"
    detail = {
        "id": wake_up.ref_id,
        "project": wake_up.project,
        "run": str(sink["run_id"]),
        "state": sink["state"],
        "gates": sink["report"]["gates"],
        "links": {"run": path, "report": f"{path}/report"},
    }
    environment.event_bus.put("run.finished", detail, sink["finished_at"])


def _describe(error: Exception) -> str:
    return f"EventBridge did not take the event ({error})" if isinstance(error, EventNotTakenError) else str(error)


def _end(environment: Environment, wake_up: WakeUp, lease: Lease, sink: Mapping[str, Any], error: str | None) -> None:
    state = "succeeded" if error is None else "failed"
    logger.info("sink ended", extra={"sink": wake_up.ref_id, "state": state})
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(_QUERIES["end_sink"], _params(wake_up) | {"state": state, "error": error})
        if error is None:
            resolve_failures(transaction, ["sink"], name_destination(sink["config"]))
        else:
            record_failure(transaction, "sink", name_destination(sink["config"]), error)
        _forget(transaction, wake_up, lease)


def _postpone(environment: Environment, wake_up: WakeUp, lease: Lease, sink: Mapping[str, Any], error: str) -> None:
    delay_seconds = _RETRY_SECONDS[sink["attempts"] - 1]
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(_QUERIES["note_sink_error"], _params(wake_up) | {"error": error})
        record_failure(transaction, "sink", name_destination(sink["config"]), error)
        transaction.submit(_WAKE_UPS["delay_wake_up"], wake_up.row_key | {"delay_seconds": delay_seconds})
        release_lease(transaction, lease)


def _forget(transaction: Transaction, wake_up: WakeUp, lease: Lease) -> None:
    transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
    end_lease(transaction, lease)


def _params(wake_up: WakeUp) -> dict[str, Any]:
    return {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
