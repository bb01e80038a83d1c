"""A file is published once, wherever it was interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from evalward.errors import ConfigurationError, ProblemError, UploadRefusedError
from evalward.pending_writes import PendingWrites
from evalward.publish_file import DIRECT_BYTES, Publication, WantedDataset, publish_file
from evalward.transport import Transport

from .conftest import KilledError, Service, problem

DATASET = {"name": "answers", "version": 1}
STORE = "https://store.example.com/staged?signature=x"
type Connect = Callable[..., Transport]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_bytes(b'{"input":1}\n')
    return path


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "answers.parquet"
    path.write_bytes(b"x" * (DIRECT_BYTES + 1))
    return path


def reserved(upload: str = "u-1") -> httpx.Response:
    return httpx.Response(201, json={"id": upload, "url": STORE, "headers": {"x-amz-checksum-sha256": "abc="}})


def publish(transport: Transport, file: Path, **wanted: Any) -> Publication:
    return publish_file(transport, "demo", file, WantedDataset(**wanted))


def steps(service: Service) -> list[str]:
    return [f"{request.method} {request.url.path.rpartition('/')[2]}" for request in service.requests]


def test_a_small_file_goes_in_one_request(service: Service, connect: Connect, small: Path) -> None:
    service.answers = [httpx.Response(201, json=DATASET)]
    assert publish(connect(), small, mapping={"input": "/q"}) == Publication(DATASET, is_new=True)
    (request,) = service.requests
    assert request.content == small.read_bytes()
    assert request.headers["content-type"] == "application/octet-stream"
    assert dict(request.url.params) == {"name": "answers", "format": "jsonl", "mapping": '{"input": "/q"}'}


def test_content_that_is_the_newest_version_is_not_new(service: Service, connect: Connect, small: Path) -> None:
    service.answers = [httpx.Response(200, json=DATASET)]
    assert not publish(connect(), small).is_new


def test_a_file_of_just_4_mib_goes_directly(service: Service, connect: Connect, large: Path) -> None:
    large.write_bytes(b"x" * DIRECT_BYTES)
    service.answers = [httpx.Response(201, json=DATASET)]
    publish(connect(), large)
    assert steps(service) == ["POST datasets"]


def test_a_large_file_goes_in_three_steps(
    service: Service, connect: Connect, large: Path, pending: PendingWrites
) -> None:
    service.answers = [reserved(), httpx.Response(200), httpx.Response(201, json=DATASET)]
    seen: list[tuple[int, int]] = []

    publish_file(connect(), "demo", large, WantedDataset(), progress=lambda sent, total: seen.append((sent, total)))

    assert steps(service) == ["POST uploads", "PUT staged", "POST finalize"]
    reserve, put, finalize = service.requests
    size, digest = large.stat().st_size, hashlib.sha256(large.read_bytes()).hexdigest()
    assert json.loads(reserve.content) == {"name": "answers", "format": "parquet", "bytes": size, "sha256": digest}
    assert put.content == large.read_bytes()
    assert (put.headers["x-amz-checksum-sha256"], put.headers["content-length"]) == ("abc=", str(size))
    assert finalize.url.path == "/v1/projects/demo/uploads/u-1/finalize"
    assert len({reserve.headers["idempotency-key"], finalize.headers["idempotency-key"]}) == 2
    assert seen[-1] == (size, size)
    assert pending.entries() == []


INTERRUPTED: dict[str, list[httpx.Response]] = {
    "the reservation": [],
    "the upload": [reserved()],
    "the finalization": [reserved(), httpx.Response(200)],
}


@pytest.mark.parametrize("step", INTERRUPTED)
def test_the_same_file_again_goes_on_under_the_same_keys(
    service: Service, connect: Connect, large: Path, pending: PendingWrites, step: str
) -> None:
    done = [httpx.Response(one.status_code, content=one.content, headers=one.headers) for one in INTERRUPTED[step]]
    service.answers = [*done]
    with pytest.raises(KilledError):
        publish(connect(), large)
    assert len(pending.entries()) == 1
    first_keys = {request.url.path: request.headers.get("idempotency-key") for request in service.requests}
    service.requests.clear()

    service.answers = [reserved(), httpx.Response(412), httpx.Response(201, json=DATASET)]
    if step == "the finalization":
        service.answers = service.answers[2:]
    assert publish(connect(), large).dataset == DATASET

    again = {request.url.path: request.headers.get("idempotency-key") for request in service.requests}
    assert {path: again[path] for path in first_keys if path in again} == {
        path: key for path, key in first_keys.items() if path in again
    }
    assert ("PUT staged" in steps(service)) == (step != "the finalization"), "what is in the store stays there"
    assert pending.entries() == []


def test_an_url_that_has_run_out_begins_anew(
    service: Service, connect: Connect, large: Path, pending: PendingWrites
) -> None:
    service.answers = [
        reserved("u-1"),
        httpx.Response(403, text="Request has expired"),
        reserved("u-2"),
        httpx.Response(200),
        httpx.Response(201, json=DATASET),
    ]
    assert publish(connect(), large).dataset == DATASET
    assert service.requests[-1].url.path.endswith("/u-2/finalize")
    assert len({service.keys[0], service.keys[2], service.keys[4]}) == 3
    assert pending.entries() == []


def test_an_url_that_never_works_is_told(service: Service, connect: Connect, large: Path) -> None:
    service.answers = [reserved(), httpx.Response(403), reserved(), httpx.Response(403)]
    with pytest.raises(UploadRefusedError):
        publish(connect(), large)


def test_an_upload_that_went_away_in_between_begins_anew(
    service: Service, connect: Connect, large: Path, pending: PendingWrites
) -> None:
    service.answers = [reserved("u-1"), httpx.Response(200)]
    with pytest.raises(KilledError):
        publish(connect(), large)
    service.answers = [
        problem(409, "upload_ended"),
        reserved("u-2"),
        httpx.Response(200),
        httpx.Response(201, json=DATASET),
    ]
    assert publish(connect(), large).dataset == DATASET
    assert pending.entries() == []


def test_a_refused_file_is_told_with_its_rows_and_leaves_nothing(
    service: Service, connect: Connect, large: Path, pending: PendingWrites
) -> None:
    errors = [{"row": 3, "field": "/input", "reason": "missing_input", "message": "missing"}]
    service.answers = [reserved(), httpx.Response(200), problem(422, "dataset_invalid", errors=errors)]
    with pytest.raises(ProblemError) as caught:
        publish(connect(), large)
    assert caught.value.errors == errors
    assert pending.entries() == []


def test_a_file_without_a_known_ending_needs_a_format(connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "answers.csv").write_text("a,b")
    with pytest.raises(ConfigurationError, match="say which it is"):
        publish(connect(), tmp_path / "answers.csv")


def test_a_file_that_is_not_there_is_told(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        publish(connect(), tmp_path / "none.jsonl")
