"""An endpoint, an environment that may call it, and the delivery function at hand."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import boto3
import delivery.handler
import orjson
import pytest
from coordination.environment import Environment
from coordination.events import EventName, emit_event
from coordination.settings import OutgoingSettings, WebhookSettings
from evalward_local.webhook_receiver import WebhookReceiver
from moto import mock_aws

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, RecordedQueues

MASTER = "m" * 64


class Context:
    """Lambda's context object."""

    aws_request_id = "00000000-0000-0000-0000-000000000001"
    function_name = "delivery"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:delivery"

    def get_remaining_time_in_millis(self) -> int:
        return 50_000


@pytest.fixture
def receiver() -> Generator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture
def environment(make_environments: Callable[..., Environment], receiver: WebhookReceiver) -> Generator[Environment]:
    """Return an environment with the master secret, whose project `demo` may call the receiver."""
    with mock_aws():
        secret = orjson.dumps({"key": MASTER}).decode()
        boto3.client("secretsmanager").create_secret(Name="webhook-secret", SecretString=secret)
        yield make_environments(
            webhooks=WebhookSettings(secret_arn="webhook-secret"),
            outgoing=OutgoingSettings(allowed_hosts={"demo": [receiver.host]}),
        )


@dataclass
class Delivery:
    """The delivery function: what the queue brings it, and what time does.

    Attributes
    ----------
    failures
        Answers of the function that name messages to bring again.
    """

    database: FreshDatabase
    queues: RecordedQueues
    failures: list[Any] = field(default_factory=list[Any])

    def invoke(self, *messages: Any) -> None:
        records = [
            {"messageId": str(number), "body": orjson.dumps(message).decode()}
            for number, message in enumerate(messages)
        ]
        answer = delivery.handler.lambda_handler({"Records": records}, Context())  # pyright: ignore[reportArgumentType]
        self.failures += answer["batchItemFailures"]

    def take(self) -> list[dict[str, Any]]:
        """Take the messages out of the queue that it would show now."""
        kept = [
            (message, delay)
            for (url, message), delay in zip(self.queues.sent, self.queues.delays, strict=True)
            if url.endswith("/delivery")
        ]
        self.queues.sent.clear()
        self.queues.delays.clear()
        return [message for message, delay in kept if delay == 0]

    def work(self) -> None:
        """Invoke the function with each message that is there."""
        for message in self.take():
            self.invoke(message)

    def pulse(self) -> int:
        answer = delivery.handler.lambda_handler({}, Context())  # pyright: ignore[reportArgumentType]
        return answer["sent"]

    def pass_time(self, interval: str) -> None:
        """Let time go by: what is in the rows moves into the past."""
        for statement in (
            "UPDATE coordination.wake_ups SET due_at = due_at - %(by)s::interval, sent_at = sent_at - %(by)s::interval",
            "UPDATE coordination.leases SET expires_at = expires_at - %(by)s::interval",
            "UPDATE evals.webhook_deliveries SET next_attempt_at = next_attempt_at - %(by)s::interval",
            "UPDATE evals.webhook_deliveries SET completed_at = completed_at - %(by)s::interval",
        ):
            self.database.look(statement, {"by": interval})

    def rows(self) -> list[dict[str, Any]]:
        return [
            dict(row)
            for row in self.database.look(
                "SELECT d.id, d.webhook_id, d.event, d.state, d.attempts, d.response_status, d.error, d.payload,"
                " j.state AS job, j.attempts AS job_attempts,"
                " round(extract(epoch FROM d.next_attempt_at - d.attempted_at))::int AS wait"
                " FROM evals.webhook_deliveries d LEFT JOIN scheduler.jobs j ON j.id = d.id"
                " ORDER BY d.created_at, d.id"
            )
        ]

    def row(self) -> dict[str, Any]:
        (row,) = self.rows()
        return row

    def leftovers(self) -> dict[str, Any]:
        return dict(
            self.database.look(
                "SELECT (SELECT count(*) FROM coordination.wake_ups) AS wake_ups,"
                " (SELECT count(*) FROM coordination.leases WHERE name LIKE 'webhook:%%') AS leases"
            )[0]
        )


@pytest.fixture
def delivery_function(
    environment: Environment, database: FreshDatabase, queues: RecordedQueues, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    monkeypatch.setattr(delivery.handler, "load_environment", lambda: environment)
    return Delivery(database, queues)


@pytest.fixture
def make_webhook(
    service: Api, make_project: Callable[..., str], receiver: WebhookReceiver, database: FreshDatabase
) -> Callable[..., dict[str, Any]]:
    """Return a function that makes a webhook in `demo` (or another project) and answers with it, secret included."""

    def make(webhook_id: str = "hook", *events: EventName, project: str = "demo") -> dict[str, Any]:
        if not database.look("SELECT 1 FROM coordination.projects WHERE id = %(id)s", {"id": project}):
            make_project(project)
        body = {"id": webhook_id, "url": receiver.url, "events": list(events) or ["run.finished"]}
        reply = service.post(f"/v1/projects/{project}/webhooks", body)
        assert reply.status == 201, reply.json
        return reply.json

    return make


@pytest.fixture
def emit(environment: Environment) -> Callable[..., None]:
    """Return a function that lets an event happen in a project."""

    def happen(event: EventName = "run.finished", project: str = "demo", **data: Any) -> None:
        with environment.database.transaction(project) as transaction:
            emit_event(transaction, event, data)

    return happen
