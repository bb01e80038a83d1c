"""See what a webhook was told, and tell it again."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from coordination.access import Principal
from coordination.database import Transaction
from coordination.errors import NotFoundError
from coordination.http.pages import Page, decode_cursor, make_page
from coordination.http.validation import read_path_id
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

from api.webhooks.manage_webhooks import find_webhook_row
from api.webhooks.models import Delivery, DeliveryQuery

_QUERIES = load_queries("webhooks")


def list_deliveries(transaction: Transaction, webhook_id: str, query: DeliveryQuery) -> Page[Delivery]:
    """List the deliveries of a webhook, newest first.

    Raises
    ------
    NotFoundError
        There is no such webhook.
    """
    after = decode_cursor("deliveries", query.cursor, datetime.fromisoformat, UUID)
    find_webhook_row(transaction, webhook_id)
    rows = transaction.fetch_all(
        _QUERIES["list_deliveries"],
        {
            "tenant": transaction.tenant,
            "webhook": webhook_id,
            "state": query.state,
            "after_created_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page(
        "deliveries", rows, query.limit, to_delivery, lambda row: [row["created_at"].isoformat(), str(row["id"])]
    )


def redeliver(transaction: Transaction, reference: str, principal: Principal) -> Delivery:
    """Queue a delivery again, whatever became of it: due now, under the same id, with all its attempts before it.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    delivery_id = read_path_id(reference, "delivery")
    params = {"tenant": transaction.tenant, "id": delivery_id}
    row = transaction.fetch_one(_QUERIES["requeue_delivery"], params)
    if row is None:
        raise NotFoundError("There is no such delivery; GET …/webhooks/{id}/deliveries lists what there is.")
    transaction.submit(
        _QUERIES["requeue_delivery_job"],
        params | {"webhook": row["webhook_id"], "event": row["event"], "created_by": principal.id},
    )
    transaction.wake(WakeUp("delivery", "webhook", transaction.tenant, str(delivery_id)))
    return to_delivery(row)


def to_delivery(row: Mapping[str, Any]) -> Delivery:
    """Make a delivery of its row."""
    return Delivery(
        id=row["id"],
        project=row["tenant_id"],
        webhook=row["webhook_id"],
        event=row["event"],
        payload=row["payload"],
        state=row["state"],
        attempts=row["attempts"],
        next_attempt_at=row["next_attempt_at"],
        attempted_at=row["attempted_at"],
        response_status=row["response_status"],
        error=row["error"],
        created_at=row["created_at"],
        completed_at=row["completed_at"],
    )
