"""Files of up to 64 MiB: the presigned way and through the bucket, at the limits and one beyond each."""

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evalward_local.stack_client import StackClient

MIB = 1024 * 1024
LIMIT = 64 * MIB
OCTETS = {"content-type": "application/octet-stream"}
# pyarrow's stubs do not know most of its functions.
arrow: Any = pa
parquet: Any = pq


def reserve(client: StackClient, project: str, content: bytes, file_format: str = "jsonl", **changes: Any) -> Any:
    body = {
        "name": "large",
        "format": file_format,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return client.expect(201, "POST", f"/v1/projects/{project}/uploads", json=body | changes)


def put(reservation: dict[str, Any], content: bytes) -> None:
    answer = httpx.put(
        reservation["url"], content=content, headers=reservation["headers"], trust_env=False, timeout=120
    )
    assert answer.status_code == 200, answer.text[:2000]


def finalize(client: StackClient, reservation: dict[str, Any], query: str = "") -> httpx.Response:
    """Finalize, and ask again as a client does when the gateway's half a minute was too short."""

    def ask() -> httpx.Response | None:
        answer = client.request("POST", reservation["finalize"] + query)
        return None if answer.status_code in (503, 504) or "upload_busy" in answer.text else answer

    return client.wait(ask, "the finalization")


def make_jsonl(size: int) -> bytes:
    """Return so many bytes of canonical rows."""
    row = b'{"id":"%06d","input":"%b"}\n'
    plain = len(row % (0, b""))
    rows = [row % (number, b"x" * (MIB - plain)) for number in range(size // MIB)]
    rest = size - sum(map(len, rows))
    if rest:
        rows.append(row % (len(rows), b"x" * (rest - plain)))
    content = b"".join(rows)
    assert len(content) == size
    return content


def make_parquet(size: int) -> bytes:
    """Return a file of nearly as many bytes as `size`, whose canonical rows have fewer."""
    row_bytes = 8 * 1024
    rows = size // row_bytes - 40
    ids = [f"{number:06}" for number in range(rows)]
    table = arrow.table({"id": ids, "input": [f"{number:08}" * (row_bytes // 8 - 8) for number in range(rows)]})
    sink = io.BytesIO()
    parquet.write_table(table, sink, compression="none", use_dictionary=False, row_group_size=500)
    return sink.getvalue()


MAKERS: dict[str, Callable[[int], bytes]] = {"jsonl": make_jsonl, "parquet": make_parquet}


@pytest.mark.parametrize("file_format", ["jsonl", "parquet"])
def test_a_file_of_64_mib_comes_in_both_ways(client: StackClient, project: str, file_format: str) -> None:
    content = MAKERS[file_format](LIMIT)
    assert LIMIT - 3 * MIB < len(content) <= LIMIT
    reservation = reserve(client, project, content, file_format)
    put(reservation, content)

    answer = finalize(client, reservation)
    key = client.drop(project, f"dropped.{file_format}", content)
    dropped = client.wait_for_import(project, key)

    assert answer.status_code in (200, 201), answer.text[:2000]
    published = answer.json()
    assert (dropped["state"], dropped["error"]) == ("succeeded", None)
    assert published["sha256"] == dropped["dataset"]["sha256"]
    if file_format == "jsonl":
        assert (published["sha256"], published["bytes"]) == (hashlib.sha256(content).hexdigest(), LIMIT)
    assert finalize(client, reservation).json() == published


def test_one_byte_more_is_refused_before_it_is_sent(client: StackClient, project: str) -> None:
    body = {"name": "large", "format": "jsonl", "bytes": LIMIT + 1, "sha256": "0" * 64}
    problem = client.expect(413, "POST", f"/v1/projects/{project}/uploads", json=body)
    assert problem["code"] == "payload_too_large"
    assert str(LIMIT) in problem["detail"]


def test_one_byte_more_in_the_bucket_is_refused(client: StackClient, project: str) -> None:
    key = client.drop(project, "large.jsonl", make_jsonl(LIMIT) + b"\n")
    ended = client.wait_for_import(project, key)
    assert (ended["state"], ended["error"]["code"]) == ("failed", "object_too_large")
    assert str(LIMIT) in ended["error"]["detail"]


def test_one_record_more_is_refused_at_its_row(client: StackClient, project: str) -> None:
    rows = b"".join(b'{"input":%d}\n' % number for number in range(100_001))
    fitting = rows[: rows.rindex(b"\n", 0, -1) + 1]
    key = client.drop(project, "many.jsonl", rows)
    problem = client.wait_for_import(project, key)["error"]
    assert [(error["row"], error["reason"]) for error in problem["errors"]] == [(100_001, "too_many_records")]
    assert "100000" in problem["errors"][0]["message"]
    path = f"/v1/projects/{project}/datasets?name=many&format=jsonl&validate_only=true"
    assert client.expect(200, "POST", path, content=fitting, headers=OCTETS)["records"] == 100_000


@pytest.mark.parametrize("way", ["presigned", "bucket"])
def test_a_row_may_have_4_mib_and_not_a_byte_more(client: StackClient, project: str, way: str) -> None:
    prefix, suffix = b'{"id":"1","input":"', b'"}\n'
    row = prefix + b"x" * (4 * MIB - len(prefix) - len(suffix) + 1) + suffix
    longer = row.replace(b"xx", b"xxx", 1)

    def send(content: bytes) -> dict[str, Any]:
        if way == "bucket":
            key = client.drop(project, f"row-{len(content)}.jsonl", content)
            one = client.wait_for_import(project, key)
            return one["error"] or one["dataset"]
        reservation = reserve(client, project, content)
        put(reservation, content)
        return finalize(client, reservation).json()

    assert send(row)["records"] == 1
    (error,) = send(longer)["errors"]
    assert (error["row"], error["reason"]) == (1, "row_too_large")
    assert str(4 * MIB) in error["message"]


def test_a_body_that_is_too_large_is_told_the_presigned_way(client: StackClient, project: str) -> None:
    path = f"/v1/projects/{project}/datasets?name=large&format=jsonl"
    answer = client.expect(413, "POST", path, content=b"x" * (4 * MIB + 1), headers=OCTETS)
    assert answer["code"] == "payload_too_large"
    assert "uploads" in answer["detail"]
    assert str(4 * MIB) in answer["detail"]


def test_mapping_and_nul_are_the_same_on_all_ways(client: StackClient, project: str) -> None:
    content = b'{"id":"1","q":{"text":"a\\u0000b"}}\n'
    mapping = {"input": "/q/text"}
    options: dict[str, Any] = {"mapping": mapping, "nul": "replace"}
    path = f"/v1/projects/{project}"
    direct = client.expect(
        201,
        "POST",
        f"{path}/datasets",
        params={"name": "direct", "format": "jsonl", "nul": "replace", "mapping": json.dumps(mapping)},
        content=content,
        headers=OCTETS,
    )
    reservation = reserve(client, project, content, name="presigned", **options)
    put(reservation, content)
    checked = finalize(client, reservation, "?validate_only=true").json()
    presigned = finalize(client, reservation).json()
    key = f"datasets/incoming/{project}/in/file.jsonl"
    client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=content)
    order = {"name": "imported", "uri": f"s3://{client.stack.bucket}/{key}"} | options
    ordered = [
        client.expect(202, "POST", f"{path}/datasets:import", json=order | {"validate_only": flag})
        for flag in (True, False)
    ]
    client.drain()
    validated, imported = (client.expect(200, "GET", f"{path}/imports/{one['id']}") for one in ordered)

    assert direct["sha256"] == presigned["sha256"] == imported["dataset"]["sha256"]
    assert direct["sha256"] == checked["sha256"] == validated["validation"]["sha256"]
    assert (validated["state"], validated["dataset"], imported["validation"]) == ("succeeded", None, None)
    assert checked["notes"]["replaced_nuls"] == 1


@pytest.mark.parametrize("route", ["datasets", "uploads", "datasets:import"])
def test_a_mapping_that_makes_no_sense_is_refused_at_once(client: StackClient, project: str, route: str) -> None:
    mapping = {"question": "q"}
    path = f"/v1/projects/{project}/{route}"
    if route == "datasets":
        query = {"name": "a", "format": "jsonl", "mapping": json.dumps(mapping)}
        problem = client.expect(400, "POST", path, params=query, content=b"{}", headers=OCTETS)
    elif route == "uploads":
        body: dict[str, Any] = {"name": "a", "format": "jsonl", "bytes": 1, "sha256": "0" * 64, "mapping": mapping}
        problem = client.expect(400, "POST", path, json=body)
    else:
        uri = f"s3://{client.stack.bucket}/datasets/incoming/{project}/a.jsonl"
        problem = client.expect(400, "POST", path, json={"name": "a", "uri": uri, "mapping": mapping})
    assert [error["pointer"] for error in problem["errors"]] == ["/mapping"]
    assert "question" in problem["errors"][0]["message"]


def test_a_keyed_upload_is_replayed_and_a_refusal_is_said_again(client: StackClient, project: str) -> None:
    content = b'{"input":"a","input":"b"}\n'
    body = {
        "name": "a",
        "format": "jsonl",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    path = f"/v1/projects/{project}/uploads"
    first, again = (client.request("POST", path, json=body, idempotency_key="reserve") for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    put(first.json(), content)
    for key in ("finalize", "finalize", None):
        problem = client.expect(422, "POST", first.json()["finalize"], idempotency_key=key)
        assert [error["reason"] for error in problem["errors"]] == ["duplicate_key"]

    good = b'{"input":"a"}\n'
    reservation = reserve(client, project, good)
    put(reservation, good)
    made = [client.request("POST", reservation["finalize"], idempotency_key="good") for _ in range(2)]
    assert [one.status_code for one in made] == [201, 201]
    assert made[1].headers["idempotency-replayed"] == "true"
    assert client.expect(200, "POST", reservation["finalize"]) == made[0].json()


def test_a_deleted_dataset_keeps_its_object_as_long_as_a_run_refers_to_it(client: StackClient, project: str) -> None:
    dataset = client.upload(project, "answers", [{"input": "q", "output": "a", "reference": "a"}])
    body = {"name": "r", "dataset": {"sha256": dataset["sha256"]}, "evaluators": [{"name": "exact_match"}]}
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=body)
    client.wait_for_run(project, run["id"])
    path = f"/v1/projects/{project}/datasets/{dataset['sha256']}"
    prefix = f"datasets/{project}/sha256/"

    deleted = client.expect(200, "DELETE", path)
    client.drain()
    assert (deleted["object"], deleted["runs"]) == ("kept", [run["id"]])
    assert client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=prefix)["KeyCount"] == 2
    client.expect(404, "GET", path)

    client.request("DELETE", f"/v1/projects/{project}/runs/{run['id']}").raise_for_status()
    client.drain()
    assert client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=prefix)["KeyCount"] == 0
