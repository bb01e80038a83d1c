import json
from typing import Any

import pytest
from evalward_local.environment import InvocationResult
from evalward_local.event_source_poller import failed_message_ids, make_record

BATCH = ["a", "b", "c"]


def answered(payload: Any, error: str | None = None) -> InvocationResult:
    return InvocationResult("id", json.dumps(payload).encode(), error)


@pytest.mark.parametrize("payload", [None, {}, "", {"batchItemFailures": []}, {"batchItemFailures": None}])
def test_an_answer_without_failures_deletes_the_batch(payload: Any) -> None:
    assert failed_message_ids(answered(payload), BATCH, reports_item_failures=True) == frozenset()


def test_named_messages_stay() -> None:
    payload = {"batchItemFailures": [{"itemIdentifier": "b"}]}
    assert failed_message_ids(answered(payload), BATCH, reports_item_failures=True) == {"b"}


@pytest.mark.parametrize(
    "payload",
    [
        [],
        "text",
        {"batchItemFailures": "b"},
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": "unknown"}]},
        {"batchItemFailures": ["b"]},
    ],
)
def test_a_malformed_answer_keeps_the_batch(payload: Any) -> None:
    assert failed_message_ids(answered(payload), BATCH, reports_item_failures=True) == set(BATCH)


def test_a_failed_function_keeps_the_batch() -> None:
    assert failed_message_ids(answered({}, "Unhandled"), BATCH, reports_item_failures=True) == set(BATCH)


def test_a_mapping_without_reports_does_not_read_the_answer() -> None:
    payload = {"batchItemFailures": [{"itemIdentifier": "b"}]}
    assert failed_message_ids(answered(payload), BATCH, reports_item_failures=False) == frozenset()


def test_a_record_has_the_fields_of_an_sqs_event() -> None:
    message = {
        "MessageId": "m",
        "ReceiptHandle": "r",
        "Body": "{}",
        "MD5OfBody": "5",
        "Attributes": {"ApproximateReceiveCount": "1"},
        "MessageAttributes": {"kind": {"StringValue": "run", "DataType": "String"}},
    }
    record = make_record(message, "arn:aws:sqs:us-east-1:123456789012:q")
    assert record["eventSourceARN"] == "arn:aws:sqs:us-east-1:123456789012:q"
    assert record["attributes"] == {"ApproximateReceiveCount": "1"}
    assert record["messageAttributes"]["kind"]["stringValue"] == "run"
    assert record["messageAttributes"]["kind"]["dataType"] == "String"
