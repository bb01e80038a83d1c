"""Create, list and delete webhooks."""

from datetime import datetime
from typing import Any

from coordination.access import Principal
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.errors import NotFoundError, WebhookExistsError
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page
from coordination.queries import load_queries
from coordination.webhooks import derive_secret

from api.webhooks.models import CreateWebhook, NewWebhook, Webhook

_QUERIES = load_queries("webhooks")


def create_webhook(
    environment: Environment, transaction: Transaction, new: CreateWebhook, principal: Principal
) -> NewWebhook:
    """Create a webhook; its secret leaves in this answer only.

    Raises
    ------
    WebhookExistsError
        The project has one of that id.
    """
    row = transaction.fetch_one(
        _QUERIES["insert_webhook"],
        {
            "tenant": transaction.tenant,
            "id": new.id,
            "url": new.url,
            "events": list(new.events),
            "created_by": principal.id,
        },
    )
    if row is None:
        raise WebhookExistsError(f"The project has a webhook {new.id!r}; delete it or choose another id.")
    secret = derive_secret(environment, transaction.tenant, new.id, row["generation"])
    return NewWebhook(**_to_webhook(row).model_dump(), secret=secret)


def find_webhook_row(transaction: Transaction, webhook_id: str) -> dict[str, Any]:
    """Return the row of a webhook.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    row = transaction.fetch_one(_QUERIES["find_webhook"], {"tenant": transaction.tenant, "id": webhook_id})
    if row is None:
        raise _not_found()
    return row


def get_webhook(transaction: Transaction, webhook_id: str) -> Webhook:
    """Return a webhook.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    return _to_webhook(find_webhook_row(transaction, webhook_id))


def list_webhooks(transaction: Transaction, query: PageQuery) -> Page[Webhook]:
    """List webhooks, newest first."""
    after = decode_cursor("webhooks", query.cursor, datetime.fromisoformat, str)
    rows = transaction.fetch_all(
        _QUERIES["list_webhooks"],
        {
            "tenant": transaction.tenant,
            "after_created_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page("webhooks", rows, query.limit, _to_webhook, lambda row: [row["created_at"].isoformat(), row["id"]])


def delete_webhook(transaction: Transaction, webhook_id: str) -> None:
    """Delete a webhook with its deliveries; what is under way at this moment may still arrive.

    Locks the webhook's row, then those of its deliveries, their jobs and wake-ups.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    params = {"tenant": transaction.tenant, "id": webhook_id}
    if transaction.fetch_one(_QUERIES["lock_webhook_to_delete"], params) is None:
        raise _not_found()
    transaction.submit(_QUERIES["delete_webhook_deliveries"], params)
    transaction.submit(_QUERIES["delete_webhook"], params)


def _to_webhook(row: dict[str, Any]) -> Webhook:
    return Webhook(
        id=row["id"],
        project=row["tenant_id"],
        url=row["url"],
        events=row["events"],
        created_at=row["created_at"],
        created_by=row["created_by"],
    )


def _not_found() -> NotFoundError:
    return NotFoundError("There is no such webhook; GET …/webhooks lists what there is.")
