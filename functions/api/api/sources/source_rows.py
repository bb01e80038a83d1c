"""From a request to what is stored of a source, and back."""

from typing import Any

from coordination.cron import GRAMMAR_VERSION, parse_cron
from coordination.errors import Fault, InvalidRequestError
from coordination.evaluator_requests import check_evaluators, list_metric_ids
from coordination.remote_places import find_sink_faults
from coordination.runs import RunConfig
from coordination.settings import Settings
from coordination.source_locations import LocationRefusedError, find_place_faults, read_files_location
from coordination.sources import SourceConfig, read_ticks
from coordination.targets import RecordedTarget
from psycopg.types.json import Jsonb
from records.gates import find_unknown_metrics

from api.sources.models import Schedule, Source, SourceFields, WindowLength

_CONCURRENCY = 8


def make_config(fields: SourceFields, settings: Settings, project: str) -> SourceConfig:
    """Check all that can be known of a source before it is stored.

    Raises
    ------
    InvalidRequestError
        The place is none that the project may read, or an evaluator, a parameter, a gate or a sink is not right.
    """
    evaluators, faults = check_evaluators(fields.evaluators, "/evaluators")
    ids = list_metric_ids(fields.evaluators)
    unknown = find_unknown_metrics(fields.gates, ids, at="/gates")
    faults += [Fault(problem.pointer, problem.message) for problem in unknown]
    faults += find_sink_faults(fields.sinks, project, "/sinks")
    faults += find_place_faults(fields.connector, fields.endpoint, fields.credentials, fields.location, project)
    if fields.connector == "otlp_s3":
        try:
            read_files_location(fields.location, settings.storage.bucket, project, settings.sources.allowed_buckets)
        except LocationRefusedError as error:
            faults.append(Fault("/location", str(error)))
    if faults:
        raise InvalidRequestError.at(faults)
    run = RunConfig(
        target=RecordedTarget(),
        evaluators=evaluators,
        gates=fields.gates,
        trials=1,
        concurrency=_CONCURRENCY,
        max_errors=None,
    )
    return SourceConfig(
        connector=fields.connector,
        location=fields.location,
        endpoint=fields.endpoint,
        credentials=fields.credentials,
        window_seconds=fields.window.seconds,
        settle_seconds=fields.window.settle_seconds,
        starting_deadline_seconds=fields.starting_deadline_seconds,
        max_traces=fields.max_traces,
        max_snapshot_bytes=fields.max_snapshot_bytes,
        redaction=fields.redaction,
        mapping={str(field): place for field, place in fields.mapping.items()},
        run=run,
        labels=dict(fields.labels),
        sinks=list(fields.sinks),
    )


def make_schedule(cron: str) -> dict[str, Any]:
    """Return the columns that hold a schedule: what was written, what it means, and by which grammar."""
    return {"cron": cron, "cron_sets": Jsonb(parse_cron(cron).to_json()), "grammar_version": GRAMMAR_VERSION}


def to_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return the request that would make a stored source, as JSON values."""
    config = SourceConfig.model_validate(row["config"])
    stored = config.model_dump(mode="json")
    return {
        "connector": config.connector,
        "location": config.location,
        "endpoint": config.endpoint,
        "credentials": config.credentials,
        "schedule": {"cron": row["cron"]},
        "window": {"seconds": config.window_seconds, "settle_seconds": config.settle_seconds},
        "starting_deadline_seconds": config.starting_deadline_seconds,
        "max_traces": config.max_traces,
        "max_snapshot_bytes": config.max_snapshot_bytes,
        "redaction": stored["redaction"],
        "mapping": config.mapping,
        "evaluators": stored["run"]["evaluators"],
        "gates": stored["run"]["gates"],
        "labels": config.labels,
        "sinks": stored["sinks"],
        "paused": row["paused"],
    }


def to_source(row: dict[str, Any]) -> Source:
    """Make a source of its row."""
    config = SourceConfig.model_validate(row["config"])
    return Source(
        id=row["id"],
        project=row["tenant_id"],
        connector=config.connector,
        location=config.location,
        endpoint=config.endpoint,
        credentials=config.credentials,
        # As it was stored: a grammar that has become stricter does not hide a source that runs.
        schedule=Schedule.model_construct(cron=row["cron"]),
        window=WindowLength(seconds=config.window_seconds, settle_seconds=config.settle_seconds),
        starting_deadline_seconds=config.starting_deadline_seconds,
        max_traces=config.max_traces,
        max_snapshot_bytes=config.max_snapshot_bytes,
        redaction=config.redaction,
        mapping=config.mapping,
        evaluators=config.run.evaluators,
        gates=config.run.gates,
        labels=config.labels,
        sinks=config.sinks,
        paused=row["paused"],
        cursor=row["cursor_at"],
        next_tick=None if row["paused"] else read_ticks(row).next_after(row["cursor_at"]),
        last_attempt_at=row["last_attempt_at"],
        last_run=row["last_evaluation_id"],
        missed_deadline=row["missed_deadline"],
        missed_overlap=row["missed_overlap"],
        failed_attempts=row["failed_attempts"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        updated_at=row["updated_at"],
    )
