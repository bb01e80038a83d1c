"""Keys as the API shows them. The secret is in the answer that creates one, and nowhere else."""

from typing import Annotated

from coordination.access import Grant
from coordination.models import Instant, RequestModel, ResponseModel
from pydantic import Field

type Grants = Annotated[list[Grant], Field(min_length=1, max_length=100, description="what the key may do, and where")]


class CreateKey(RequestModel):
    """A new key."""

    name: Annotated[str, Field(min_length=1, max_length=200, description="for people", examples=["nightly pipeline"])]
    grants: Grants
    expires_at: Annotated[Instant | None, Field(description="when it stops working; null is never")] = None


class Key(ResponseModel):
    """A key without its secret."""

    id: Annotated[str, Field(description="16 hex digits; the principal is key:<id>")]
    name: str
    prefix: Annotated[str, Field(description="how the key's text begins")]
    grants: list[Grant]
    created_at: Instant
    expires_at: Instant | None


class NewKey(Key):
    """A key with its secret, shown once."""

    secret: Annotated[str, Field(description="the key's whole text; a replayed answer leaves it out")]


class WhoAmI(ResponseModel):
    """The caller."""

    principal: str
    name: str
    grants: list[Grant]
