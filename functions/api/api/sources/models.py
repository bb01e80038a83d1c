"""Sources as the API takes and shows them."""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from coordination.cron import CronError, parse_cron
from coordination.evaluator_requests import EvaluatorRequest
from coordination.http.pages import PageQuery
from coordination.models import Instant, QueryModel, RequestModel, ResponseModel
from coordination.runs import EvaluatorConfig
from coordination.sinks import MAX_SINKS, Sink
from coordination.source_locations import ConnectorName
from coordination.sources import SourceWindow, WindowState
from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from records.gates import MAX_GATES, Gate
from records.json_pointer import read_pointer
from records.redaction import RedactionRules

from api.runs.models import MAX_LABELS, LabelKey, LabelValue

MIB = 1024 * 1024
_SPARE_SECONDS = 120
_REMOVABLE = frozenset({"endpoint", "credentials"})
_REFUSED = {
    "policy": "online policies are not taken: a source evaluates whole windows in batch",
    "backfill": "backfill is not taken: ticks count from now on; POST …/windows/{start}/run runs a missed window",
    "write_back": "writing scores back into the trace store is not taken: read the report, or use a webhook",
}

type SourceId = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="source id", examples=["nightly-support"])
]
type RecordField = Literal["context", "input", "metadata", "output", "reference", "trajectory", "usage"]
type Location = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="otlp_s3: s3://<bundle bucket>/traces/<project>/… or a bucket the deployment lists; mlflow: id of "
        "an experiment; phoenix: name of a project; langfuse: id of a project",
        examples=["s3://evalward-data/traces/demo/support/"],
    ),
]
type Endpoint = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        description="address of the MLflow, Phoenix or Langfuse server; public, or listed by the deployment",
        examples=["https://mlflow.example.com"],
    ),
]
type SecretName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=400,
        description="name of a secret below evalward/<project>/ with JSON token, or username and password, or "
        "public_key and secret_key; never the credentials themselves",
        examples=["evalward/demo/mlflow"],
    ),
]


class Schedule(RequestModel):
    """When a source ticks, in UTC."""

    cron: Annotated[
        str,
        Field(
            description="minute hour day month weekday; `*`, numbers, names, lists, ranges, steps",
            examples=["0 2 * * *"],
        ),
    ]

    @field_validator("cron")
    @classmethod
    def is_taken(cls, cron: str) -> str:
        """Refuse what the grammar does not take."""
        try:
            parse_cron(cron)
        except CronError as error:
            raise ValueError(str(error)) from None
        return cron


class WindowLength(RequestModel):
    """Which traces a tick reads: those that started in the `seconds` before it, `settle_seconds` after it."""

    seconds: Annotated[int, Field(ge=60, le=604_800, description="length of a window, which ends at its tick")]
    settle_seconds: Annotated[
        int, Field(ge=0, le=86_400, description="how long after its tick a window is read: late traces are in by then")
    ] = 600


class SourceFields(RequestModel):
    """What a source pulls and how it is evaluated."""

    connector: ConnectorName
    endpoint: Annotated[Endpoint | None, Field(description="of mlflow, phoenix and langfuse")] = None
    location: Location
    credentials: Annotated[SecretName | None, Field(description="what opens the store; langfuse needs it")] = None
    schedule: Schedule
    window: WindowLength
    starting_deadline_seconds: Annotated[
        int,
        Field(ge=120, le=86_400, description="how long after its tick a window may be worked on; then it is missed"),
    ] = 3600
    max_traces: Annotated[int, Field(ge=1, le=10_000, description="a window with more is not cut: it fails")] = 1000
    max_snapshot_bytes: Annotated[
        int, Field(ge=1024, le=64 * MIB, description="of a window's records after redaction; more fails")
    ] = 64 * MIB
    redaction: RedactionRules = RedactionRules()
    mapping: Annotated[
        dict[RecordField, Annotated[str, Field(min_length=1, max_length=500)]],
        Field(
            default_factory=dict,
            description="field of a record -> attribute of the root span, or JSON Pointer into the record",
            examples=[{"reference": "expected.answer"}],
        ),
    ]
    evaluators: Annotated[list[EvaluatorRequest], Field(min_length=1, max_length=50)]
    gates: Annotated[list[Gate], Field(max_length=MAX_GATES, default_factory=list[Gate])]
    labels: Annotated[dict[LabelKey, LabelValue], Field(max_length=MAX_LABELS, default_factory=dict[str, str])]
    sinks: Annotated[
        list[Sink], Field(max_length=MAX_SINKS, default_factory=list[Sink], description="where each run's outcome goes")
    ]
    paused: Annotated[bool, Field(description="a paused source does not tick")] = False
    policy: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    backfill: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    write_back: SkipJsonSchema[Any] = Field(default=None, exclude=True)

    @field_validator("policy", mode="before")
    @classmethod
    def has_no_policy(cls, _value: Any) -> None:
        """Refuse an online policy."""
        raise ValueError(_REFUSED["policy"])

    @field_validator("backfill", mode="before")
    @classmethod
    def has_no_backfill(cls, _value: Any) -> None:
        """Refuse backfill."""
        raise ValueError(_REFUSED["backfill"])

    @field_validator("write_back", mode="before")
    @classmethod
    def writes_nothing_back(cls, _value: Any) -> None:
        """Refuse write-back into the trace store."""
        raise ValueError(_REFUSED["write_back"])

    @field_validator("mapping")
    @classmethod
    def names_places(cls, mapping: dict[str, str]) -> dict[str, str]:
        """Refuse what begins like a JSON Pointer and is none."""
        for place in mapping.values():
            if place.startswith("/"):
                read_pointer(place)
        return mapping

    @model_validator(mode="after")
    def has_time_to_start(self) -> Self:
        """Refuse a deadline that leaves no time between settling and missing a window."""
        least = self.window.settle_seconds + _SPARE_SECONDS
        if self.starting_deadline_seconds < least:
            message = (
                f"starting_deadline_seconds must be at least {least}: settle_seconds and {_SPARE_SECONDS} more, in "
                "which the window can be read"
            )
            raise ValueError(message)
        return self


class CreateSource(SourceFields):
    """A new source."""

    id: SourceId


def _show_null_only_where_it_is_taken(schema: dict[str, Any]) -> None:
    for name, field in schema["properties"].items():
        del field["default"]
        if name not in _REMOVABLE:
            (taken,) = [one for one in field.pop("anyOf") if one != {"type": "null"}]
            field.update(taken)


class UpdateSource(RequestModel):
    """Fields to change, each as a whole; those left out stay. Another cron lets ticks count from now on.

    Null removes the endpoint or the credentials; no other field can be null.
    """

    model_config = ConfigDict(json_schema_extra=_show_null_only_where_it_is_taken)

    location: Location | None = None
    endpoint: Annotated[Endpoint | None, Field(description="null removes it where the connector needs none")] = None
    credentials: Annotated[
        SecretName | None, Field(description="null removes them where the store wants none; langfuse needs them")
    ] = None
    schedule: Schedule | None = None
    window: WindowLength | None = None
    starting_deadline_seconds: Annotated[int | None, Field(ge=120, le=86_400)] = None
    max_traces: Annotated[int | None, Field(ge=1, le=10_000)] = None
    max_snapshot_bytes: Annotated[int | None, Field(ge=1024, le=64 * MIB)] = None
    redaction: RedactionRules | None = None
    mapping: dict[RecordField, Annotated[str, Field(min_length=1, max_length=500)]] | None = None
    evaluators: Annotated[list[EvaluatorRequest] | None, Field(min_length=1, max_length=50)] = None
    gates: Annotated[list[Gate] | None, Field(max_length=MAX_GATES)] = None
    labels: Annotated[dict[LabelKey, LabelValue] | None, Field(max_length=MAX_LABELS)] = None
    sinks: Annotated[list[Sink] | None, Field(max_length=MAX_SINKS)] = None
    paused: bool | None = None

    @field_validator("*", mode="before")
    @classmethod
    def has_a_value(cls, value: Any, field: ValidationInfo) -> Any:
        """Refuse null for what a source cannot be without."""
        if value is None and field.field_name not in _REMOVABLE:
            raise ValueError("cannot be null; leave the field out to keep it")
        return value

    @model_serializer(mode="wrap")
    def _write_what_was_sent(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # A field left out and a field sent with its old value are two requests, to an Idempotency-Key too.
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}


class Source(ResponseModel):
    """A source."""

    id: str
    project: str
    connector: str
    endpoint: str | None
    location: str
    credentials: Annotated[str | None, Field(description="the secret's name")]
    schedule: Schedule
    window: WindowLength
    starting_deadline_seconds: int
    max_traces: int
    max_snapshot_bytes: int
    redaction: RedactionRules
    mapping: dict[str, str]
    evaluators: list[EvaluatorConfig]
    gates: list[Gate]
    labels: dict[str, str]
    sinks: list[Sink]
    paused: bool
    cursor: Annotated[Instant, Field(description="ticks up to here are decided")]
    next_tick: Annotated[Instant | None, Field(description="null while paused")]
    last_attempt_at: Instant | None
    last_run: UUID | None
    missed_deadline: Annotated[int, Field(description="ticks whose starting deadline passed")]
    missed_overlap: Annotated[int, Field(description="ticks whose deadline passed while the last run was open")]
    failed_attempts: int
    created_at: Instant
    created_by: str
    updated_at: Instant


class AfterQuery(QueryModel):
    """From when on to look."""

    after: Annotated[Instant | None, Field(description="ticks after this instant; left out: after now")] = None


class Preview(ResponseModel):
    """When a source would tick, and what the first of these ticks would read."""

    next_ticks: Annotated[list[Instant], Field(description="the next five; fewer where the calendar ends")]
    next_window: SourceWindow | None


class WindowQuery(PageQuery):
    """Which windows to list."""

    state: Annotated[WindowState | None, Field(description="only windows in this state")] = None


class RunWindow(RequestModel):
    """How to run a window by hand."""

    exclude_trace_ids: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=256)]],
        Field(max_length=1000, default_factory=list[str], description="traces to pass over; the report names them"),
    ]


class LastTick(ResponseModel):
    """The latest tick of a source that is still kept."""

    tick: Instant
    window: SourceWindow
    state: Annotated[str, Field(description="planning, queued, running, completed, error or cancelled")]
    run: UUID | None
    run_state: str | None
    records: int | None
    scored: int | None
    skipped: int | None
    errors: int | None
    created_at: Instant
    finished_at: Instant | None


class SourceSummary(ResponseModel):
    """What a source did last."""

    source: str
    last_tick: Annotated[
        LastTick | None, Field(description="null: no tick is kept any more, which does not say that there was none")
    ]
    missed_deadline: int
    missed_overlap: int
    failed_attempts: int
