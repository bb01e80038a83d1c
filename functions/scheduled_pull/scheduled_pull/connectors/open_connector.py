"""From a source's configuration to its connector, places checked once more."""

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.source_locations import LocationRefusedError, read_traces_prefix
from coordination.sources import SourceConfig

from scheduled_pull.connectors.otlp_s3 import OtlpFiles
from scheduled_pull.connectors.port import Connector
from scheduled_pull.traces import PullFailedError


def open_connector(environment: Environment, project: str, config: SourceConfig, deadline: Deadline) -> Connector:
    """Return the connector of a source.

    Raises
    ------
    PullFailedError
        The place is none that the project may read: it was allowed when the source was made, and is not any more.
    """
    try:
        prefix = read_traces_prefix(config.location, environment.objects.bucket, project)
    except LocationRefusedError as error:
        raise PullFailedError("location_refused", f"The location {error}.") from error
    return OtlpFiles(environment.objects, prefix, deadline)
