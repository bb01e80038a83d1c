"""Projects as the API shows them."""

from typing import Annotated, Any

from coordination.models import Instant, ProjectId, RequestModel, ResponseModel
from pydantic import Field

from api.projects.retention import RetentionPeriod

type Description = Annotated[str, Field(max_length=1000, description="for people")]


class Quotas(RequestModel):
    """What a project may store; null is no limit."""

    max_stored_runs: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="runs, whatever their state")] = None
    max_dataset_bytes: Annotated[int | None, Field(ge=1, le=2**62, description="bytes of published datasets")] = None


class CreateProject(RequestModel):
    """A new project."""

    id: ProjectId
    description: Description = ""
    quotas: Quotas = Quotas()
    run_retention: RetentionPeriod | None = None
    paused: Annotated[bool, Field(description="a paused project takes writes and dispatches no work")] = False


class UpdateProject(RequestModel):
    """Fields to change; those left out stay."""

    description: Description | None = None
    quotas: Quotas | None = None
    run_retention: RetentionPeriod | None = None
    paused: bool | None = None

    def changes(self) -> dict[str, Any]:
        """Return the fields that were sent, with their values (null included)."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Project(ResponseModel):
    """A project."""

    id: str
    description: str
    quotas: Quotas
    run_retention: str | None
    paused: bool
    created_at: Instant
    created_by: str
    updated_at: Instant
