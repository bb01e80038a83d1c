"""List claims without an outcome and resolve the uncertain ones."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from coordination.access import Principal
from coordination.database import INSTALLATION, Transaction
from coordination.errors import (
    ClaimInProgressError,
    ClaimResolvedError,
    NotFoundError,
    PermissionDeniedError,
)
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page
from coordination.http.validation import read_path_id
from coordination.models import Instant, RequestModel, ResponseModel
from coordination.queries import load_queries
from pydantic import Field

_QUERIES = load_queries("idempotency")


class ClaimQuery(PageQuery):
    """Whose claims to list."""

    principal: Annotated[
        str | None,
        Field(max_length=40, description="key:<id> of somebody else; needs idempotency.reconcile. Your own by default"),
    ] = None


class Claim(ResponseModel):
    """A claim without an outcome."""

    id: UUID
    principal: str
    operation: str
    state: Annotated[Literal["in_progress", "uncertain"], Field(description="uncertain: the deadline has passed")]
    claimed_at: Instant
    deadline_at: Annotated[Instant, Field(description="when the owner's invocation ends or ended")]
    expires_at: Annotated[Instant, Field(description="until then the key is blocked unless the claim is resolved")]
    key_fingerprint: Annotated[str, Field(description="first 12 hex digits of SHA-256 of the Idempotency-Key")]


class Resolution(RequestModel):
    """What became of an uncertain write."""

    outcome: Annotated[
        Literal["happened", "did_not_happen"],
        Field(description="happened: its key never runs it again; did_not_happen: a retry runs it"),
    ]


class ResolvedClaim(ResponseModel):
    """A claim that was resolved."""

    id: UUID
    principal: str
    operation: str
    claimed_at: Instant
    outcome: Literal["happened", "did_not_happen"]


def list_claims(transaction: Transaction, principal: Principal, query: ClaimQuery) -> Page[Claim]:
    """List a principal's claims without an outcome, oldest first.

    Raises
    ------
    PermissionDeniedError
        Somebody else's claims need the permission idempotency.reconcile.
    """
    whose = query.principal or principal.id
    project = None if transaction.tenant == INSTALLATION else transaction.tenant
    if whose != principal.id and not principal.is_allowed("idempotency.reconcile", project):
        raise PermissionDeniedError("The claims of another principal need the permission idempotency.reconcile.")
    after = decode_cursor("claims", query.cursor, datetime.fromisoformat, UUID)
    rows = transaction.fetch_all(
        _QUERIES["list_claims"],
        {
            "tenant": transaction.tenant,
            "principal": whose,
            "after_claimed_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page(
        "claims", rows, query.limit, _to_claim, lambda row: [row["claimed_at"].isoformat(), str(row["id"])]
    )


def resolve_claim(
    transaction: Transaction, principal: Principal, reference: str, resolution: Resolution
) -> ResolvedClaim:
    """Say what became of an uncertain write. Locks: the scopes of claim and caller, then the record's row.

    Raises
    ------
    NotFoundError
        There is no such claim in this scope.
    ClaimInProgressError
        Its owner may still be at it.
    ClaimResolvedError
        It has an outcome already.
    """
    claim_id = read_path_id(reference, "claim")
    params = {"tenant": transaction.tenant, "id": claim_id}
    transaction.submit(_QUERIES["lock_scope_of_claim"], params | {"caller": principal.id})
    claim = transaction.fetch_one(_QUERIES["lock_claim"], params)
    if claim is None:
        raise NotFoundError("There is no such claim here: it was released, it has expired, or it belongs elsewhere.")
    if claim["state"] != "claimed":
        raise ClaimResolvedError("The write has an outcome already; repeat it with its key to see it.")
    query = "resolve_as_happened" if resolution.outcome == "happened" else "resolve_as_not_happened"
    if transaction.fetch_one(_QUERIES[query], params) is None:
        raise ClaimInProgressError(
            "The owner's deadline has not passed: the write may still be going on. Try again after it."
        )
    return ResolvedClaim(
        id=claim_id,
        principal=claim["principal"],
        operation=claim["operation"],
        claimed_at=claim["claimed_at"],
        outcome=resolution.outcome,
    )


def _to_claim(row: dict[str, Any]) -> Claim:
    return Claim(
        id=row["id"],
        principal=row["principal"],
        operation=row["operation"],
        state="uncertain" if row["is_uncertain"] else "in_progress",
        claimed_at=row["claimed_at"],
        deadline_at=row["deadline_at"],
        expires_at=row["expires_at"],
        key_fingerprint=row["key_prefix"],
    )
