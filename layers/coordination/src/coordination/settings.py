"""Settings: environment variables `EVALWARD_<SECTION>__<NAME>`, read once into frozen models."""

from functools import cache

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from coordination.retention import RetentionPeriod

MIB = 1024 * 1024


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


class Settings(BaseSettings):
    """All settings of the functions, from the environment."""

    model_config = SettingsConfigDict(
        env_prefix="EVALWARD_", env_nested_delimiter="__", frozen=True, extra="ignore", env_ignore_empty=True
    )

    database_url: SecretStr | None = Field(default=None, description="libpq URI; wins over the secret when set")
    database_secret_arn: str | None = Field(
        default=None, description="secret with JSON host, port, dbname, username, password"
    )
    storage: StorageSettings = StorageSettings()
    queues: QueueSettings = QueueSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    transactions: TransactionSettings = TransactionSettings()
    work: WorkSettings = WorkSettings()
    runs: RunSettings = RunSettings()
    outgoing: OutgoingSettings = OutgoingSettings()
    webhooks: WebhookSettings = WebhookSettings()


@cache
def load_settings() -> Settings:
    """Read the environment once.

    Raises
    ------
    pydantic.ValidationError
        A value is out of its range; the message names the setting.
    """
    return Settings()
