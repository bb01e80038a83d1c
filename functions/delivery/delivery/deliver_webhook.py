"""Send one event to one webhook."""

from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.failures import record_failure, resolve_failures
from coordination.leases import Lease, drop_lease, end_lease, release_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp
from coordination.webhooks import Attempt, call_endpoint, derive_secret, resolve_endpoint

logger = Logger(child=True)

_QUERIES = load_queries("webhooks")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
# After the attempts 1 to 5; the sixth is the last.
RETRY_SECONDS = (5, 30, 180, 900, 3600)
MAX_ATTEMPTS = len(RETRY_SECONDS) + 1
# Shorter delays are kept by the queue: the pulse would round them up to its minute.
_PUNCTUAL_SECONDS = 60
_RETENTION_SECONDS = 30 * 86_400
_PRUNED_ROWS = 100
_NO_REASON = "the attempt failed without a reason"


def deliver_webhook(environment: Environment, project: str, delivery_id: str) -> None:
    """Make the attempt at a delivery that is due, under a lease.

    State decides, not the message: one that ended, is not due yet or is in other hands is passed over. The attempt is
    counted before the call and its outcome written after it; who dies in between has used up an attempt, and the event
    is sent again under the same id when the lease has expired.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """
    wake_up = WakeUp("delivery", "webhook", project, delivery_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this delivery", extra={"delivery": delivery_id})
        return
    try:
        delivery = _begin(environment, wake_up, lease)
        if delivery is not None:
            attempt = _send(environment, project, delivery)
            _note(environment, wake_up, lease, delivery, attempt)
    finally:
        drop_lease(environment.database, lease)


def _begin(environment: Environment, wake_up: WakeUp, lease: Lease) -> dict[str, Any] | None:
    """Count an attempt and return the delivery as it was before; None when there is nothing to send now."""
    params = {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        delivery = transaction.fetch_one(_QUERIES["read_delivery"], params)
        if delivery is None:
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            end_lease(transaction, lease)
            return None
        if not delivery["is_due"]:
            return None
        if delivery["attempts"] >= MAX_ATTEMPTS:
            # Whoever made the last attempt died over it.
            attempt = Attempt(None, "the last attempt was interrupted")
            _end(transaction, wake_up, lease, delivery["webhook_id"], attempt)
            return None
        transaction.submit(_QUERIES["begin_delivery"], params)
    return delivery


def _send(environment: Environment, project: str, delivery: dict[str, Any]) -> Attempt:
    destination = resolve_endpoint(environment.http_calls, project, delivery["url"])
    if isinstance(destination, Attempt):
        return destination
    secret = derive_secret(environment, project, delivery["webhook_id"], delivery["generation"])
    return call_endpoint(environment.http_calls, destination, secret, delivery["id"], delivery["payload"])


def _note(environment: Environment, wake_up: WakeUp, lease: Lease, delivery: dict[str, Any], attempt: Attempt) -> None:
    attempts: int = delivery["attempts"] + 1
    logger.info(
        "webhook called",
        extra={"delivery": wake_up.ref_id, "attempt": attempts, "response_status": attempt.response_status},
    )
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        if attempt.is_delivered or attempts >= MAX_ATTEMPTS:
            _end(transaction, wake_up, lease, delivery["webhook_id"], attempt)
            return
        delay_seconds = RETRY_SECONDS[attempts - 1]
        transaction.submit(
            _QUERIES["postpone_delivery"],
            {
                "tenant": wake_up.project,
                "id": UUID(wake_up.ref_id),
                "delay_seconds": delay_seconds,
                "response_status": attempt.response_status,
                "error": attempt.error,
            },
        )
        record_failure(transaction, "webhook", delivery["webhook_id"], attempt.error or _NO_REASON)
        is_punctual = delay_seconds <= _PUNCTUAL_SECONDS
        transaction.wake(WakeUp("delivery", "webhook", wake_up.project, wake_up.ref_id, delay_seconds, is_punctual))
        release_lease(transaction, lease)


def _end(transaction: Transaction, wake_up: WakeUp, lease: Lease, webhook_id: str, attempt: Attempt) -> None:
    if attempt.is_delivered:
        resolve_failures(transaction, ["webhook"], webhook_id)
    else:
        record_failure(transaction, "webhook", webhook_id, attempt.error or _NO_REASON)
    transaction.submit(
        _QUERIES["end_delivery"],
        {
            "tenant": wake_up.project,
            "id": UUID(wake_up.ref_id),
            "state": "delivered" if attempt.is_delivered else "failed",
            "response_status": attempt.response_status,
            "error": attempt.error,
        },
    )
    transaction.submit(
        _QUERIES["prune_deliveries"],
        {"tenant": wake_up.project, "retention_seconds": _RETENTION_SECONDS, "limit": _PRUNED_ROWS},
    )
    transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
    end_lease(transaction, lease)
