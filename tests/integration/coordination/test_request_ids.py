"""One request, one id: from the answer over the message to the lines of whoever works on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from aws_lambda_powertools import Logger
from coordination.environment import Environment
from coordination.queue_handler import handle_queue_event
from coordination.wake_ups import WakeUp

if TYPE_CHECKING:
    from integration.conftest import Api, RecordedQueues

WORK = WakeUp("evaluation", "finish", "demo", "9")


@dataclass(frozen=True)
class Invocation:
    function_name: str = "evalward-RunEvaluationFunction"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def make_event(body: dict[str, Any]) -> dict[str, Any]:
    record = {
        "messageId": "m-1",
        "receiptHandle": "r",
        "body": json.dumps(body),
        "attributes": {},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-central-1:123456789012:evaluation",
        "awsRegion": "eu-central-1",
    }
    return {"Records": [record]}


def test_message_of_a_request_carries_its_id_and_so_do_the_lines_and_messages_that_follow(
    service: Api,
    environment: Environment,
    queues: RecordedQueues,
    make_project: Callable[..., str],
    make_dataset: Callable[..., str],
) -> None:
    make_dataset(make_project("demo"))
    order = {"name": "r", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
    reply = service.post("/v1/projects/demo/runs", order)
    (_, message) = queues.sent[-1]
    assert message["request_id"] == reply.headers["x-request-id"]

    logger = Logger(child=True)
    logged: list[dict[str, Any]] = []

    def act(_message: dict[str, Any], _deadline: Any) -> None:
        logged.append(logger.get_current_keys())
        environment.outbox.send([WORK])

    handle_queue_event(environment, make_event(message), cast("Any", Invocation()), act)
    assert {name: logged[0][name] for name in ("request_id", "project", "kind", "ref_id")} == message
    assert queues.sent[-1][1]["request_id"] == message["request_id"]
