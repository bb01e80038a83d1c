"""Sinks: where the outcome of a run goes when it has a report."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic import Field

from coordination.database import Transaction
from coordination.models import Instant, RequestModel, ResponseModel
from coordination.queries import load_queries
from coordination.targets import SecretId

_QUERIES = load_queries("sinks")

MAX_SINKS = 10
"""Sinks of one run."""

_SAFE_KEY = re.compile(r"[A-Za-z0-9!_.*'()=/-]+")


class S3Sink(RequestModel):
    """Results and report as objects in the bundle's bucket, never over others."""

    kind: Literal["s3"]
    prefix: Annotated[
        str,
        Field(
            min_length=1,
            max_length=500,
            description="exports/<project>/…; below it <run>/results.jsonl (or .parquet) and report.json are written",
            examples=["exports/demo/nightly/"],
        ),
    ]
    format: Annotated[Literal["jsonl", "parquet"], Field(description="of the results")] = "jsonl"


class EventBridgeSink(RequestModel):
    """An event `run.finished` on the account's default bus, source `evalward`."""

    kind: Literal["eventbridge"]


class MlflowSink(RequestModel):
    """A run in MLflow: metrics, parameters, tags, and the report as an artifact."""

    kind: Literal["mlflow"]
    endpoint: Annotated[
        str,
        Field(
            min_length=1,
            max_length=500,
            description="root of the tracking server; https, unless the deployment lists its host for the project",
            examples=["https://mlflow.example.com"],
        ),
    ]
    experiment: Annotated[
        str, Field(min_length=1, max_length=250, description="by name; made when it is not there", examples=["nightly"])
    ]
    secret: SecretId | None = None


type AnySink = S3Sink | EventBridgeSink | MlflowSink
type Sink = Annotated[S3Sink | EventBridgeSink | MlflowSink, Field(discriminator="kind")]


class RunSink(ResponseModel):
    """A sink of a run and how far it is."""

    kind: str
    prefix: Annotated[str | None, Field(description="of an s3 sink")]
    format: Annotated[str | None, Field(description="of an s3 sink")]
    endpoint: Annotated[str | None, Field(description="of an mlflow sink")]
    experiment: Annotated[str | None, Field(description="of an mlflow sink")]
    state: Annotated[str, Field(description="waiting (for the report), queued, succeeded or failed")]
    attempts: int
    error: Annotated[str | None, Field(description="why the last attempt failed")]
    external_id: Annotated[str | None, Field(description="what the destination calls it: the id of a run in MLflow")]
    completed_at: Instant | None


def find_prefix_fault(prefix: str, project: str) -> str | None:
    """Say what is wrong with the prefix of an s3 sink; None when a project may write there."""
    home = f"exports/{project}/"
    if not prefix.startswith(home):
        return f"must begin with {home}"
    segments = prefix.removesuffix("/").split("/")
    if not _SAFE_KEY.fullmatch(prefix) or any(segment in ("", ".", "..") for segment in segments):
        return "may have letters, digits and !_.*'()=- between single slashes, and no segment . or .."
    return None


def name_destination(config: Mapping[str, Any]) -> str:
    """Name where a sink writes: the same for all runs that write there."""
    match config:
        case {"kind": "s3", "prefix": str(prefix)}:
            return f"s3:{prefix.removesuffix('/')}/"
        case {"kind": "mlflow", "endpoint": str(endpoint), "experiment": str(experiment)}:
            return f"mlflow:{endpoint.removesuffix('/')} {experiment}"
        case _:
            return str(config["kind"])


def insert_sinks(transaction: Transaction, run_id: UUID, sinks: Sequence[AnySink]) -> list[RunSink]:
    """Write the sinks of a new run in the transaction that makes it. No round trip, no lock."""
    configs = [sink.model_dump(mode="json") for sink in sinks]
    if configs:
        transaction.submit(
            _QUERIES["insert_run_sinks"],
            {"tenant": transaction.tenant, "run_id": run_id, "configs": [Jsonb(config) for config in configs]},
        )
    new = {"state": "waiting", "attempts": 0, "error": None, "external_id": None, "completed_at": None}
    return [to_run_sink({"config": config, **new}) for config in configs]


def open_sinks(transaction: Transaction, run_id: UUID) -> None:
    """Queue the sinks of a run in the transaction that writes its report, which holds the run's row. No round trip."""
    transaction.wake_all(_QUERIES["open_run_sinks"], {"tenant": transaction.tenant, "run_id": run_id})


def to_run_sink(row: dict[str, Any]) -> RunSink:
    """Make a sink of its row, or of the object that a run's row holds."""
    config: dict[str, Any] = row["config"]
    return RunSink(
        kind=config["kind"],
        prefix=config.get("prefix"),
        format=config.get("format"),
        endpoint=config.get("endpoint"),
        experiment=config.get("experiment"),
        state=row["state"],
        attempts=row["attempts"],
        error=row["error"],
        external_id=row["external_id"],
        completed_at=row["completed_at"],
    )
