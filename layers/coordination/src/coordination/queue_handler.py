"""The border of functions that read a queue: one message after the other, failures reported message by message."""

from collections.abc import Callable
from typing import Any

import orjson
from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.jobengine.workers import heartbeat

logger = Logger(child=True)

_LOGGED = ("request_id", "project", "kind", "ref_id")

type Message = dict[str, Any]
type Act = Callable[[Message, Deadline], None]


class UnknownMessageError(Exception):
    """A message is none that this function understands."""


def handle_queue_event(
    environment: Environment, event: dict[str, Any], context: LambdaContext, act: Act
) -> dict[str, Any]:
    """Act on every message of an SQS event, and let the database hear of this worker before and after.

    Parameters
    ----------
    environment
        Whose database hears of it, outside of any transaction of the work.
    event, context
        As Lambda gives them.
    act
        Works on one message (a JSON object); whatever it raises sends that message back to the queue.

    Returns
    -------
    dict
        Partial batch response: ids of the messages to deliver again, only ids of this batch.
    """
    deadline = Deadline.of_invocation(context)

    def act_on(record: SQSRecord) -> None:
        message: Any = orjson.loads(record.body)
        if not isinstance(message, dict):
            raise UnknownMessageError("a message must be a JSON object")
        # The chain of a request is one search in the logs: its id where it is known, the work's always. What this
        # message makes others do carries the id on (`Outbox.send`).
        logger.append_keys(**{name: message.get(name) for name in _LOGGED})
        try:
            act(message, deadline)
        except Exception:
            logger.exception("message goes back to its queue", extra={"message_id": record.message_id})
            raise

    # By default the processor raises when every message failed, which would hide which ones did.
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    with heartbeat(environment.database, context.function_name):
        response = process_partial_response(event=event, record_handler=act_on, processor=processor, context=context)
    return dict(response)
