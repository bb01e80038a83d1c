"""The delivery function with a bus that can be looked into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import delivery.handler
import orjson
import pytest
from coordination.datasets import Dataset, publish_dataset
from coordination.environment import Environment
from coordination.ports.event_bus import EventBus, EventNotTakenError

if TYPE_CHECKING:
    from integration.conftest import RecordedQueues


class Context:
    """Lambda's context object."""

    aws_request_id = "00000000-0000-0000-0000-000000000001"
    function_name = "delivery"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:delivery"

    def get_remaining_time_in_millis(self) -> int:
        return 50_000


@dataclass
class RecordedBus(EventBus):
    """A bus that keeps what was put on it.

    Attributes
    ----------
    taken
        (detail type, detail) in their order.
    is_down
        Whether it takes nothing.
    """

    taken: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    is_down: bool = False

    def put(self, detail_type: str, detail: Mapping[str, Any], at: datetime) -> None:
        if self.is_down:
            raise EventNotTakenError("ThrottlingException")
        assert at.tzinfo is not None
        self.taken.append((detail_type, dict(detail)))


@pytest.fixture
def bus() -> RecordedBus:
    return RecordedBus()


@pytest.fixture
def environment(make_environments: Callable[..., Environment], bus: RecordedBus) -> Environment:
    return replace(make_environments(), event_bus=bus)


@pytest.fixture
def work(
    environment: Environment, queues: RecordedQueues, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that brings the queue's messages to the delivery function and answers with them."""
    monkeypatch.setattr(delivery.handler, "load_environment", lambda: environment)

    def bring() -> list[dict[str, Any]]:
        messages = [message for url, message in queues.sent if url.endswith("/delivery")]
        queues.sent.clear()
        for message in messages:
            event = {"Records": [{"messageId": "1", "body": orjson.dumps(message).decode()}]}
            answer = delivery.handler.lambda_handler(event, Context())  # pyright: ignore[reportArgumentType]
            assert answer == {"batchItemFailures": []}
        return messages

    return bring


@pytest.fixture
def pulse(environment: Environment, work: object) -> Callable[[], int]:
    """Return a function that is the minute's pulse and answers with how many messages it sent."""

    def beat() -> int:
        return delivery.handler.lambda_handler({}, Context())["sent"]  # pyright: ignore[reportArgumentType]

    return beat


@pytest.fixture
def publish(environment: Environment, make_project: Callable[..., str]) -> Callable[..., tuple[Dataset, bool]]:
    """Return a function that publishes a content of `demo` under a name."""
    make_project()

    def publish_content(name: str = "questions", sha256: str = "a" * 64) -> tuple[Dataset, bool]:
        with environment.database.transaction("demo") as transaction:
            return publish_dataset(
                transaction,
                name=name,
                sha256=sha256,
                records=3,
                size=300,
                source="upload",
                principal="key:0123456789abcdef",
                generation=0,
            )

    return publish_content
