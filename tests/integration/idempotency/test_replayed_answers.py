"""What is stored of an answer, and how it comes back."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.http import border
from coordination.http.border import make_handler
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.models import RequestModel

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.idempotency.conftest import Caller, FakeRemote

BODY = {"name": "a"}
RANDOM = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(32768))


@pytest.fixture
def operation_that_answers(local_operation: Operation) -> Callable[[Answer], Operation]:
    def make(answer: Answer) -> Operation:
        def handle(_call: Call, transaction: Transaction) -> Answer:
            transaction.submit("INSERT INTO coordination.projects (id, created_by) VALUES ('made', 'test')")
            return answer

        return Operation(
            id="test.answer",
            method="POST",
            path="/v1/projects/{project}/answers",
            summary="Answer.",
            permission="evaluate",
            idempotency=LocalWrite(),
            handle=handle,
        )

    return make


@pytest.fixture
def invoke(
    environment: Environment, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch, project: str
) -> Callable[..., dict[str, Any]]:
    """Return a function that invokes a handler of one operation and returns Lambda's response."""
    monkeypatch.setattr(border, "load_environment", lambda: environment)

    class Context:
        aws_request_id = "1"
        function_name = "test"
        memory_limit_in_mb = 512
        invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:test"

        def get_remaining_time_in_millis(self) -> int:
            return 29_000

    def run(operation: Operation, idempotency_key: str | None, request_id: str) -> dict[str, Any]:
        path = operation.path.replace("{project}", project)
        headers = {"authorization": f"Bearer {database.admin_key}", "content-type": "application/json"}
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": "",
            "headers": headers,
            "requestContext": {"requestId": request_id, "stage": "$default", "http": {"method": "POST", "path": path}},
            "isBase64Encoded": False,
        }
        return make_handler([operation])(event, Context())  # pyright: ignore[reportArgumentType]

    return run


@pytest.mark.parametrize(
    "answer",
    [
        Answer(201, b'{"odd":  1.0}\n'),
        Answer(204),
        Answer(200, "w\u00f6rds", content_type="text/plain; charset=utf-8"),
        Answer(202, b'{"a":1}\n{"b":2}\n', content_type="application/x-ndjson"),
        Answer(200, RANDOM, content_type="application/octet-stream"),
    ],
    ids=lambda answer: f"{answer.status} {answer.content_type}",
)
def test_status_body_and_type_come_back_byte_for_byte(
    operation_that_answers: Callable[[Answer], Operation], invoke: Callable[..., dict[str, Any]], answer: Answer
) -> None:
    operation = operation_that_answers(answer)
    first, again = invoke(operation, "k", "1"), invoke(operation, "k", "2")
    assert (first["statusCode"], again["statusCode"]) == (answer.status, answer.status)
    assert again["body"] == first["body"]
    assert again["isBase64Encoded"] == first["isBase64Encoded"] == (answer.content_type == "application/octet-stream")
    if again["isBase64Encoded"]:
        assert hashlib.sha256(base64.b64decode(again["body"])).digest() == hashlib.sha256(RANDOM).digest()
    own = {"x-request-id", "idempotency-replayed", "idempotency-capacity-remaining"}
    kept = [{k.lower(): v for k, v in one["headers"].items() if k.lower() not in own} for one in (first, again)]
    assert kept[1] == kept[0]
    assert (first["headers"]["x-request-id"], again["headers"]["x-request-id"]) == ("1", "2")


def test_renamed_handler_models_and_texts_keep_keys_valid(
    caller: Caller, remote: FakeRemote, remote_operation: Operation
) -> None:
    first = caller.send(remote_operation, BODY, "k")

    class AnOrderThatWasRenamed(RequestModel):
        name: str
        note: str | None = None
        amount: float = 0.0
        size: int = 0

    def handle_under_another_name(_call: Call, _transaction: Transaction) -> Answer:
        raise AssertionError("a replay runs nothing")

    renamed = replace(
        remote_operation, handle=handle_under_another_name, summary="Other words.", body=AnOrderThatWasRenamed
    )
    again = caller.send(renamed, BODY, "k")
    assert (again.content, again.is_replayed) == (first.content, True)
    assert caller.send(replace(renamed, id="test.another"), BODY, "k").code == "idempotency_key_reused"
    assert remote.effects == {"a": 1}


def test_cookie_and_other_headers_are_not_replayed(
    caller: Caller, remote_operation: Operation, database: FreshDatabase
) -> None:
    first, again = (caller.send(remote_operation, BODY, "k") for _ in range(2))
    assert (first.headers["set-cookie"], first.headers["x-other"]) == ("session=1", "1")
    assert {"set-cookie", "x-other"}.isdisjoint(again.headers)
    assert (again.headers["location"], again.headers["etag"]) == ("/effects/a", '"1"')
    stored = database.look_up("SELECT headers FROM coordination.idempotency_records")
    assert sorted(stored) == ["content-type", "etag", "location"]


@pytest.mark.parametrize("content", ["x" * 6_400_000, '"' * 3_300_000], ids=["long", "long when escaped"])
def test_answer_that_lambda_cannot_carry_is_a_small_one_from_the_first_call_on(
    operation_that_answers: Callable[[Answer], Operation],
    invoke: Callable[..., dict[str, Any]],
    database: FreshDatabase,
    content: str,
) -> None:
    operation = operation_that_answers(Answer(200, content, content_type="text/plain"))
    for request_id in ("1", "2"):
        answer = invoke(operation, "k", request_id)
        assert answer["statusCode"] == 409
        assert '"code":"idempotency_outcome_not_stored"' in answer["body"]
    assert database.look_up("SELECT count(*) FROM coordination.projects WHERE id = 'made'") == 1
    assert database.look("SELECT state, body FROM coordination.idempotency_records") == [
        {"state": "tombstone", "body": None}
    ]


def test_answer_that_lambda_cannot_carry_says_that_an_unkeyed_write_took_effect(
    operation_that_answers: Callable[[Answer], Operation],
    invoke: Callable[..., dict[str, Any]],
    database: FreshDatabase,
) -> None:
    operation = operation_that_answers(Answer(200, "x" * 6_400_000, content_type="text/plain"))
    answer = invoke(operation, None, "1")
    assert (answer["statusCode"], '"code":"answer_too_large"' in answer["body"]) == (500, True)
    assert "has taken effect" in answer["body"]
    assert database.look_up("SELECT count(*) FROM coordination.projects WHERE id = 'made'") == 1


def test_answer_between_the_limits_is_sent_once_and_not_kept(
    operation_that_answers: Callable[[Answer], Operation], invoke: Callable[..., dict[str, Any]]
) -> None:
    operation = operation_that_answers(Answer(200, '"' * 2_500_000, content_type="text/plain"))
    first = invoke(operation, "k", "1")
    assert (first["statusCode"], len(first["body"])) == (200, 2_500_000)
    assert invoke(operation, "k", "2")["statusCode"] == 409


def test_every_keyed_answer_tells_what_is_left_of_the_scope(
    caller: Caller, remote: FakeRemote, remote_operation: Operation
) -> None:
    left: list[str] = []
    for key, body in (("k1", BODY), ("k1", BODY), ("k1", {"name": "b"}), ("k2", BODY), ("k3", {"unknown": 1})):
        left.append(caller.send(remote_operation, body, key).headers["idempotency-capacity-remaining"])
    assert left == ["1023", "1023", "1023", "1022", "1022"]
    assert "idempotency-capacity-remaining" not in caller.send(remote_operation, BODY).headers
