"""Runs: what api and run_evaluation know of them alike."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from records.evaluators import catalogue
from records.gates import Gate

from coordination.models import Instant, ResponseModel
from coordination.sinks import RunSink, to_run_sink
from coordination.targets import Target

TERMINAL_STATES = frozenset({"succeeded", "failed", "error", "cancelled"})
type RunState = Literal["pending", "running", "succeeded", "failed", "error", "cancelled"]


class EvaluatorConfig(BaseModel):
    """One evaluator of a run, its parameters complete.

    Attributes
    ----------
    id
        Unique in the run; metrics, gates and results name it.
    name
        In the catalogue.
    params
        Validated, defaults applied.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    name: str
    params: dict[str, Any]


class RunConfig(BaseModel):
    """All that decides a run's scores beside its records, complete: defaults applied, as it was at creation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: Target
    evaluators: list[EvaluatorConfig]
    gates: list[Gate]
    trials: int
    concurrency: int
    max_errors: int | None

    @property
    def makes_calls(self) -> bool:
        """Whether its target or one of its evaluators calls out: its shards then write in batches."""
        return self.target.kind != "recorded" or any(
            catalogue.get_evaluator(evaluator.name).calls_out for evaluator in self.evaluators
        )

    @property
    def results_each(self) -> int:
        """Results of one record: one of each evaluator in each trial."""
        return len(self.evaluators) * self.trials


class RunDataset(ResponseModel):
    """The dataset version a run was pinned to at creation."""

    name: str
    version: int
    sha256: str


class RunSource(ResponseModel):
    """The window of a source that a run evaluates: start inclusive, end exclusive."""

    id: str
    window_start: Instant
    window_end: Instant


class Progress(ResponseModel):
    """How far a run is: `total` and `done` count records, the others results."""

    total: int
    done: int
    scored: int
    skipped: int
    errors: int


class RunFailure(ResponseModel):
    """Why a run could not finish."""

    code: str
    detail: str


class Run(ResponseModel):
    """One evaluation of a snapshot of records."""

    id: UUID
    project: str
    name: str
    state: RunState
    dataset: Annotated[RunDataset | None, Field(description="null for the run of a source")]
    source: Annotated[RunSource | None, Field(description="null for the run of a dataset")] = None
    config: RunConfig
    labels: dict[str, str]
    progress: Progress
    gates: Annotated[
        list[dict[str, Any]] | None,
        Field(description="each gate with its value and whether it passed; null until then"),
    ]
    sinks: Annotated[
        list[RunSink], Field(default_factory=list[RunSink], description="where the outcome goes when there is a report")
    ]
    slices: Annotated[
        list[str], Field(default_factory=list[str], description="metadata keys that the report is sliced by")
    ]
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    error: RunFailure | None
    created_by: str


def to_run_dataset(row: Mapping[str, Any]) -> RunDataset | None:
    """Return the dataset of a run's row; None for the run of a source."""
    if row["dataset_name"] is None:
        return None
    return RunDataset(name=row["dataset_name"], version=row["dataset_version"], sha256=row["sha256"])


def to_run_source(row: Mapping[str, Any]) -> RunSource | None:
    """Return the source of a run's row; None for the run of a dataset."""
    if row["source_id"] is None:
        return None
    return RunSource(id=row["source_id"], window_start=row["window_start"], window_end=row["window_end"])


def to_run(row: Mapping[str, Any]) -> Run:
    """Make a run of its row (which holds `labels` as an object, `sinks` as a list and the snapshot's `sha256`)."""
    return Run(
        id=row["id"],
        project=row["tenant_id"],
        name=row["name"],
        state=row["state"],
        dataset=to_run_dataset(row),
        source=to_run_source(row),
        config=RunConfig.model_validate(row["config"]),
        labels=row["labels"],
        progress=Progress(
            total=row["records_total"],
            done=row["records_done"],
            scored=row["results_scored"],
            skipped=row["results_skipped"],
            errors=row["results_errors"],
        ),
        gates=row["gates"],
        sinks=[to_run_sink(sink) for sink in row["sinks"]],
        slices=row["slices"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        error=RunFailure.model_validate(row["error"]) if row["error"] else None,
        created_by=row["created_by"],
    )
