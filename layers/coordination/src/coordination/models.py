"""Field types and base models that every request and response shares."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from coordination.access import PROJECT_ID
from coordination.clock import read_instant


def _read_text(value: Any) -> datetime:
    # The database hands over instants, callers text; a number of theirs is not taken for seconds since 1970.
    if isinstance(value, datetime):
        return value
    return read_instant(value if isinstance(value, str) else "")


def _in_utc(instant: datetime) -> datetime:
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside of the years 1 to 9999 in UTC") from None


# Not strict: after a look at it, the text of a body is no longer one of JSON, which alone strict fields take.
type Instant = Annotated[
    AwareDatetime,
    Field(
        strict=False,
        description="RFC 3339 with seconds and a zone, at most six digits of a fraction; answers have it in UTC with Z",
        examples=["2026-11-30T02:00:00Z"],
    ),
    BeforeValidator(_read_text),
    AfterValidator(_in_utc),
]
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
