"""The declarations of the claim operations, for a project's scope and for the installation-wide one."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page

from api.idempotency_claims.reconcile_claims import (
    Claim,
    ClaimQuery,
    Resolution,
    ResolvedClaim,
    list_claims,
    resolve_claim,
)


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_claims(transaction, call.principal, call.query_as(ClaimQuery)))


def _resolve(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, resolve_claim(transaction, call.principal, call.path["claim"], call.body_as(Resolution)))


def _operations(prefix: str, base: str, where: str) -> tuple[Operation, Operation]:
    return (
        Operation(
            id=f"{prefix}.list",
            method="GET",
            path=f"{base}/idempotency-claims",
            summary=f"List claims without an outcome {where}, oldest first.",
            query=ClaimQuery,
            responses={200: Page[Claim]},
            error_statuses=frozenset({403}),
            handle=_list,
        ),
        Operation(
            id=f"{prefix}.resolve",
            method="POST",
            path=f"{base}/idempotency-claims/{{claim}}/resolve",
            summary="Say what became of an uncertain write.",
            permission="idempotency.reconcile",
            body=Resolution,
            responses={200: ResolvedClaim},
            idempotency=LocalWrite(),
            audited_as="reconciled",
            handle=_resolve,
        ),
    )


OPERATIONS = (
    *_operations("claims", "/v1/projects/{project}", "of the project's writes"),
    *_operations("installation_claims", "/v1", "of installation-wide writes"),
)
