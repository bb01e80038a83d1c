"""Border: the minute pulse of sources, and the pull queue (one source to look at, a snapshot to remove)."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment
from coordination.queue_handler import Message, UnknownMessageError, handle_queue_event

from scheduled_pull.pull_source import pull_source
from scheduled_pull.remove_snapshot import remove_snapshot
from scheduled_pull.send_due_sources import send_due_sources

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Work on the messages of the pull queue, or send the sources that are due.

    A pulse that is late, doubled or lost changes nothing: what is due stands in the database.
    """
    if "Records" in event:
        return handle_queue_event(load_environment(), event, context, _act)
    return {"sent": send_due_sources(load_environment(), Deadline.of_invocation(context))}


def _act(message: Message, deadline: Deadline) -> None:
    match message:
        case {"kind": "source_tick", "project": str(project), "ref_id": str(source_id)}:
            pull_source(load_environment(), project, source_id, deadline)
        case {"kind": "snapshot_removal", "project": str(project), "ref_id": str(run_id)}:
            remove_snapshot(load_environment(), project, run_id)
        case _:
            raise UnknownMessageError(f"fields {sorted(message)[:10]}")
