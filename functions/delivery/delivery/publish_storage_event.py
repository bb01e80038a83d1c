"""Tell EventBridge what happened to a dataset."""

from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import format_instant
from coordination.environment import Environment
from coordination.leases import Lease, drop_lease, end_lease, release_lease, require_lease, take_lease
from coordination.ports.event_bus import EventNotTakenError
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("storage_events")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
# After the first attempts; from then on every hour, without end: the history on EventBridge has no gaps.
_RETRY_SECONDS = (5, 30, 180, 900, 3600)


def publish_storage_event(environment: Environment, project: str, event_id: str) -> None:
    """Put an event that is not acknowledged yet on the bus and acknowledge it, under a lease.

    Who dies between the two leaves it unacknowledged: it is put again when the lease has expired, with the same `id` in
    its detail.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """
    wake_up = WakeUp("delivery", "storage_event", project, event_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this storage event", extra={"event": event_id})
        return
    try:
        event = _begin(environment, wake_up, lease)
        if event is not None:
            _publish(environment, wake_up, lease, event)
    finally:
        drop_lease(environment.database, lease)


def _begin(environment: Environment, wake_up: WakeUp, lease: Lease) -> dict[str, Any] | None:
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        params = {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
        event = transaction.fetch_one(_QUERIES["begin_storage_event"], params)
        if event is None:
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            end_lease(transaction, lease)
    return event


def _publish(environment: Environment, wake_up: WakeUp, lease: Lease, event: dict[str, Any]) -> None:
    detail = {
        "id": wake_up.ref_id,
        "project": wake_up.project,
        **event["detail"],
        "at": format_instant(event["created_at"]),
        "by": event["created_by"],
    }
    try:
        environment.event_bus.put(event["event"], detail, event["created_at"])
    except EventNotTakenError as error:
        _postpone(environment, wake_up, lease, event["attempts"], error)
        return
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(
            _QUERIES["acknowledge_storage_event"], {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
        )
        transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
        end_lease(transaction, lease)


def _postpone(
    environment: Environment, wake_up: WakeUp, lease: Lease, attempts: int, error: EventNotTakenError
) -> None:
    delay_seconds = _RETRY_SECONDS[min(attempts, len(_RETRY_SECONDS)) - 1]
    logger.warning(
        "storage event not taken",
        extra={"event": wake_up.ref_id, "attempt": attempts, "error": str(error), "delay_seconds": delay_seconds},
    )
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(_WAKE_UPS["delay_wake_up"], wake_up.row_key | {"delay_seconds": delay_seconds})
        release_lease(transaction, lease)
