"""Field types and base models that every request and response shares."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from coordination.access import PROJECT_ID


def _in_utc(instant: datetime) -> datetime:
    return instant.astimezone(UTC)


type Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""RFC 3339 in UTC with `Z`, whatever the time zone of the database session."""

type ProjectId = Annotated[str, Field(pattern=PROJECT_ID, description="project id", examples=["demo"])]
type Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, 64 lower-case hex digits")]


class RequestModel(BaseModel):
    """A request: unknown fields are refused, values are not coerced from another JSON type."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class QueryModel(BaseModel):
    """Query parameters, which arrive as text: unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResponseModel(BaseModel):
    """A response: every field is written, null included."""

    model_config = ConfigDict(extra="forbid", frozen=True)
