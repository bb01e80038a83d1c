"""Webhooks and deliveries as the API shows them. A secret is in the answer that creates its webhook, nowhere else."""

from typing import Annotated, Any
from uuid import UUID

from coordination.access import PROJECT_ID
from coordination.events import EventName
from coordination.http.pages import PageQuery
from coordination.models import Instant, RequestModel, ResponseModel
from pydantic import AfterValidator, Field


def _without_repeats(names: list[EventName]) -> list[EventName]:
    return sorted(set(names))


class CreateWebhook(RequestModel):
    """A new webhook."""

    id: Annotated[str, Field(pattern=PROJECT_ID, description="its name in the project", examples=["ci"])]
    url: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2000,
            description="a public https address; others only if the deployment lists the host: OutgoingAllowedHosts",
            examples=["https://ci.example.com/hooks/evalward"],
        ),
    ]
    events: Annotated[
        list[EventName],
        Field(min_length=1, max_length=20, description="what it is told"),
        AfterValidator(_without_repeats),
    ]


class Webhook(ResponseModel):
    """A webhook without its secret."""

    id: str
    project: str
    url: str
    events: list[EventName]
    created_at: Instant
    created_by: str


class NewWebhook(Webhook):
    """A webhook with its secret, shown once."""

    secret: Annotated[
        str,
        Field(description="whsec_…, to verify signatures with (Standard Webhooks); a replayed answer leaves it out"),
    ]


class Delivery(ResponseModel):
    """One event on its way to one webhook."""

    id: Annotated[UUID, Field(description="the webhook-id header, the same in every attempt")]
    project: str
    webhook: str
    event: EventName
    payload: Annotated[dict[str, Any], Field(description="the body that is sent")]
    state: Annotated[str, Field(description="queued, delivered or failed")]
    attempts: Annotated[int, Field(description="made since it was queued; six at most")]
    next_attempt_at: Instant | None
    attempted_at: Instant | None
    response_status: Annotated[int | None, Field(description="of the last attempt; null when no answer came")]
    error: Annotated[str | None, Field(description="why the last attempt does not count as delivered")]
    created_at: Instant
    completed_at: Instant | None


class DeliveryQuery(PageQuery):
    """Which deliveries to list."""

    state: Annotated[
        str | None, Field(pattern="^(queued|delivered|failed)$", description="only deliveries in this state")
    ] = None
