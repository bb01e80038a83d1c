"""Files met in practice and files made to lie: each with the outcome it must get, whichever way it comes."""

import contextlib
import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from dataset_conversion.parquet_pages import inspect_parquet
from dataset_conversion.parquet_refusal import ParquetRefusedError
from evalward_local.stack_client import StackClient
from records.limits import Limits

CASES = Path(__file__).parents[1] / "cases"
DATASETS: dict[str, dict[str, Any]] = json.loads((CASES / "datasets" / "outcomes.json").read_text())
HOSTILE: dict[str, dict[str, Any]] = json.loads((CASES / "parquet-hostile" / "outcomes.json").read_text())
MAX_UPLOAD_BYTES = 4 * 1024 * 1024
OCTETS = {"content-type": "application/octet-stream"}


def check_errors(outcome: dict[str, Any], errors: list[dict[str, Any]]) -> None:
    assert any(
        error["reason"] == outcome["reason"]
        and error["row"] == outcome.get("row", error["row"])
        and error["field"] == outcome.get("field", error["field"])
        for error in errors
    ), errors


def check_content(client: StackClient, dataset: dict[str, Any], outcome: dict[str, Any]) -> None:
    assert dataset["records"] == outcome["records"]
    stored = client.s3.get_object(Bucket=client.stack.bucket, Key=dataset["path"])["Body"].read()
    rows = [json.loads(line) for line in stored.splitlines()]
    assert len(rows) == outcome["records"]
    if "rows" in outcome:
        assert rows == outcome["rows"]


@pytest.fixture(scope="module")
def cases(client: StackClient) -> str:
    """A project for all files: a stack with a project a file would say no more."""
    client.expect(201, "POST", "/v1/projects", json={"id": "cases"})
    return "cases"


@pytest.mark.parametrize(
    "name", [name for name in DATASETS if (CASES / "datasets" / name).stat().st_size <= MAX_UPLOAD_BYTES]
)
def test_an_uploaded_file_gets_its_outcome(client: StackClient, cases: str, name: str) -> None:
    outcome = DATASETS[name]
    path = f"/v1/projects/{cases}/datasets?name={name}&format={name.rpartition('.')[2]}"

    answer = client.request("POST", path, content=(CASES / "datasets" / name).read_bytes(), headers=OCTETS)

    if outcome["outcome"] == "published":
        assert answer.status_code == 201, answer.text[:2000]
        check_content(client, answer.json(), outcome)
    else:
        assert (answer.status_code, answer.json()["code"]) == (422, "dataset_invalid")
        check_errors(outcome, answer.json()["errors"])
        assert client.expect(200, "GET", f"/v1/projects/{cases}/datasets?name={name}")["items"] == []


@pytest.fixture
def storage_events(client: StackClient, project: str) -> str:
    """Return the URL of a queue that a rule of the account sends the project's storage events to."""
    stack = client.stack
    events: Any = boto3.client(
        "events",
        endpoint_url=stack.aws_endpoint_url,
        region_name=stack.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    url: str = client.sqs.create_queue(QueueName=f"storage-events-{project}")["QueueUrl"]
    arn = client.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    pattern = {"source": ["evalward"], "detail-type": ["dataset.published"], "detail": {"project": [project]}}
    events.put_rule(Name=f"storage-{project}", EventPattern=json.dumps(pattern))
    events.put_targets(Rule=f"storage-{project}", Targets=[{"Id": "1", "Arn": arn}])
    events.close()
    return url


def receive_all(client: StackClient, url: str) -> list[dict[str, Any]]:
    """Take what is in a queue."""
    received: list[dict[str, Any]] = []
    while messages := client.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        received += [json.loads(message["Body"]) for message in messages]
        for message in messages:
            client.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return received


def test_every_dropped_file_gets_its_outcome(client: StackClient, project: str, storage_events: str) -> None:
    keys = {name: client.drop(project, name, (CASES / "datasets" / name).read_bytes()) for name in DATASETS}
    client.drain(240)
    ended = list_all_imports(client, project)
    assert len(ended) == len(keys)
    wrong: dict[str, Any] = {}
    for name, key in keys.items():
        outcome, one = DATASETS[name], ended[key]
        try:
            if outcome["outcome"] == "published":
                assert (one["state"], one["error"]) == ("succeeded", None)
                check_content(client, one["dataset"], outcome)
            else:
                assert (one["state"], one["error"]["code"]) == ("failed", "dataset_invalid")
                check_errors(outcome, one["error"]["errors"])
            assert one["attempts"] == 1
        except AssertionError as error:
            wrong[name] = str(error)[:500]
    assert wrong == {}
    # What was published was said to the account, each version once.
    details = [event["detail"] for event in receive_all(client, storage_events)]
    published = [one["dataset"] for one in ended.values() if one["dataset"]]
    assert len({detail["id"] for detail in details}) == len(details)
    assert sorted((detail["name"], detail["version"], detail["sha256"]) for detail in details) == sorted(
        (dataset["name"], dataset["version"], dataset["sha256"]) for dataset in published
    )


def test_every_hostile_file_is_dropped_and_the_function_goes_on(client: StackClient, project: str) -> None:
    orders = {name: order_hostile(client, project, name) for name in HOSTILE}
    client.drain(300)
    wrong: dict[str, Any] = {}
    for name, import_id in orders.items():
        one = client.expect(200, "GET", f"/v1/projects/{project}/imports/{import_id}")
        must = HOSTILE[name]["must"]
        is_published = one["state"] == "succeeded"
        # A crash or a time-out of the function would have taken the message back to the queue.
        is_right = one["attempts"] == 1 and (
            (is_published and must != "refuse")
            or (one["state"] == "failed" and one["error"]["code"] == "dataset_invalid" and must != "convert")
        )
        if is_published and "records" in HOSTILE[name]:
            is_right &= one["dataset"]["records"] == HOSTILE[name]["records"]
        if not is_right:
            wrong[name] = one
    assert wrong == {}
    assert client.upload(project, "afterwards", [{"input": "still here"}])["records"] == 1


def order_hostile(client: StackClient, project: str, name: str) -> str:
    """Put a file where nothing imports it by itself, and import it with its first column as the input."""
    content = (CASES / "parquet-hostile" / name).read_bytes()
    key = f"datasets/incoming/{project}/hostile/{name}"
    client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=content)
    body: dict[str, Any] = {"name": name, "uri": f"s3://{client.stack.bucket}/{key}"}
    with contextlib.suppress(ParquetRefusedError):
        body["mapping"] = {"input": inspect_parquet(content, Limits()).leaves[0].path[0]}
    return client.expect(202, "POST", f"/v1/projects/{project}/datasets:import", json=body)["id"]


def list_all_imports(client: StackClient, project: str) -> dict[str, dict[str, Any]]:
    page = client.expect(200, "GET", f"/v1/projects/{project}/imports?limit=200")
    assert page["next_cursor"] is None
    return {one["uri"].partition(f"{client.stack.bucket}/")[2]: one for one in page["items"]}


def test_the_same_content_has_one_digest_however_it_is_written(client: StackClient, project: str) -> None:
    rows = [{"id": "a", "question": "q", "expected": "e", "score": 0.5}, {"id": "b", "question": "é", "expected": "f"}]
    turned = [dict(reversed(row.items())) for row in rows]
    plain = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = {
        "plain": plain,
        "turned": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in turned).encode(),
        "bom": b"\xef\xbb\xbf" + plain,
        "crlf": plain.replace(b"\n", b"\r\n"),
        "no-end": plain.rstrip(),
        "blank": b"\n" + plain.replace(b"\n", b"\n\n"),
    }
    path = f"/v1/projects/{project}/datasets?format=jsonl"

    made = [
        client.expect(201, "POST", f"{path}&name={name}", content=content, headers=OCTETS)
        for name, content in files.items()
    ]

    assert len({(dataset["sha256"], dataset["path"]) for dataset in made}) == 1
    prefix = f"datasets/{project}/sha256/"
    listed = client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=prefix)
    assert listed["KeyCount"] == 2  # the object and its manifest


def test_publishing_a_b_a_makes_three_versions_and_the_same_again_none(client: StackClient, project: str) -> None:
    a, b = [{"id": "1", "input": "a"}], [{"id": "1", "input": "b"}]
    made = [client.upload(project, "answers", rows) for rows in (a, a, b, a, a)]
    assert [dataset["version"] for dataset in made] == [1, 1, 2, 3, 3]
    assert made[0]["sha256"] == made[3]["sha256"]
    path = f"/v1/projects/{project}/datasets?name=answers&format=jsonl"
    content = b'{"id":"1","input":"a"}\n'
    assert client.expect(200, "POST", path, content=content, headers=OCTETS)["version"] == 3
