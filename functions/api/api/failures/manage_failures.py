"""List the failures of a project's work and say what is done about them."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from coordination.access import Principal
from coordination.database import Transaction
from coordination.errors import NotFoundError
from coordination.failures import FailureKind, FailureState
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page
from coordination.http.validation import read_path_id
from coordination.models import Instant, RequestModel, ResponseModel
from coordination.queries import load_queries
from pydantic import Field

_QUERIES = load_queries("failures")


class FailureQuery(PageQuery):
    """Which failures to list."""

    state: Annotated[FailureState | None, Field(description="only failures in this state")] = None
    kind: Annotated[FailureKind | None, Field(description="only failures of this kind of work")] = None


class FailureDecision(RequestModel):
    """What is done about a failure."""

    state: Annotated[
        Literal["investigating", "resolved", "wont_fix", "unresolved"],
        Field(
            description="resolved: it is forgotten after the retention of failures, and open again when it comes back; "
            "wont_fix: it stays as it is, whatever happens"
        ),
    ] = "resolved"


class Failure(ResponseModel):
    """Failures of one kind, of one work, with the same normalized error."""

    id: UUID
    project: str
    kind: Annotated[str, Field(description="what failed: run, shard, sink, import, webhook or pull")]
    work: Annotated[
        str,
        Field(
            description="which work: run:<name> or source:<id> of a run, a sink's destination, a dataset's name, a "
            "webhook's id, a source's id"
        ),
    ]
    error: Annotated[str, Field(description="what they have in common: numbers, ids, times and quoted text taken out")]
    sample: Annotated[str, Field(description="the latest of them, without secrets, ids and quoted text")]
    state: FailureState
    occurrence_count: int
    first_seen_at: Instant
    last_seen_at: Instant
    resolved_at: Instant | None
    resolved_by: Annotated[str | None, Field(description="who resolved it; work: the same work succeeded later")]


def list_failures(transaction: Transaction, query: FailureQuery) -> Page[Failure]:
    """List failures, last seen first. One that comes back while you page moves to the front."""
    after = decode_cursor("failures", query.cursor, datetime.fromisoformat, UUID)
    rows = transaction.fetch_all(
        _QUERIES["list_failures"],
        {
            "tenant": transaction.tenant,
            "state": query.state,
            "kind": query.kind,
            "after_last_seen_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page(
        "failures", rows, query.limit, _to_failure, lambda row: [row["last_seen_at"].isoformat(), str(row["id"])]
    )


def decide_failure(
    transaction: Transaction, reference: str, decision: FailureDecision, principal: Principal
) -> Failure:
    """Set the state of a failure, whatever it was. Locks its row.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    failure_id = read_path_id(reference, "failure")
    row = transaction.fetch_one(
        _QUERIES["set_failure_state"],
        {"tenant": transaction.tenant, "id": failure_id, "state": decision.state, "principal": principal.id},
    )
    if row is None:
        raise NotFoundError("There is no such failure; GET …/failures lists what there is.")
    return _to_failure(row)


def _to_failure(row: dict[str, Any]) -> Failure:
    return Failure(project=row["tenant_id"], **{name: value for name, value in row.items() if name != "tenant_id"})
