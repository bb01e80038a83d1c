"""Border: direct uploads over HTTP; imports, incoming files and exports of Parquet over the queue."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment
from coordination.http.border import make_handler
from coordination.queue_handler import Message, UnknownMessageError, handle_queue_event

from dataset_conversion.export_parquet import export_parquet
from dataset_conversion.operations import OPERATIONS
from dataset_conversion.record_incoming import record_incoming
from dataset_conversion.remove_object import remove_object
from dataset_conversion.work_import import work_import

logger = Logger()
_handle_http = make_handler(OPERATIONS)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve an HTTP request, or work on the messages of the incoming queue."""
    return (
        handle_queue_event(load_environment(), event, context, _act)
        if "Records" in event
        else _handle_http(event, context)
    )


def _act(message: Message, deadline: Deadline) -> None:
    match message:
        case {"kind": "import", "project": str(project), "ref_id": str(import_id)}:
            work_import(load_environment(), project, import_id)
        case {"kind": "object_removal", "project": str(project), "ref_id": str(sha256)}:
            remove_object(load_environment(), project, sha256)
        case {"kind": "sink", "project": str(project), "ref_id": str(sink_id)}:
            export_parquet(load_environment(), project, sink_id, deadline)
        case {"Records": list(records)}:
            record_incoming(load_environment(), records)
        case {"Event": "s3:TestEvent"}:
            logger.info("S3 says that it may write to the queue")
        case _:
            raise UnknownMessageError(f"fields {sorted(message)[:10]}")
