"""Projects as the API shows them."""

from typing import Annotated, Any

from coordination.models import Instant, ProjectId, RequestModel, ResponseModel
from coordination.retention import RetentionPeriod
from pydantic import BaseModel, Field, model_serializer

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


class UpdateQuotas(Quotas):
    """Quotas to change; those left out stay, null lifts one."""

    @model_serializer
    def _write_what_was_sent(self) -> dict[str, Any]:
        return _only_set(self)


class UpdateProject(RequestModel):
    """Fields to change; those left out stay. The defaults are never applied."""

    description: Description = ""
    quotas: UpdateQuotas = UpdateQuotas()
    run_retention: RetentionPeriod | None = None
    paused: bool = False

    @model_serializer
    def _write_what_was_sent(self) -> dict[str, Any]:
        # A field left out and a field sent with its default are two requests, to an Idempotency-Key too.
        return _only_set(self)

    def apply_to(self, project: "Project") -> "Project":
        """Return the project with the fields that were sent."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if "quotas" in changes:
            limits = {name: getattr(self.quotas, name) for name in self.quotas.model_fields_set}
            changes["quotas"] = project.quotas.model_copy(update=limits)
        return project.model_copy(update=changes)


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


def _only_set(model: BaseModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}
