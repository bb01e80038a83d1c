"""Webhooks and storage events over HTTP, with the function that sends them killed at it."""

import itertools
import json
from collections.abc import Generator
from io import BytesIO
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet as pq
import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient
from evalward_local.webhook_receiver import ReceivedCall, WebhookReceiver
from standardwebhooks import Webhook

FUNCTION = "DeliveryFunction"
_numbers = itertools.count(1)
ROWS = [{"id": f"r{number}", "input": "secret question", "output": "yes", "reference": "yes"} for number in range(5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="module")
def client(folder: Path, receiver: WebhookReceiver) -> Generator[StackClient]:
    hosts = {"OutgoingAllowedHosts": json.dumps({"*": [receiver.host]})}
    with running_stack(folder, environments=4, parameters=hosts) as stack, StackClient(stack) as client:
        yield client


@pytest.fixture
def project(client: StackClient, receiver: WebhookReceiver) -> str:
    name = f"hooked-{next(_numbers)}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    receiver.received.clear()
    return name


def make_webhook(client: StackClient, project: str, receiver: WebhookReceiver, *events: str) -> str:
    """Make a webhook and return its secret."""
    body = {"id": "ci", "url": receiver.url, "events": list(events)}
    answer = client.expect(201, "POST", f"/v1/projects/{project}/webhooks", json=body, idempotency_key="hook")
    return str(answer["secret"])


def start_run(client: StackClient, project: str, minimum: float) -> str:
    order = {
        "name": "hooked",
        "dataset": {"name": "answers"},
        "evaluators": [{"name": "exact_match"}],
        "gates": [{"metric": "exact_match", "stat": "mean", "min": minimum}],
    }
    return str(client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)["id"])


def list_deliveries(client: StackClient, project: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.expect(200, "GET", f"/v1/projects/{project}/webhooks/ci/deliveries")["items"]
    return found


def read(secret: str, calls: list[ReceivedCall]) -> dict[str, dict[str, Any]]:
    """Verify the calls and return what they say by the name of the event."""
    payloads = [Webhook(secret).verify(call.body, call.headers) for call in calls]
    return {payload["type"]: payload["data"] for payload in payloads}


def test_what_happens_in_a_project_reaches_its_webhook_signed(
    client: StackClient, project: str, receiver: WebhookReceiver
) -> None:
    names = ("run.finished", "run.gate_failed", "dataset.published", "dataset.import_failed")
    secret = make_webhook(client, project, receiver, *names)
    dataset = client.upload(project, "answers", ROWS)
    client.drop(project, "broken.jsonl", b'{"input": "secret question"')
    broken = client.wait_for_import(project, "broken.jsonl")
    # Everybody answers yes, but the gate asks for something that cannot be.
    run_id = start_run(client, project, 1.0)
    assert client.wait_for_run(project, run_id)["state"] == "succeeded"
    calls = receiver.wait_for(3)
    client.drain()

    said = read(secret, calls)
    assert set(said) == {"run.finished", "dataset.published", "dataset.import_failed"}
    finished = said["run.finished"]
    assert (finished["run"], finished["state"], finished["gates"][0]["passed"]) == (run_id, "succeeded", True)
    report = client.expect(200, "GET", finished["links"]["report"])
    assert report["passed"] is True
    assert said["dataset.published"]["sha256"] == dataset["sha256"]
    assert client.expect(200, "GET", said["dataset.published"]["links"]["dataset"]) == dataset
    assert said["dataset.import_failed"]["import"] == broken["id"]
    assert said["dataset.import_failed"]["error"] == "dataset_invalid"
    assert b"secret question" not in b"".join(call.body for call in calls)
    assert {one["state"] for one in list_deliveries(client, project)} == {"delivered"}


def test_failed_gate_is_an_event_of_its_own(client: StackClient, project: str, receiver: WebhookReceiver) -> None:
    secret = make_webhook(client, project, receiver, "run.gate_failed")
    client.upload(project, "answers", [{**ROWS[0], "output": "no"}, *ROWS[1:]])
    run_id = start_run(client, project, 1.0)
    assert client.wait_for_run(project, run_id)["state"] == "failed"
    said = read(secret, receiver.wait_for(1))
    assert (said["run.gate_failed"]["run"], said["run.gate_failed"]["state"]) == (run_id, "failed")
    client.drain()

    client.expect(204, "DELETE", f"/v1/projects/{project}/runs/{run_id}")
    assert list_deliveries(client, project) == []


def test_sender_killed_between_sending_and_acknowledgement_sends_again_under_the_same_id(
    client: StackClient, project: str, receiver: WebhookReceiver
) -> None:
    secret = make_webhook(client, project, receiver, "dataset.published")
    client.drain()
    receiver.answer(receiver.hold)
    client.upload(project, "answers", ROWS)
    receiver.wait_for(1)

    assert client.kill_and_expire(FUNCTION) >= 1
    (row,) = list_deliveries(client, project)
    assert (row["state"], row["attempts"]) == ("queued", 1)
    client.recover()

    first, second = receiver.wait_for(2)[:2]
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == row["id"]
    assert first.body == second.body
    read(secret, [first, second])

    def is_acknowledged() -> dict[str, Any] | None:
        (seen,) = list_deliveries(client, project)
        return seen if seen["state"] == "delivered" else None

    assert client.wait(is_acknowledged, "the acknowledgement")["attempts"] == 2
    client.forget_messages("DeliveryQueue")


def test_ping_and_redelivery(client: StackClient, project: str, receiver: WebhookReceiver) -> None:
    secret = make_webhook(client, project, receiver, "run.finished")
    receiver.answer(500)
    path = f"/v1/projects/{project}/webhooks/ci/test"
    answers = [client.request("POST", path, idempotency_key="ping") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    ping = answers[0].json()
    assert answers[1].json() == ping
    assert (ping["state"], ping["response_status"]) == ("failed", 500)

    client.expect(202, "POST", f"/v1/projects/{project}/deliveries/{ping['id']}/redeliver", idempotency_key="again")
    calls = receiver.wait_for(2)

    assert [call.headers["webhook-id"] for call in calls] == [ping["id"]] * 2
    assert read(secret, calls) == {"ping": {"project": project, "webhook": "ci"}}


def test_secret_is_in_no_dump_and_no_log_and_no_replay(
    client: StackClient, project: str, receiver: WebhookReceiver, folder: Path
) -> None:
    secret = make_webhook(client, project, receiver, "dataset.published")
    body = {"id": "ci", "url": receiver.url, "events": ["dataset.published"]}
    again = client.request("POST", f"/v1/projects/{project}/webhooks", json=body, idempotency_key="hook")
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json()["id"] == "ci"
    assert "secret" not in again.json()
    client.upload(project, "answers", ROWS)
    receiver.wait_for(1)
    client.drain()

    tables = client.look(
        "SELECT schemaname || '.' || tablename AS name FROM pg_tables"
        " WHERE schemaname IN ('coordination', 'scheduler', 'packs', 'evals')"
    )
    texts = [json.dumps(client.look(f"SELECT * FROM {table['name']}"), default=repr) for table in tables]
    logs = [path.read_text(errors="replace") for path in folder.rglob("*.log")]
    assert any(project in text for text in texts)
    assert any("webhook called" in log for log in logs)
    needles = [secret.removeprefix("whsec_"), read_master_secret(client)]
    assert not [needle for needle in needles for text in texts + logs if needle in text]


def make_aws_client(client: StackClient, service: str) -> Any:
    return boto3.client(
        service,  # pyright: ignore[reportArgumentType, reportCallIssue]
        endpoint_url=client.stack.aws_endpoint_url,
        region_name=client.stack.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def read_master_secret(client: StackClient) -> str:
    secrets = make_aws_client(client, "secretsmanager")
    (name,) = [one["Name"] for one in secrets.list_secrets()["SecretList"] if "WebhookSecret" in one["Name"]]
    return str(json.loads(secrets.get_secret_value(SecretId=name)["SecretString"])["key"])


@pytest.mark.long
def test_run_is_exported_to_its_sinks_though_the_exporter_is_killed(client: StackClient, project: str) -> None:
    client.upload(project, "answers", [{**row, "metadata": {"language": "de"}} for row in ROWS])
    prefix = f"exports/{project}/nightly/"
    order = {
        "name": "exported",
        "dataset": {"name": "answers"},
        "evaluators": [{"name": "exact_match"}, {"name": "length"}],
        "slices": ["language"],
        "sinks": [
            {"kind": "s3", "prefix": prefix},
            {"kind": "eventbridge"},
            {"kind": "s3", "prefix": prefix, "format": "parquet"},
        ],
    }
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)
    assert client.wait_for_run(project, run["id"])["state"] == "succeeded"
    client.kill_and_expire(FUNCTION)
    client.recover()

    def is_exported() -> list[dict[str, Any]] | None:
        sinks = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run['id']}")["sinks"]
        return sinks if all(sink["completed_at"] for sink in sinks) else None

    sinks = client.wait(is_exported, "the exports")
    assert [(sink["kind"], sink["format"], sink["state"], sink["error"]) for sink in sinks] == [
        ("s3", "jsonl", "succeeded", None),
        ("eventbridge", None, "succeeded", None),
        ("s3", "parquet", "succeeded", None),
    ]
    path = f"/v1/projects/{project}/runs/{run['id']}"
    results = client.expect(200, "GET", f"{path}/results?limit=200")["items"]
    assert [json.loads(line) for line in read_export(client, project, run["id"], "jsonl").splitlines()] == results
    assert pq.read_table(BytesIO(read_export(client, project, run["id"], "parquet"))).to_pylist() == results
    report = client.expect(200, "GET", f"{path}/report")
    stored = client.s3.get_object(Bucket=client.stack.bucket, Key=f"{prefix}{run['id']}/report.json")["Body"].read()
    assert json.loads(stored) == report
    assert [(part["value"], part["records"]) for part in report["slices"]] == [("de", len(ROWS))]
    client.forget_messages("DeliveryQueue")


def read_export(client: StackClient, project: str, run_id: str, ending: str) -> bytes:
    key = f"exports/{project}/nightly/{run_id}/results.{ending}"
    content = client.s3.get_object(Bucket=client.stack.bucket, Key=key)["Body"].read()
    assert isinstance(content, bytes)
    return content


def test_sink_that_fails_is_listed_with_its_reason_until_somebody_resolves_it(
    client: StackClient, project: str
) -> None:
    client.upload(project, "answers", ROWS)
    order = {
        "name": "elsewhere",
        "dataset": {"name": "answers"},
        "evaluators": [{"name": "exact_match"}],
        # Its name leads nowhere, which is known before anything is written.
        "sinks": [{"kind": "mlflow", "endpoint": "https://nowhere.invalid", "experiment": "nightly"}],
    }
    path = f"/v1/projects/{project}"
    refused = client.expect(400, "POST", f"{path}/runs", json=order)
    assert [error["pointer"] for error in refused["errors"]] == ["/sinks/0/endpoint"]
    prefix = f"exports/{project}/taken"
    order["sinks"] = [{"kind": "s3", "prefix": prefix}]
    client.expect(200, "PATCH", path, json={"paused": True})
    run = client.expect(202, "POST", f"{path}/runs", json=order)
    key = f"{prefix}/{run['id']}/results.jsonl"
    client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=b"mine")
    client.expect(200, "PATCH", path, json={"paused": False})
    client.recover()
    assert client.wait_for_run(project, run["id"])["state"] == "succeeded"

    def list_failures() -> list[dict[str, Any]] | None:
        return client.expect(200, "GET", f"{path}/failures?kind=sink")["items"] or None

    (failure,) = client.wait(list_failures, "the failure")
    assert (failure["work"], failure["state"]) == (f"s3:{prefix}/", "unresolved")
    assert failure["sample"] == f"there is another object at {prefix}/<id>/results.jsonl; it was left as it is"
    resolved = client.expect(200, "POST", f"{path}/failures/{failure['id']}/resolve", json={}, idempotency_key="r")
    assert (resolved["state"], resolved["resolved_by"].partition(":")[0]) == ("resolved", "key")
    assert client.s3.get_object(Bucket=client.stack.bucket, Key=key)["Body"].read() == b"mine"


def test_storage_events_arrive_at_a_rule_of_the_account(client: StackClient, project: str) -> None:
    events = make_aws_client(client, "events")
    url = client.sqs.create_queue(QueueName=f"arrivals-{project}")["QueueUrl"]
    arn = client.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name=project, EventPattern=json.dumps({"source": ["evalward"], "detail": {"project": [project]}}))
    events.put_targets(Rule=project, Targets=[{"Id": "1", "Arn": arn}])

    dataset = client.upload(project, "answers", ROWS)
    client.upload(project, "answers", ROWS)
    client.expect(200, "DELETE", f"/v1/projects/{project}/datasets/{dataset['sha256']}")
    client.drain()

    messages = client.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    arrived = [json.loads(message["Body"]) for message in messages]
    assert sorted(event["detail-type"] for event in arrived) == ["dataset.published", "dataset.removed"]
    assert {event["detail"]["sha256"] for event in arrived} == {dataset["sha256"]}
    outbox = (
        "SELECT published_at IS NOT NULL AS is_published FROM packs.pack_storage_outbox WHERE tenant_id = %(project)s"
    )
    assert [row["is_published"] for row in client.look(outbox, {"project": project})] == [True, True]
