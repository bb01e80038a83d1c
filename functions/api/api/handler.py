"""Border of the HTTP API, every route that no other function serves, and of the doctor's pulse."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment
from coordination.http.border import make_handler

from api.doctor.examine import tell_health
from api.operations import OPERATIONS, PAGES

_answer = make_handler(OPERATIONS, PAGES)


def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer a request of the gateway; for the schedule's `{"pulse": "doctor"}`, tell how healthy the deployment is."""
    if event.get("pulse") == "doctor":
        return tell_health(load_environment(), Deadline.of_invocation(context))
    return _answer(event, context)
