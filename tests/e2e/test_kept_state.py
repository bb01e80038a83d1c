"""`evalward-local up --s3 weed`: what was published is there after a restart."""

import json
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

ROWS = b"".join(json.dumps({"id": f"r{n}", "input": "1+1", "output": "2"}).encode() + b"\n" for n in range(3))


@pytest.fixture
def state() -> Generator[Path]:
    # Below pytest's own folder, which is closed to the user the database runs as, there is no place for the data.
    folder = Path(tempfile.mkdtemp(prefix="evalward-kept-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.long
def test_datasets_and_their_objects_outlive_the_stack(state: Path) -> None:
    with running_stack(state, is_ephemeral=False, keeps_objects=True) as stack, StackClient(stack) as client:
        assert client.request("POST", "/v1/projects", json={"id": "kept"}).status_code == 201
        client.s3.put_object(Bucket=stack.bucket, Key="datasets/incoming/kept/answers to all.jsonl", Body=ROWS)
        client.s3.put_object(Bucket=stack.bucket, Key="datasets/incoming/kept/answers.jsonl", Body=ROWS)
        client.drain()
        imports = client.request("GET", "/v1/projects/kept/imports").json()["items"]
        assert sorted(item["state"] for item in imports) == ["failed", "succeeded"]
    with running_stack(state, is_ephemeral=False, keeps_objects=True) as stack, StackClient(stack) as client:
        client.drain()
        # Every object was told of again; an import knows its event.
        again = client.request("GET", "/v1/projects/kept/imports").json()["items"]
        assert [item["id"] for item in again] == [item["id"] for item in imports]
        (dataset,) = client.request("GET", "/v1/projects/kept/datasets").json()["items"]
        records = client.request("GET", f"/v1/projects/kept/datasets/{dataset['sha256']}/records").json()["items"]
        assert [record["id"] for record in records] == ["r0", "r1", "r2"]
