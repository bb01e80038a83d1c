"""The declarations of the key operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page, PageQuery

from api.keys.manage_keys import create_key, delete_key, list_keys
from api.keys.models import CreateKey, Key, NewKey, WhoAmI


def _who_am_i(call: Call, _transaction: Transaction) -> Answer:
    principal = call.principal
    return Answer(200, WhoAmI(principal=principal.id, name=principal.name, grants=list(principal.grants)))


def _create(call: Call, transaction: Transaction) -> Answer:
    key = create_key(transaction, call.body_as(CreateKey), call.principal)
    return Answer(201, key, {"location": f"/v1/keys/{key.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_keys(transaction, call.query_as(PageQuery)))


def _delete(call: Call, transaction: Transaction) -> Answer:
    delete_key(transaction, call.path["key"], call.principal)
    return Answer(204)


OPERATIONS = (
    Operation(
        id="whoami",
        method="GET",
        path="/v1/whoami",
        summary="Tell who the key is and what it may do.",
        responses={200: WhoAmI},
        handle=_who_am_i,
    ),
    Operation(
        id="keys.create",
        method="POST",
        path="/v1/keys",
        summary="Create a key; the secret is in this answer only.",
        permission="keys.manage",
        body=CreateKey,
        responses={201: NewKey},
        idempotency=LocalWrite(secret_fields=frozenset({"secret"})),
        handle=_create,
    ),
    Operation(
        id="keys.list",
        method="GET",
        path="/v1/keys",
        summary="List keys, newest first, without secrets.",
        permission="keys.manage",
        query=PageQuery,
        responses={200: Page[Key]},
        handle=_list,
    ),
    Operation(
        id="keys.delete",
        method="DELETE",
        path="/v1/keys/{key}",
        summary="Delete a key; it stops working at once.",
        permission="keys.manage",
        responses={204: None},
        idempotency=LocalWrite(),
        handle=_delete,
    ),
)
