"""Files become datasets: dropped into the bucket, uploaded, or imported on request."""

import hashlib
import io
import json
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evalward_local.stack_client import StackClient

ROWS: list[dict[str, Any]] = [
    {
        "id": f"q-{number}",
        "question": f"Question {number}?",
        "response": "yes",
        "expected": "yes" if number % 2 else "no",
    }
    for number in range(1, 8)
]
OCTETS = {"content-type": "application/octet-stream"}


def to_jsonl(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def to_parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    return buffer.getvalue()


def to_canonical(rows: list[dict[str, Any]]) -> bytes:
    """What evalward must make of ROWS, by a standard library."""
    names = {"question": "input", "response": "output", "expected": "reference"}
    renamed = [{names.get(name, name): value for name, value in row.items()} for row in rows]
    return "".join(json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in renamed).encode()


@pytest.mark.parametrize(("ending", "encode"), [("jsonl", to_jsonl), ("parquet", to_parquet)])
def test_file_put_into_the_bucket_becomes_a_dataset(
    client: StackClient, project: str, ending: str, encode: Any
) -> None:
    key = client.drop(project, f"answers.{ending}", encode(ROWS))

    ended = client.wait_for_import(project, key)

    assert (ended["state"], ended["error"], ended["attempts"]) == ("succeeded", None, 1)
    dataset = client.expect(200, "GET", f"/v1/projects/{project}/datasets/answers@1")
    assert ended["dataset"] == dataset
    canonical = to_canonical(ROWS)
    assert dataset["sha256"] == hashlib.sha256(canonical).hexdigest()
    assert (dataset["records"], dataset["bytes"]) == (len(ROWS), len(canonical))
    assert dataset["source"] == f"s3://{client.stack.bucket}/{key}"
    stored = client.s3.get_object(Bucket=client.stack.bucket, Key=dataset["path"])["Body"].read()
    assert stored == canonical


def test_dataset_is_found_by_digest_and_name_and_its_content_is_the_canonical_object(
    client: StackClient, project: str
) -> None:
    published = client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/datasets"

    by_digest = client.expect(200, "GET", f"{path}/{published['sha256']}")
    by_name = client.expect(200, "GET", f"{path}/answers@1")
    redirect = client.request("GET", f"{path}/answers@1/content")

    assert by_digest == by_name == published
    assert redirect.status_code == 307
    assert redirect.headers["cache-control"] == "no-store"
    assert httpx.get(redirect.headers["location"], trust_env=False).content == to_canonical(ROWS)
    for missing in ("answers@2", "other@1", "0" * 64, "answers", "answers@0"):
        assert client.expect(404, "GET", f"{path}/{missing}")["code"] == "not_found"


def test_records_are_paged_in_order(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    path = f"/v1/projects/{project}/datasets/answers@1/records?limit=3"

    pages: list[dict[str, Any]] = [client.expect(200, "GET", path)]
    while pages[-1]["next_cursor"]:
        pages.append(client.expect(200, "GET", f"{path}&cursor={quote(pages[-1]['next_cursor'])}"))

    assert [len(page["items"]) for page in pages] == [3, 3, 1]
    records = [record for page in pages for record in page["items"]]
    assert records == [json.loads(line) for line in to_canonical(ROWS).splitlines()]


def test_other_content_makes_the_next_version_and_the_same_none(client: StackClient, project: str) -> None:
    versions = [client.upload(project, "answers", rows)["version"] for rows in (ROWS, ROWS, ROWS[:1], ROWS)]

    assert versions == [1, 1, 2, 3]
    listed = client.expect(200, "GET", f"/v1/projects/{project}/datasets?name=answers")["items"]
    assert [dataset["version"] for dataset in listed] == [3, 2, 1]


def test_refused_upload_names_rows_and_fields_and_publishes_nothing(client: StackClient, project: str) -> None:
    content = b'{"id":"1","input":"a"}\n{"id":"1","input":"b"}\n{"id":"3"}\n{"id":"4","input":"d","input":"e"}\n'

    problem = client.expect(
        422, "POST", f"/v1/projects/{project}/datasets?name=bad&format=jsonl", content=content, headers=OCTETS
    )

    assert problem["code"] == "dataset_invalid"
    assert [(error["row"], error["reason"]) for error in problem["errors"]] == [
        (2, "duplicate_id"),
        (3, "missing_input"),
        (4, "duplicate_key"),
    ]
    assert client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"] == []


def test_validation_counts_and_publishes_nothing(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/datasets?name=answers&format=jsonl&validate_only=true"

    counts = client.expect(200, "POST", path, content=to_jsonl([{"input": "no id"}, *ROWS]), headers=OCTETS)

    assert (counts["records"], counts["derived_ids"]) == (len(ROWS) + 1, 1)
    assert client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"] == []
    prefix = f"datasets/{project}/"
    assert client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=prefix)["KeyCount"] == 0


def test_broken_file_is_reported_with_its_row(client: StackClient, project: str) -> None:
    key = client.drop(project, "broken.jsonl", b'{"input":"a"}\n{"input":"b"\n')

    ended = client.wait_for_import(project, key)

    assert ended["state"] == "failed"
    assert ended["error"]["code"] == "dataset_invalid"
    assert [(error["row"], error["reason"]) for error in ended["error"]["errors"]] == [(2, "not_json")]
    # Acknowledged: what is wrong with a file does not get better by trying again.
    client.drain()
    assert [one["attempts"] for one in client.list_imports(project)] == [1]


def test_text_under_the_name_of_a_parquet_file_is_reported(client: StackClient, project: str) -> None:
    key = client.drop(project, "text.parquet", to_jsonl(ROWS))

    ended = client.wait_for_import(project, key)

    assert ended["state"] == "failed"
    assert [error["reason"] for error in ended["error"]["errors"]] == ["wrong_format"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("2026/answers.jsonl", "deeper folders"),
        ("answers.csv", "must end in .jsonl or .parquet"),
        ("two words+more.jsonl", "no dataset name"),
    ],
)
def test_object_that_cannot_be_imported_is_a_failed_import(
    client: StackClient, project: str, name: str, said: str
) -> None:
    key = client.drop(project, name, to_jsonl(ROWS))

    # The key of this very object, so it was decoded once: %20 or + became a space, %2B a plus.
    ended = client.wait_for_import(project, key)

    assert (ended["state"], ended["error"]["code"]) == ("failed", "import_refused")
    assert said in ended["error"]["detail"]
    assert client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"] == []


def test_object_with_space_and_plus_is_imported_on_request_under_another_name(
    client: StackClient, project: str
) -> None:
    key = client.drop(project, "two words+more.jsonl", to_jsonl(ROWS))
    body = {"name": "two-words", "uri": f"s3://{client.stack.bucket}/{key}"}

    queued = client.expect(202, "POST", f"/v1/projects/{project}/datasets:import", json=body)

    def look() -> dict[str, Any] | None:
        one = client.expect(200, "GET", f"/v1/projects/{project}/imports/{queued['id']}")
        return one if one["state"] in ("succeeded", "failed") else None

    ended = client.wait(look, "the import")
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert ended["dataset"]["sha256"] == hashlib.sha256(to_canonical(ROWS)).hexdigest()
    assert ended["dataset"]["source"] == body["uri"]


def test_objects_of_no_project_are_passed_over(client: StackClient, project: str) -> None:
    client.drop("no-such-project", "answers.jsonl", to_jsonl(ROWS))
    client.drop("Not_A_Project", "answers.jsonl", to_jsonl(ROWS))
    client.s3.put_object(Bucket=client.stack.bucket, Key=f"datasets/incoming/{project}/", Body=b"")
    client.s3.put_object(Bucket=client.stack.bucket, Key="datasets/incoming/stray.jsonl", Body=to_jsonl(ROWS))

    client.drain()

    assert client.list_imports(project) == []
    jobs = client.look("SELECT id FROM scheduler.jobs WHERE tenant_id IN ('no-such-project', 'Not_A_Project')")
    assert jobs == []


def test_event_delivered_twice_is_one_import_and_a_second_upload_another(client: StackClient, project: str) -> None:
    key = client.drop(project, "answers.jsonl", to_jsonl(ROWS))
    client.wait_for_import(project, key)
    event = {
        "Records": [
            {
                "eventVersion": "2.1",
                "eventSource": "aws:s3",
                "eventName": "ObjectCreated:CompleteMultipartUpload",
                "s3": {
                    "bucket": {"name": client.stack.bucket},
                    "object": {"key": key, "size": 1, "sequencer": "0055AED6DCD90281E5"},
                },
            }
        ]
    }

    client.send("IncomingQueue", event, event, event)
    client.drain()

    assert [one["state"] for one in client.list_imports(project)] == ["succeeded", "succeeded"]
    datasets = client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"]
    assert [dataset["version"] for dataset in datasets] == [1]


@pytest.mark.parametrize(
    "place",
    [
        "s3://{bucket}/datasets/incoming/other/answers.jsonl",
        "s3://{bucket}/datasets/incoming/{project}/../other/answers.jsonl",
        "s3://{bucket}/datasets/incoming/{project}/%2e%2e/other/answers.jsonl",
        "s3://{bucket}/datasets/incoming/{project}/a%2Fb.jsonl",
        "s3://another-bucket/datasets/incoming/{project}/answers.jsonl",
        "s3://{bucket}/datasets/{project}/sha256/answers.jsonl",
        "https://example.com/answers.jsonl",
    ],
)
def test_import_reads_nothing_outside_of_the_projects_prefix(client: StackClient, project: str, place: str) -> None:
    body = {"name": "answers", "uri": place.format(bucket=client.stack.bucket, project=project)}

    problem = client.expect(400, "POST", f"/v1/projects/{project}/datasets:import", json=body)

    assert [error["pointer"] for error in problem["errors"]] == ["/uri"]


def test_import_of_a_missing_object_fails_and_says_so(client: StackClient, project: str) -> None:
    uri = f"s3://{client.stack.bucket}/datasets/incoming/{project}/missing.jsonl"

    client.expect(202, "POST", f"/v1/projects/{project}/datasets:import", json={"name": "answers", "uri": uri})
    ended = client.wait_for_import(project, "missing.jsonl")

    assert (ended["state"], ended["error"]["code"]) == ("failed", "object_not_found")


def test_import_applies_a_mapping(client: StackClient, project: str) -> None:
    key = client.drop(project, "nested.jsonl", b'{"request":{"text":"a"},"score":1,"answer":"b"}\n')
    body = {
        "name": "mapped",
        "uri": f"s3://{client.stack.bucket}/{key}",
        "mapping": {"input": "/request/text", "output": "/answer"},
    }

    queued = client.expect(202, "POST", f"/v1/projects/{project}/datasets:import", json=body, idempotency_key="mapped")
    client.drain()

    ended = client.expect(200, "GET", f"/v1/projects/{project}/imports/{queued['id']}")
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    (record,) = client.expect(200, "GET", f"/v1/projects/{project}/datasets/mapped@1/records")["items"]
    assert (record["input"], record["output"], record["metadata"]["score"]) == ("a", "b", 1)
