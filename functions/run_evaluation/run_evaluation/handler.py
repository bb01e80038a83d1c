"""Border: the evaluation queue (a run to plan, a shard to evaluate, a run to finish) and `/evaluate` over HTTP."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment
from coordination.http.border import make_handler
from coordination.queue_handler import Message, UnknownMessageError, handle_queue_event

from run_evaluation.evaluate_shard import evaluate_shard
from run_evaluation.finish_run import finish_run
from run_evaluation.operations import OPERATIONS
from run_evaluation.plan_run import plan_run

logger = Logger()
_handle_http = make_handler(OPERATIONS)


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Serve an HTTP request, or work on the messages of the evaluation queue."""
    return (
        handle_queue_event(load_environment(), event, context, _act)
        if "Records" in event
        else _handle_http(event, context)
    )


def _act(message: Message, deadline: Deadline) -> None:
    match message:
        case {"kind": "run", "project": str(project), "ref_id": str(run_id)}:
            plan_run(load_environment(), project, run_id)
        case {"kind": "shard", "project": str(project), "ref_id": str(shard_id)}:
            evaluate_shard(load_environment(), project, shard_id, deadline)
        case {"kind": "finish", "project": str(project), "ref_id": str(run_id)}:
            finish_run(load_environment(), project, run_id)
        case _:
            raise UnknownMessageError(f"fields {sorted(message)[:10]}")
