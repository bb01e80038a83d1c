"""Try a webhook out: send a ping now and say what the endpoint answered."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from coordination.clock import format_instant, read_clock
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.idempotency.remote_write import EffectBoundary
from coordination.queries import load_queries
from coordination.webhooks import Attempt, call_endpoint, derive_secret, resolve_endpoint
from psycopg.types.json import Json

from api.webhooks.manage_webhooks import find_webhook_row
from api.webhooks.models import Delivery
from api.webhooks.read_deliveries import to_delivery

_QUERIES = load_queries("webhooks")


@dataclass(frozen=True, slots=True)
class Ping:
    """A ping that was sent.

    Attributes
    ----------
    delivery_id, payload
        As they were sent.
    attempt
        What became of it.
    """

    delivery_id: UUID
    payload: dict[str, Any]
    attempt: Attempt


def send_ping(environment: Environment, project: str, webhook_id: str, boundary: EffectBoundary) -> Ping:
    """Call the endpoint once; outside of any transaction.

    Raises
    ------
    NotFoundError
        There is no such webhook; nothing was sent.
    """
    with environment.database.transaction(project) as transaction:
        webhook = find_webhook_row(transaction, webhook_id)
    secret = derive_secret(environment, project, webhook_id, webhook["generation"])
    delivery_id, at = uuid4(), read_clock()
    data = {"project": project, "webhook": webhook_id}
    payload = {"type": "ping", "timestamp": format_instant(at), "data": data}
    destination = resolve_endpoint(environment.http_calls, project, webhook["url"])
    if isinstance(destination, Attempt):
        return Ping(delivery_id, payload, destination)
    boundary.cross()
    return Ping(delivery_id, payload, call_endpoint(environment.http_calls, destination, secret, delivery_id, payload))


def record_ping(transaction: Transaction, webhook_id: str, ping: Ping) -> Delivery:
    """Write the delivery of a ping; when the webhook was deleted meanwhile the answer is all that is left of it."""
    fields: dict[str, Any] = {
        "id": ping.delivery_id,
        "state": "delivered" if ping.attempt.is_delivered else "failed",
        "response_status": ping.attempt.response_status,
        "error": ping.attempt.error,
    }
    row = transaction.fetch_one(
        _QUERIES["insert_test_delivery"],
        {"tenant": transaction.tenant, "webhook": webhook_id, "payload": Json(ping.payload)} | fields,
    )
    if row is not None:
        return to_delivery(row)
    at = read_clock()
    return Delivery(
        **fields,
        project=transaction.tenant,
        webhook=webhook_id,
        event="ping",
        payload=ping.payload,
        attempts=1,
        next_attempt_at=None,
        attempted_at=at,
        created_at=at,
        completed_at=at,
    )
