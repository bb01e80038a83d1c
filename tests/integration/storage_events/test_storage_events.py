# ruff: noqa: PT012 - a transaction is the block that raises
from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import api.datasets.delete_dataset
import boto3
import delivery.publish_storage_event
import orjson
import pytest
from coordination.access import Principal
from coordination.datasets import Dataset, publish_dataset
from coordination.environment import Environment
from coordination.ports.event_bus import EventBus, EventNotTakenError
from moto import mock_aws

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import RecordedQueues
    from integration.storage_events.conftest import RecordedBus

type Publish = Callable[..., tuple[Dataset, bool]]
type Work = Callable[[], list[dict[str, Any]]]
OUTBOX = (
    "SELECT e.event, o.attempts, o.published_at IS NOT NULL AS is_published FROM packs.pack_storage_events e"
    " JOIN packs.pack_storage_outbox o USING (tenant_id, id) ORDER BY e.created_at"
)


class DiedError(BaseException):
    """The environment was killed."""


def pass_time(database: FreshDatabase, interval: str) -> None:
    for statement in (
        "UPDATE coordination.wake_ups SET due_at = due_at - %(by)s::interval, sent_at = sent_at - %(by)s::interval",
        "UPDATE coordination.leases SET expires_at = expires_at - %(by)s::interval",
    ):
        database.look(statement, {"by": interval})


def leftovers(database: FreshDatabase) -> list[int]:
    return [
        database.look_up("SELECT count(*) FROM coordination.wake_ups"),
        database.look_up("SELECT count(*) FROM coordination.leases"),
    ]


def test_publication_is_put_on_the_bus_once_and_acknowledged_in_the_row(
    publish: Publish, work: Work, bus: RecordedBus, database: FreshDatabase
) -> None:
    dataset, _ = publish()
    assert database.look(OUTBOX) == [{"event": "dataset.published", "attempts": 0, "is_published": False}]
    assert bus.taken == []

    (message,) = work()

    ((detail_type, detail),) = bus.taken
    assert detail_type == "dataset.published"
    assert detail == {
        "id": message["ref_id"],
        "project": "demo",
        "name": "questions",
        "version": 1,
        "sha256": "a" * 64,
        "path": dataset.path,
        "records": 3,
        "bytes": 300,
        "source": "upload",
        "at": detail["at"],
        "by": "key:0123456789abcdef",
    }
    assert database.look(OUTBOX) == [{"event": "dataset.published", "attempts": 1, "is_published": True}]
    assert leftovers(database) == [0, 0]


def test_same_content_again_is_no_event_and_a_new_version_is_one(
    publish: Publish, work: Work, bus: RecordedBus
) -> None:
    assert [publish()[1], publish()[1], publish(sha256="b" * 64)[1], publish(name="other")[1]] == [
        True,
        False,
        True,
        True,
    ]
    work()
    seen = sorted((detail["name"], detail["version"], detail["sha256"][0]) for _, detail in bus.taken)
    assert seen == [("other", 1, "a"), ("questions", 1, "a"), ("questions", 2, "b")]
    assert len({detail["id"] for _, detail in bus.taken}) == 3


def test_publication_that_is_rolled_back_is_no_event(
    environment: Environment, make_project: Callable[..., str], database: FreshDatabase, queues: RecordedQueues
) -> None:
    make_project()
    with pytest.raises(DiedError), environment.database.transaction("demo") as transaction:
        publish_dataset(
            transaction, name="a", sha256="a" * 64, records=1, size=1, source="upload", principal="x", generation=0
        )
        raise DiedError
    assert database.look(OUTBOX) == []
    assert queues.sent == []


def test_removal_is_an_event_with_the_versions_that_went(
    environment: Environment, publish: Publish, work: Work, bus: RecordedBus
) -> None:
    publish()
    publish(name="other")
    work()
    bus.taken.clear()
    with environment.database.transaction("demo") as transaction:
        api.datasets.delete_dataset.delete_dataset(transaction, "a" * 64, Principal("key:1", "key", []))
    work()
    ((detail_type, detail),) = bus.taken
    assert detail_type == "dataset.removed"
    assert (detail["sha256"], detail["object"], detail["by"]) == ("a" * 64, "removed", "key:1")
    assert sorted(version["name"] for version in detail["versions"]) == ["other", "questions"]


def test_sender_killed_between_put_and_acknowledgement_puts_the_same_event_again(
    publish: Publish, work: Work, pulse: Callable[[], int], bus: RecordedBus, database: FreshDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    publish()
    put = bus.put

    def put_and_die(*arguments: Any) -> None:
        put(*arguments)
        raise DiedError

    def keep(*_arguments: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(bus, "put", put_and_die)
        patch.setattr(delivery.publish_storage_event, "drop_lease", keep)
        with pytest.raises(DiedError):
            work()
    assert database.look(OUTBOX) == [{"event": "dataset.published", "attempts": 1, "is_published": False}]

    pass_time(database, "61 seconds")
    assert pulse() == 1
    work()

    first, second = bus.taken
    assert first == second
    assert database.look(OUTBOX) == [{"event": "dataset.published", "attempts": 2, "is_published": True}]
    assert leftovers(database) == [0, 0]


def test_event_waits_for_as_long_as_the_bus_takes_nothing(
    publish: Publish, work: Work, pulse: Callable[[], int], bus: RecordedBus, database: FreshDatabase
) -> None:
    publish()
    bus.is_down = True
    work()
    for seconds in (5, 30, 180, 900, 3600, 3600, 3600):
        pass_time(database, f"{seconds - 2} seconds")
        assert pulse() == 0
        pass_time(database, "2 seconds")
        assert pulse() == 1
        bus.is_down = seconds != 3600 or database.look(OUTBOX)[0]["attempts"] < 7
        work()
    assert database.look(OUTBOX) == [{"event": "dataset.published", "attempts": 8, "is_published": True}]
    assert len(bus.taken) == 1


def test_message_that_comes_twice_or_for_nothing_changes_nothing(
    publish: Publish, work: Work, bus: RecordedBus, queues: RecordedQueues
) -> None:
    publish()
    (message,) = work()
    nothing = message | {"ref_id": "00000000-0000-0000-0000-000000000000"}
    for body in (message, nothing):
        queues.send("https://sqs/delivery", [orjson.dumps(body).decode()])
    work()
    assert len(bus.taken) == 1


class TestBus:
    """The port itself, on the default bus of an account."""

    @pytest.fixture
    def arrivals(self) -> Any:
        with mock_aws():
            sqs, events = boto3.client("sqs"), boto3.client("events")
            url = sqs.create_queue(QueueName="arrivals")["QueueUrl"]
            arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            events.put_rule(Name="all", EventPattern='{"source": ["evalward"]}')
            events.put_targets(Rule="all", Targets=[{"Id": "1", "Arn": arn}])
            yield lambda: [
                orjson.loads(message.get("Body", ""))
                for message in sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
            ]

    def test_event_arrives_at_a_rule(self, arrivals: Callable[[], list[Any]]) -> None:
        EventBus().put("dataset.published", {"id": "1", "name": "ä"}, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
        (event,) = arrivals()
        assert (event["source"], event["detail-type"]) == ("evalward", "dataset.published")
        assert event["detail"] == {"id": "1", "name": "ä"}

    def test_event_that_the_bus_answers_200_for_and_refuses_is_an_error(
        self, arrivals: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bus = EventBus()
        answer = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure", "ErrorMessage": "no"}]}

        def refuse(**_arguments: object) -> Any:
            return answer

        monkeypatch.setattr(bus._client, "put_events", refuse)
        with pytest.raises(EventNotTakenError, match="InternalFailure"):
            bus.put("dataset.published", {"id": "1"}, datetime.now(UTC))
