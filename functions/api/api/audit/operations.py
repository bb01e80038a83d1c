"""Audit events: what was done and denied."""

from typing import Annotated

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, Operation
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page, read_number
from coordination.models import Instant, ResponseModel
from coordination.queries import load_queries
from pydantic import Field

_QUERIES = load_queries("audit")


class AuditQuery(PageQuery):
    """Which events to list."""

    project: Annotated[
        str | None, Field(max_length=63, description="only this project's; `-` for the installation")
    ] = None


class AuditEvent(ResponseModel):
    """One event."""

    id: int
    at: Instant
    principal: str
    project: Annotated[str, Field(description="project id, or `-` for the installation")]
    operation: str
    outcome: Annotated[str, Field(description="allowed, denied or reconciled")]
    request_id: str


def _list(call: Call, transaction: Transaction) -> Answer:
    query = call.query_as(AuditQuery)
    after = decode_cursor("audit", query.cursor, read_number(2**63 - 1))
    rows = transaction.fetch_all(
        _QUERIES["list_audit_events"],
        {"project": query.project, "after_id": after[0] if after else None, "limit": query.limit + 1},
    )
    return Answer(200, make_page("audit", rows, query.limit, lambda row: AuditEvent(**row), lambda row: [row["id"]]))


OPERATIONS = (
    Operation(
        id="audit.list",
        method="GET",
        path="/v1/audit",
        summary="List writes and denials, newest first.",
        permission="audit.read",
        query=AuditQuery,
        responses={200: Page[AuditEvent]},
        handle=_list,
    ),
)
