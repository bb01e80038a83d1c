import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus

import httpx
import pytest
from evalward_local.stack_file import StackFile

QUEUE = "evalward-MessageQueue"


@pytest.fixture(scope="module")
def sqs(make_client: Callable[[str], Any]) -> Any:
    return make_client("sqs")


@pytest.fixture(scope="module")
def s3(make_client: Callable[[str], Any]) -> Any:
    return make_client("s3")


@pytest.fixture
def seen(stack: StackFile, http: httpx.Client) -> Callable[[str], list[dict[str, Any]]]:
    def records(text: str) -> list[dict[str, Any]]:
        log = http.get(f"{stack.control_url}/logs/ConsumerFunction").text
        found = [json.loads(line) for line in re.findall(r"^MESSAGE (.*)$", log, re.MULTILINE)]
        return [record for record in found if text in record["body"]]

    return records


def drain(stack: StackFile, http: httpx.Client) -> httpx.Response:
    return http.post(f"{stack.control_url}/drain?timeout_seconds=30")


def test_a_message_reaches_the_function_and_is_deleted(
    stack: StackFile, http: httpx.Client, sqs: Any, seen: Callable[[str], list[dict[str, Any]]]
) -> None:
    url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    attributes = {"kind": {"StringValue": "test", "DataType": "String"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="accept one", MessageAttributes=attributes)
    assert drain(stack, http).json() == {"still_running": []}
    (record,) = seen("accept one")
    assert record["messageId"] == sent["MessageId"]
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["messageAttributes"]["kind"]["stringValue"] == "test"
    assert record["eventSourceARN"].endswith(QUEUE)


def test_a_refused_message_comes_again_alone_and_ends_in_the_dead_letter_queue(
    stack: StackFile,
    http: httpx.Client,
    sqs: Any,
    seen: Callable[[str], list[dict[str, Any]]],
    eventually: Callable[..., Any],
) -> None:
    url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(["pair fine", "pair refuse"])]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    dead_url = sqs.get_queue_url(QueueName="evalward-MessageDeadLetterQueue")["QueueUrl"]

    def find_dead() -> list[str]:
        dead = sqs.receive_message(QueueUrl=dead_url, MaxNumberOfMessages=10, VisibilityTimeout=0).get("Messages") or []
        return [message["Body"] for message in dead if message["Body"].startswith("pair ")]

    assert eventually(find_dead) == ["pair refuse"]
    assert drain(stack, http).status_code == 200
    assert len(seen("pair fine")) == 1
    assert [record["attributes"]["ApproximateReceiveCount"] for record in seen("pair refuse")] == ["1", "2"]


def test_an_object_under_the_prefix_is_a_message_with_its_key_url_encoded(
    stack: StackFile, http: httpx.Client, s3: Any, seen: Callable[[str], list[dict[str, Any]]]
) -> None:
    bucket = next(item["Name"] for item in s3.list_buckets()["Buckets"])
    s3.put_object(Bucket=bucket, Key="drop/a b+ü.jsonl", Body=b"{}")
    s3.put_object(Bucket=bucket, Key="elsewhere/unseen.jsonl", Body=b"{}")
    assert drain(stack, http).status_code == 200
    (record,) = seen("jsonl")
    (event,) = json.loads(record["body"])["Records"]
    assert event["eventName"] == "ObjectCreated:Put"
    assert event["s3"]["bucket"]["name"] == bucket
    assert event["s3"]["object"]["key"] == "drop/a+b%2B%C3%BC.jsonl"
    assert unquote_plus(event["s3"]["object"]["key"]) == "drop/a b+ü.jsonl"
    assert event["s3"]["object"]["sequencer"]


def test_many_messages_are_all_handled(
    stack: StackFile, http: httpx.Client, sqs: Any, seen: Callable[[str], list[dict[str, Any]]]
) -> None:
    url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    for start in range(0, 40, 10):
        entries = [{"Id": str(n), "MessageBody": f"many {n:02}"} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert drain(stack, http).status_code == 200
    assert sorted({record["body"] for record in seen("many ")}) == [f"many {n:02}" for n in range(40)]


def test_drain_names_what_still_waits(stack: StackFile, http: httpx.Client, sqs: Any) -> None:
    url = sqs.get_queue_url(QueueName=QUEUE)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="refuse for drain")
    response = http.post(f"{stack.control_url}/drain?timeout_seconds=0.2")
    assert response.status_code == 504
    assert response.json()["still_running"]
    assert drain(stack, http).status_code == 200


def test_a_schedule_is_fired_by_each_of_its_names(stack: StackFile, http: httpx.Client) -> None:
    for name in ("Tick", "ProbeFunctionTick", "Nightly", "ProbeFunctionNightly"):
        answer = http.post(f"{stack.control_url}/schedules/{name}/fire").json()
        assert answer["function_error"] is None
        assert answer["payload"]["scheduled"].endswith("Z")
    log = http.get(f"{stack.control_url}/logs/ProbeFunction").text
    assert '"source": "aws.scheduler"' in log
    assert '"source": "aws.events"' in log
