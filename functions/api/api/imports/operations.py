"""The declarations of the import operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page
from coordination.imports import Import

from api.imports.models import ImportQuery, RequestImport
from api.imports.request_import import get_import, list_imports, request_import


def _request(call: Call, transaction: Transaction) -> Answer:
    bucket = call.environment.settings.storage.bucket
    queued = request_import(transaction, call.body_as(RequestImport), bucket, call.principal)
    return Answer(202, queued, {"location": f"/v1/projects/{call.project}/imports/{queued.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_imports(transaction, call.query_as(ImportQuery)))


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, get_import(transaction, call.path["import"]))


OPERATIONS = (
    Operation(
        id="datasets.import",
        method="POST",
        path="/v1/projects/{project}/datasets:import",
        summary="Import an object under datasets/incoming/<project>/ of the bundle's bucket.",
        permission="datasets.write",
        body=RequestImport,
        responses={202: Import},
        idempotency=LocalWrite(),
        handle=_request,
    ),
    Operation(
        id="imports.list",
        method="GET",
        path="/v1/projects/{project}/imports",
        summary="List imports, newest first.",
        permission="datasets.read",
        query=ImportQuery,
        responses={200: Page[Import]},
        handle=_list,
    ),
    Operation(
        id="imports.get",
        method="GET",
        path="/v1/projects/{project}/imports/{import}",
        summary="Read an import: its state, its dataset, or the errors with row and field.",
        permission="datasets.read",
        responses={200: Import},
        handle=_get,
    ),
)
