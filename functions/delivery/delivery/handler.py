"""Border of the minute pulse."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment

from delivery.send_due_wake_ups import send_due_wake_ups

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(_event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Send the wake-ups that are due; a pulse that is late, doubled or lost changes nothing."""
    return {"sent": send_due_wake_ups(load_environment(), Deadline.of_invocation(context))}
