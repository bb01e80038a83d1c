"""Border: the minute pulse, and the delivery queue (a webhook to call, a storage event to publish, a run to export)."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment
from coordination.queue_handler import Message, UnknownMessageError, handle_queue_event

from delivery.deliver_webhook import deliver_webhook
from delivery.export_run import export_run
from delivery.publish_storage_event import publish_storage_event
from delivery.send_due_wake_ups import send_due_wake_ups

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Work on the messages of the delivery queue, or send the wake-ups that are due.

    A pulse that is late, doubled or lost changes nothing.
    """
    if "Records" in event:
        return handle_queue_event(load_environment(), event, context, _act)
    return {"sent": send_due_wake_ups(load_environment(), Deadline.of_invocation(context))}


def _act(message: Message, deadline: Deadline) -> None:
    match message:
        case {"kind": "webhook", "project": str(project), "ref_id": str(delivery_id)}:
            deliver_webhook(load_environment(), project, delivery_id)
        case {"kind": "storage_event", "project": str(project), "ref_id": str(event_id)}:
            publish_storage_event(load_environment(), project, event_id)
        case {"kind": "sink", "project": str(project), "ref_id": str(sink_id)}:
            export_run(load_environment(), project, sink_id, deadline)
        case _:
            raise UnknownMessageError(f"fields {sorted(message)[:10]}")
