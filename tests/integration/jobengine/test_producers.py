"""Rows that the bundle's functions write for the keeper: workers and triggers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.imports import ImportOrder, insert_import
from coordination.jobengine.workers import worker_id
from coordination.queue_handler import Message, handle_queue_event

if TYPE_CHECKING:
    from conftest import FreshDatabase

WORKERS = "SELECT id, function, state, active_count FROM scheduler.workers"


class FunctionContext:
    """Lambda's context of a queue function."""

    function_name = "evalward-delivery"

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return 29_000


CONTEXT = cast("LambdaContext", FunctionContext())


def pass_over(_message: Message, _deadline: Deadline) -> None:
    """Have nothing to do."""


def event(*bodies: dict[str, Any]) -> dict[str, Any]:
    return {
        "Records": [
            {"messageId": str(number), "body": orjson.dumps(body).decode(), "eventSource": "aws:sqs", "attributes": {}}
            for number, body in enumerate(bodies)
        ]
    }


def test_worker_is_busy_during_an_invocation_and_idle_after_it(
    environment: Environment, database: FreshDatabase
) -> None:
    seen: list[Any] = []

    def look(_message: Message, _deadline: Deadline) -> None:
        seen.append(database.look(WORKERS))

    response = handle_queue_event(environment, event({"a": 1}), CONTEXT, look)
    worker = {"id": worker_id(), "function": "evalward-delivery", "state": "active"}
    assert response == {"batchItemFailures": []}
    assert seen == [[worker | {"active_count": 1}]]
    assert database.look(WORKERS) == [worker | {"active_count": 0}]


def test_worker_is_idle_after_an_invocation_that_failed(environment: Environment, database: FreshDatabase) -> None:
    def fail(*_: object) -> None:
        raise ValueError("broken")

    response = handle_queue_event(environment, event({"a": 1}), CONTEXT, fail)
    assert response == {"batchItemFailures": [{"itemIdentifier": "0"}]}
    assert [row["active_count"] for row in database.look(WORKERS)] == [0]


@pytest.mark.parametrize(
    "change",
    ["UPDATE scheduler.workers SET state = 'stopped', stopped_at = now()", "DELETE FROM scheduler.workers"],
)
def test_worker_that_was_stopped_or_swept_is_active_again_with_its_next_invocation(
    environment: Environment, database: FreshDatabase, change: str
) -> None:
    handle_queue_event(environment, event({"a": 1}), CONTEXT, pass_over)
    database.look(change)
    handle_queue_event(environment, event({"a": 1}), CONTEXT, pass_over)
    assert database.look("SELECT state, stopped_at FROM scheduler.workers") == [{"state": "active", "stopped_at": None}]


def test_heartbeat_that_cannot_be_noted_does_not_fail_the_work(make_environments: Callable[..., Environment]) -> None:
    nowhere = make_environments("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    done: list[int] = []

    def do(_message: Message, _deadline: Deadline) -> None:
        done.append(1)

    assert handle_queue_event(nowhere, event({"a": 1}), CONTEXT, do) == {"batchItemFailures": []}
    assert done == [1]


@pytest.fixture
def import_file(environment: Environment, make_project: Callable[..., str]) -> Callable[..., str | None]:
    """Return a function that writes the job of an import."""
    make_project("demo")

    def write(key: str, kind: Any, name: str) -> str | None:
        with environment.database.transaction("demo") as transaction:
            made = insert_import(
                transaction,
                order=ImportOrder(bucket="b", key="datasets/incoming/demo/x.jsonl", name="x", format="jsonl"),
                dedupe_key=key,
                principal="test",
                cause=(kind, name),
            )
        return str(made.id) if made else None

    return write


def test_cause_is_one_row_that_refers_to_its_latest_job(
    import_file: Callable[..., str | None], database: FreshDatabase
) -> None:
    import_file("1", "route", "datasets.import")
    latest = import_file("2", "route", "datasets.import")
    dropped = import_file("3", "incoming_prefix", "datasets/incoming/demo/")
    assert import_file("3", "incoming_prefix", "datasets/incoming/demo/") is None
    triggers = database.look(
        "SELECT kind, name, last_job_id::text, job_count FROM scheduler.triggers ORDER BY kind DESC"
    )
    assert triggers == [
        {"kind": "route", "name": "datasets.import", "last_job_id": latest, "job_count": 2},
        {"kind": "incoming_prefix", "name": "datasets/incoming/demo/", "last_job_id": dropped, "job_count": 1},
    ]
