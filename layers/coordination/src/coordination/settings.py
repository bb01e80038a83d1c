"""Settings: environment variables `EVALWARD_<SECTION>__<NAME>`, read once into frozen models."""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from coordination.jobengine.registry import CAPACITY_ENTRIES
from coordination.retention import RetentionPeriod

MIB = 1024 * 1024
GIB = 1024 * MIB


class Section(BaseModel):
    """A frozen group of settings; an unknown name in it is an error that stops the function at start."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageSettings(Section):
    """Where objects are."""

    bucket: str = Field(default="", description="name of the bucket that holds datasets and incoming files")
    presign_seconds: int = Field(default=300, gt=0, le=3600, description="how long a presigned URL is valid")


class QueueSettings(Section):
    """Where wake-ups are sent."""

    conversion_url: str = Field(default="", description="URL of the queue that dataset_conversion reads")
    evaluation_url: str = Field(default="", description="URL of the queue that run_evaluation reads")
    delivery_url: str = Field(default="", description="URL of the queue that delivery reads")
    pull_url: str = Field(default="", description="URL of the queue that scheduled_pull reads")
    dead_letter_urls: tuple[str, ...] = Field(
        default=(), description="JSON list of the URLs of the dead-letter queues, which the doctor looks into"
    )


class IdempotencySettings(Section):
    """Caps of one scope and how long an outcome is replayed."""

    max_records: int = Field(default=1024, gt=0, description="records per scope, uncertain ones included")
    max_bytes: int = Field(default=64 * MIB, gt=0, description="stored answer bytes per scope")
    max_outcome_bytes: int = Field(default=4 * MIB, gt=0, description="largest answer that is kept")
    retention_seconds: int = Field(default=86_400, gt=0, description="how long a completed outcome is replayed")
    uncertain_seconds: int = Field(
        default=6 * 86_400, ge=0, description="how much longer a claim without an outcome blocks its key"
    )


class TransactionSettings(Section):
    """Time-outs that every tenant transaction sets for itself."""

    lock_timeout_ms: int = Field(default=5_000, gt=0, description="longest wait for one lock")
    statement_timeout_ms: int = Field(default=20_000, gt=0, description="longest run of one statement")


class RunSettings(Section):
    """How long ended runs are kept, unless their project says otherwise itself."""

    retention: RetentionPeriod | None = Field(default=None, description="of every project; unset keeps for ever")
    project_retention: dict[str, RetentionPeriod] = Field(
        default_factory=dict[str, str], description="JSON object of project id and period; wins over retention"
    )
    max_deletions_per_pass: int = Field(default=5_000, gt=0, description="runs that one hourly pass deletes at most")


class WorkSettings(Section):
    """How work is retried."""

    max_attempts: int = Field(default=5, gt=0, description="attempts of an import or a shard before it is failed")
    resend_after_seconds: int = Field(
        default=300, gt=0, description="a wake-up that was sent and never claimed is sent again after this"
    )


class WebhookSettings(Section):
    """What webhooks are signed with."""

    secret_arn: str = Field(
        default="", description="secret with JSON key, from which the secrets of all webhooks are derived"
    )


class OutgoingSettings(Section):
    """Which places outside may be called."""

    allowed_hosts: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="project id or * -> hosts (host or host:port) that may be called although they are not public",
    )
    allowed_functions: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="project id or * -> ARNs of Lambda functions that targets and evaluators may invoke",
    )
    allowed_models: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="project id or * -> ids or ARNs of Bedrock models and profiles that targets and judges may ask",
    )


def list_allowed(allowed: Mapping[str, Sequence[str]], project: str) -> set[str]:
    """Return what a setting of project id or `*` lists for a project."""
    return {*allowed.get("*", ()), *allowed.get(project, ())}


_SECONDS = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,6})?")
_SPAN = re.compile(r"(?:(\d{1,5})\.)?(\d{1,2}):(\d{2}):(\d{2})")


def _read_span(value: object) -> object:
    """Read `days.hours:minutes:seconds` and, as the environment has only text, seconds; ISO 8601 passes."""
    if isinstance(value, str) and _SECONDS.fullmatch(value):
        return timedelta(seconds=float(value))
    if isinstance(value, str) and (span := _SPAN.fullmatch(value)):
        days, hours, minutes, seconds = (int(part or 0) for part in span.groups())
        return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return value


type Span = Annotated[timedelta, BeforeValidator(_read_span)]


class RetentionSettings(Section):
    """JobEngine:Retention: when the keeper sweeps, and what it leaves."""

    enabled: bool = Field(default=True, description="run scheduled sweeps")
    tenants: tuple[str, ...] = Field(
        default=("default",), description="JSON list of scopes that are swept beside all projects"
    )
    terminal_retention_days: int = Field(default=90, gt=0, le=36_500, description="age window of ended mechanics")
    failure_signature_retention_days: int = Field(
        default=90, gt=0, le=36_500, description="age window of resolved failures"
    )
    job_history_retention_days: int = Field(
        default=365, gt=0, le=36_500, description="age window of archived outcomes, never shorter than the terminal one"
    )
    maximum_terminal_rows_per_scope: int = Field(
        default=10_000, gt=0, le=10_000_000, description="ended rows that a scope keeps per table"
    )
    batch_size: int = Field(default=1_000, gt=0, le=100_000, description="rows that one call deletes at most")
    max_batches_per_sweep: int = Field(default=10, gt=0, description="calls per table and scope in one sweep")
    sweep_interval: Span = Field(
        default=timedelta(days=1), gt=timedelta(0), description="cadence: seconds, ISO 8601, or days.hh:mm:ss"
    )
    start_delay: Span = Field(
        default=timedelta(minutes=5), ge=timedelta(0), description="wait after the installation before the first sweep"
    )
    doctor_grace: Span = Field(
        default=timedelta(0), ge=timedelta(0), description="how long the doctor tolerates an expired row"
    )

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        if self.job_history_retention_days < self.terminal_retention_days:
            raise ValueError("job_history_retention_days must not be shorter than terminal_retention_days")
        if self.doctor_grace > self.sweep_interval:
            raise ValueError("doctor_grace must not be longer than sweep_interval")
        return self


class CapacityLimit(Section):
    """How large something may become."""

    budget_bytes: int = Field(gt=0, description="planned size")
    stop_line_bytes: int = Field(gt=0, description="size from which the doctor asks for a pause")

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.stop_line_bytes > self.budget_bytes:
            raise ValueError("stop_line_bytes must not be above budget_bytes")
        return self


class CapacitySettings(Section):
    """JobEngine:Capacity: the envelope of the database."""

    database: CapacityLimit = Field(
        default=CapacityLimit(budget_bytes=64 * GIB, stop_line_bytes=56 * GIB), description="of the whole database"
    )
    entry: CapacityLimit = Field(
        default=CapacityLimit(budget_bytes=8 * GIB, stop_line_bytes=7 * GIB),
        description="of each registered table with its indexes, unless `entries` names it",
    )
    entries: dict[str, CapacityLimit] = Field(
        default_factory=dict[str, CapacityLimit], description="JSON object of schema.table and its limit"
    )

    @field_validator("entries")
    @classmethod
    def _check_names(cls, entries: dict[str, CapacityLimit]) -> dict[str, CapacityLimit]:
        if unknown := entries.keys() - set(CAPACITY_ENTRIES):
            raise ValueError(f"not measured: {', '.join(sorted(unknown))}; measured are {', '.join(CAPACITY_ENTRIES)}")
        return entries

    def limit(self, name: str) -> CapacityLimit:
        """Return the limit of a registered table."""
        return self.entries.get(name, self.entry)


class JobEngineSettings(Section):
    """JobEngine: the keeper and the capacity probe."""

    retention: RetentionSettings = RetentionSettings()
    capacity: CapacitySettings = CapacitySettings()


class SourceSettings(Section):
    """Where sources may read beside the bundle's bucket."""

    allowed_buckets: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]],
        description="project id or * -> buckets (bucket or bucket/prefix) with OTLP files that sources may read",
    )


class MetricSettings(Section):
    """What figures are told apart by."""

    deployment: str = Field(default="local", description="name of the stack: dimension `deployment` of every metric")


class Settings(BaseSettings):
    """All settings of the functions, from the environment."""

    model_config = SettingsConfigDict(
        env_prefix="EVALWARD_", env_nested_delimiter="__", frozen=True, extra="ignore", env_ignore_empty=True
    )

    database_url: SecretStr | None = Field(default=None, description="libpq URI; wins over the secret when set")
    database_secret_arn: str | None = Field(
        default=None, description="secret with JSON host, port, dbname, username, password"
    )
    database_host: str | None = Field(
        default=None, description="wins over the secret's host: a proxy, which the secret it reads cannot name"
    )
    storage: StorageSettings = StorageSettings()
    queues: QueueSettings = QueueSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    transactions: TransactionSettings = TransactionSettings()
    work: WorkSettings = WorkSettings()
    runs: RunSettings = RunSettings()
    outgoing: OutgoingSettings = OutgoingSettings()
    sources: SourceSettings = SourceSettings()
    webhooks: WebhookSettings = WebhookSettings()
    jobengine: JobEngineSettings = JobEngineSettings()
    metrics: MetricSettings = MetricSettings()


@cache
def load_settings() -> Settings:
    """Read the environment once.

    Raises
    ------
    pydantic.ValidationError
        A value is out of its range; the message names the setting.
    """
    return Settings()
