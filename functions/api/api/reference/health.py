"""Whether the service is there, and the limits it works within."""

from typing import Annotated, Literal

from coordination.database import Database
from coordination.errors import ProblemError
from coordination.models import ResponseModel
from coordination.version import VERSION
from pydantic import Field


class PublishedLimits(ResponseModel):
    """Limits that a client meets."""

    direct_upload_bytes: int = 4 * 1024 * 1024
    dataset_bytes: int = 64 * 1024 * 1024
    dataset_records: int = 100_000
    row_bytes: int = 4 * 1024 * 1024
    nesting: int = 64
    json_body_bytes: int = 1024 * 1024
    request_seconds: int = 30
    header_bytes: int = 10_240
    page_items: int = 200


class Health(ResponseModel):
    """The service's state."""

    status: Literal["ok", "degraded"]
    version: str
    database: Annotated[Literal["reachable", "unreachable"], Field(description="asked just now")]
    limits: PublishedLimits


def read_health(database: Database) -> Health:
    """Ask the database for a sign of life."""
    try:
        database.fetch_one("SELECT 1 AS alive")
    except ProblemError:
        return Health(status="degraded", version=VERSION, database="unreachable", limits=PublishedLimits())
    return Health(status="ok", version=VERSION, database="reachable", limits=PublishedLimits())
