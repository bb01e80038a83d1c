"""From a source's configuration to its connector, places checked once more."""

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.ports.objects import Objects
from coordination.ports.secrets import SecretUnavailableError
from coordination.source_locations import LocationRefusedError, find_place_faults, read_files_location
from coordination.sources import SourceConfig

from scheduled_pull.connectors.langfuse import LangfuseTraces
from scheduled_pull.connectors.mlflow import MlflowTraces
from scheduled_pull.connectors.otlp_s3 import OtlpFiles
from scheduled_pull.connectors.phoenix import PhoenixTraces
from scheduled_pull.connectors.port import Connector
from scheduled_pull.connectors.trace_store import TraceStore, make_authorization
from scheduled_pull.traces import PullFailedError


def open_connector(environment: Environment, project: str, config: SourceConfig, deadline: Deadline) -> Connector:
    """Return the connector of a source.

    Raises
    ------
    PullFailedError
        The place is none that the project may read: it was allowed when the source was made, and is not any more.
    """
    faults = find_place_faults(config.connector, config.endpoint, config.credentials, config.location, project)
    if faults:
        raise PullFailedError("location_refused", f"The source's {faults[0].pointer.lstrip('/')} {faults[0].message}.")
    if config.connector == "otlp_s3":
        return _open_files(environment, project, config, deadline)
    store = TraceStore(
        environment.http_calls,
        project,
        config.endpoint or "",
        lambda: _read_authorization(environment, config.credentials),
        deadline,
    )
    match config.connector:
        case "mlflow":
            return MlflowTraces(store, config.location)
        case "phoenix":
            return PhoenixTraces(store, config.location)
        case "langfuse":
            return LangfuseTraces(store, config.location)


def _open_files(environment: Environment, project: str, config: SourceConfig, deadline: Deadline) -> Connector:
    allowed = environment.settings.sources.allowed_buckets
    try:
        place = read_files_location(config.location, environment.objects.bucket, project, allowed)
    except LocationRefusedError as error:
        raise PullFailedError("location_refused", f"The location {error}.") from error
    is_ours = place.bucket == environment.objects.bucket
    return OtlpFiles(environment.objects if is_ours else Objects(place.bucket), place.prefix, deadline)


def _read_authorization(environment: Environment, credentials: str | None) -> str | None:
    if credentials is None:
        return None
    try:
        secret = environment.secrets.read_foreign(credentials)
    except SecretUnavailableError as error:
        raise PullFailedError(
            "credentials_unavailable",
            f"Secrets Manager did not answer when the secret {credentials} was to be read; the store was not called.",
        ) from error
    authorization = make_authorization(secret)
    if authorization is None:
        raise PullFailedError(
            "credentials_unusable",
            f"The secret {credentials} is not there or may not be read, or holds neither token, nor username and "
            "password, nor public_key and secret_key.",
        )
    return authorization
