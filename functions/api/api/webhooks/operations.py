"""The declarations of the webhook operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation, RemoteWrite
from coordination.http.pages import Page, PageQuery
from coordination.idempotency.remote_write import EffectBoundary
from coordination.remote_places import check_hosts
from coordination.webhooks import TIMEOUT_SECONDS

from api.webhooks.manage_webhooks import create_webhook, delete_webhook, get_webhook, list_webhooks
from api.webhooks.models import CreateWebhook, Delivery, DeliveryQuery, NewWebhook, Webhook
from api.webhooks.read_deliveries import list_deliveries, redeliver
from api.webhooks.send_ping import Ping, record_ping, send_ping

_PATH = "/v1/projects/{project}/webhooks"
_SPARE_SECONDS = 5.0


def _check(call: Call) -> None:
    check_hosts(call.environment.http_calls, call.project, {"/url": call.body_as(CreateWebhook).url})


def _create(call: Call, transaction: Transaction) -> Answer:
    webhook = create_webhook(call.environment, transaction, call.body_as(CreateWebhook), call.principal)
    return Answer(201, webhook, {"location": f"/v1/projects/{call.project}/webhooks/{webhook.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_webhooks(transaction, call.query_as(PageQuery)))


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, get_webhook(transaction, call.path["webhook"]))


def _delete(call: Call, transaction: Transaction) -> Answer:
    delete_webhook(transaction, call.path["webhook"])
    return Answer(204)


def _send_ping(call: Call, boundary: EffectBoundary) -> Ping:
    return send_ping(call.environment, call.project, call.path["webhook"], boundary)


def _record_ping(call: Call, transaction: Transaction) -> Answer:
    ping: Ping = call.prepared
    return Answer(200, record_ping(transaction, call.path["webhook"], ping))


def _list_deliveries(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_deliveries(transaction, call.path["webhook"], call.query_as(DeliveryQuery)))


def _redeliver(call: Call, transaction: Transaction) -> Answer:
    return Answer(202, redeliver(transaction, call.path["delivery"], call.principal))


OPERATIONS = (
    Operation(
        id="webhooks.create",
        method="POST",
        path=_PATH,
        summary="Create a webhook; the secret that its signatures are verified with is in this answer only.",
        permission="webhooks.write",
        body=CreateWebhook,
        responses={201: NewWebhook},
        error_statuses=frozenset({409}),
        idempotency=LocalWrite(secret_fields=frozenset({"secret"})),
        prepare=_check,
        handle=_create,
    ),
    Operation(
        id="webhooks.list",
        method="GET",
        path=_PATH,
        summary="List webhooks, newest first, without secrets.",
        permission="webhooks.read",
        query=PageQuery,
        responses={200: Page[Webhook]},
        handle=_list,
    ),
    Operation(
        id="webhooks.get",
        method="GET",
        path=_PATH + "/{webhook}",
        summary="Read a webhook, without its secret.",
        permission="webhooks.read",
        responses={200: Webhook},
        handle=_get,
    ),
    Operation(
        id="webhooks.delete",
        method="DELETE",
        path=_PATH + "/{webhook}",
        summary="Delete a webhook with its deliveries.",
        permission="webhooks.write",
        responses={204: None},
        idempotency=LocalWrite(),
        handle=_delete,
    ),
    Operation(
        id="webhooks.test",
        method="POST",
        path=_PATH + "/{webhook}/test",
        summary="Send a ping now, once, and answer with what became of it.",
        permission="webhooks.write",
        responses={200: Delivery},
        idempotency=RemoteWrite(
            act=_send_ping,
            effect_boundary="the sending of the ping",
            needed_seconds=TIMEOUT_SECONDS + _SPARE_SECONDS,
            reserved_bytes=8 * 1024,
        ),
        handle=_record_ping,
    ),
    Operation(
        id="webhooks.list_deliveries",
        method="GET",
        path=_PATH + "/{webhook}/deliveries",
        summary="List the deliveries of a webhook, newest first; those that ended are kept for 30 days.",
        permission="webhooks.read",
        query=DeliveryQuery,
        responses={200: Page[Delivery]},
        handle=_list_deliveries,
    ),
    Operation(
        id="webhooks.redeliver",
        method="POST",
        path="/v1/projects/{project}/deliveries/{delivery}/redeliver",
        summary="Send a delivery again, under the same id, whatever became of it.",
        permission="webhooks.write",
        responses={202: Delivery},
        idempotency=LocalWrite(),
        handle=_redeliver,
    ),
)
