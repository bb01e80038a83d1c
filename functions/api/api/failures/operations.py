"""The declarations of the failure operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page

from api.failures.manage_failures import Failure, FailureDecision, FailureQuery, decide_failure, list_failures


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_failures(transaction, call.query_as(FailureQuery)))


def _resolve(call: Call, transaction: Transaction) -> Answer:
    decision = call.body_as(FailureDecision)
    return Answer(200, decide_failure(transaction, call.path["failure"], decision, call.principal))


OPERATIONS = (
    Operation(
        id="failures.list",
        method="GET",
        path="/v1/projects/{project}/failures",
        summary="List failures of the project's work, grouped by error, last seen first.",
        permission="runs.read",
        query=FailureQuery,
        responses={200: Page[Failure]},
        handle=_list,
    ),
    Operation(
        id="failures.resolve",
        method="POST",
        path="/v1/projects/{project}/failures/{failure}/resolve",
        summary="Say what is done about a failure: resolved unless another state is named.",
        permission="runs.create",
        body=FailureDecision,
        responses={200: Failure},
        idempotency=LocalWrite(),
        handle=_resolve,
    ),
)
