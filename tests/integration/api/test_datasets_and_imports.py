from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coordination.ports.objects import Objects

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, RecordedQueues

DATASETS = "/v1/projects/demo/datasets"
IMPORT = f"{DATASETS}:import"
INCOMING = "s3://evalward-test/datasets/incoming/demo"


@pytest.fixture(autouse=True)
def project(make_project: Callable[..., str]) -> str:
    """Return a project."""
    return make_project()


def test_dataset_is_found_by_content_and_by_name_and_version(service: Api, make_dataset: Callable[..., str]) -> None:
    sha256 = make_dataset(name="a.b-c_D")
    by_name = service.get(f"{DATASETS}/a.b-c_D@1")
    assert by_name.status == 200
    assert by_name.json["sha256"] == sha256
    assert service.get(f"{DATASETS}/{sha256}").json == by_name.json
    assert set(by_name.json) == {
        *("project", "name", "version", "sha256", "path", "records", "bytes", "created_at", "created_by", "source")
    }


@pytest.mark.parametrize("reference", ["b" * 64, "questions", "questions@2", "questions@0", "@1", "A" * 64, "q@1e3"])
def test_dataset_that_is_not_there_is_a_404(service: Api, make_dataset: Callable[..., str], reference: str) -> None:
    make_dataset()
    for path in ("", "/content", "/records"):
        assert service.get(f"{DATASETS}/{reference}{path}").status == 404


def test_datasets_are_listed_newest_first_page_by_page(service: Api, make_dataset: Callable[..., str]) -> None:
    for version in (1, 2, 3):
        make_dataset(version=version, sha256=str(version) * 64)
    make_dataset(name="other")
    first = service.get(DATASETS, query="limit=3").json
    make_dataset(name="later")
    second = service.get(DATASETS, query=f"limit=3&cursor={first['next_cursor']}").json
    seen = [f"{one['name']}@{one['version']}" for one in first["items"] + second["items"]]
    assert seen == ["other@1", "questions@3", "questions@2", "questions@1"]
    named = service.get(DATASETS, query="name=questions").json["items"]
    assert [one["version"] for one in named] == [3, 2, 1]


def test_content_redirects_to_a_url_that_needs_no_key(
    service: Api, make_dataset: Callable[..., str], bucket: Callable[..., Any]
) -> None:
    sha256 = make_dataset()
    reply = service.get(f"{DATASETS}/{sha256}/content")
    assert reply.status == 307
    assert f"datasets/demo/sha256/{sha256}.jsonl" in reply.headers["location"]
    assert reply.headers["cache-control"] == "no-store"
    assert reply.content == b""


def test_records_are_read_in_order_page_by_page(
    service: Api, make_dataset: Callable[..., str], bucket: Callable[[str, bytes], None]
) -> None:
    lines = [f'{{"id":"r{n}","input":"{"x" * (n * 7)}"}}\n' for n in range(25)]
    content = "".join(lines).encode()
    sha256 = make_dataset(records=len(lines), size=len(content))
    bucket(f"datasets/demo/sha256/{sha256}.jsonl", content)
    seen: list[str] = []
    query, page = "limit=10", dict[str, Any]()
    for _ in range(3):
        page = service.get(f"{DATASETS}/{sha256}/records", query=query).json
        seen += [record["id"] for record in page["items"]]
        query = f"limit=10&cursor={page['next_cursor']}"
    assert seen == [f"r{n}" for n in range(25)]
    assert page["next_cursor"] is None


def test_record_cursor_of_another_dataset_or_made_by_hand_is_a_400(
    service: Api, make_dataset: Callable[..., str], bucket: Callable[[str, bytes], None]
) -> None:
    from coordination.http.pages import encode_cursor

    content = b'{"id":"a"}\n{"id":"b"}\n'
    sha256 = make_dataset(records=2, size=len(content))
    bucket(f"datasets/demo/sha256/{sha256}.jsonl", content)
    for position in (["b" * 64, 0], [sha256, 3], [sha256, -1], [sha256, 10**6]):
        reply = service.get(f"{DATASETS}/{sha256}/records", query=f"cursor={encode_cursor('records', position)}")
        assert (reply.status, reply.code) == (400, "invalid_cursor"), (position, reply.json)


def test_no_transaction_is_open_while_records_are_read(
    service: Api,
    database: FreshDatabase,
    make_dataset: Callable[..., str],
    bucket: Callable[[str, bytes], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    content = b'{"id":"a"}\n'
    sha256 = make_dataset(records=1, size=len(content))
    bucket(f"datasets/demo/sha256/{sha256}.jsonl", content)
    read, open_while_read = Objects.read, list[int]()

    def watch(objects: Objects, key: str, start: int | None = None, end: int | None = None) -> bytes:
        open_while_read.append(
            database.look_up(
                "SELECT count(*) FROM pg_stat_activity "
                "WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
            )
        )
        return read(objects, key, start, end)

    monkeypatch.setattr(Objects, "read", watch)
    assert service.get(f"{DATASETS}/{sha256}/records").json["items"] == [{"id": "a"}]
    assert open_while_read == [0]


def test_records_whose_object_is_gone_are_a_404_that_says_what_to_do(
    service: Api, make_dataset: Callable[..., str], bucket: Callable[[str, bytes], None]
) -> None:
    bucket("datasets/demo/other", b"")
    reply = service.get(f"{DATASETS}/{make_dataset()}/records")
    assert (reply.status, reply.code) == (404, "object_not_found")
    assert "publish the same content again" in reply.json["detail"]


def test_import_is_queued_with_its_wake_up(service: Api, database: FreshDatabase, queues: RecordedQueues) -> None:
    reply = service.post(IMPORT, {"name": "support", "uri": f"{INCOMING}/a/support.parquet"})
    assert reply.status == 202
    queued = reply.json
    assert reply.headers["location"] == f"/v1/projects/demo/imports/{queued['id']}"
    assert (queued["state"], queued["format"], queued["dataset"], queued["error"]) == ("queued", "parquet", None, None)
    message = {"kind": "import", "project": "demo", "ref_id": queued["id"], "request_id": reply.headers["x-request-id"]}
    assert queues.sent == [("https://sqs/conversion", message)]
    assert service.get(f"/v1/projects/demo/imports/{queued['id']}").json == queued
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 1


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"uri": "s3://other/datasets/incoming/demo/a.jsonl"}, "/uri"),
        ({"uri": "s3://evalward-test/datasets/incoming/other/a.jsonl"}, "/uri"),
        ({"uri": f"{INCOMING}/../other/a.jsonl"}, "/uri"),
        ({"uri": f"{INCOMING}/%2e%2e/a.jsonl"}, "/uri"),
        ({"uri": f"{INCOMING}//a.jsonl"}, "/uri"),
        ({"uri": INCOMING}, "/uri"),
        ({"uri": "https://example.com/a.jsonl"}, "/uri"),
        ({"uri": f"{INCOMING}/a.jsonl?versionId=3HL4kqtJlcpXroDTDmJ"}, "/uri"),
        ({"uri": f"{INCOMING}/a.csv"}, "/format"),
        ({"name": "a b"}, "/name"),
        ({"format": "csv"}, "/format"),
        ({"nul": "drop"}, "/nul"),
    ],
)
def test_import_from_elsewhere_is_refused_at_its_pointer(
    service: Api, database: FreshDatabase, change: dict[str, Any], pointer: str
) -> None:
    reply = service.post(IMPORT, {"name": "support", "uri": f"{INCOMING}/a.jsonl"} | change)
    assert (reply.status, reply.pointers) == (400, [pointer])
    assert database.look_up("SELECT count(*) FROM scheduler.jobs") == 0


def test_imports_are_listed_newest_first_and_by_state(service: Api) -> None:
    made = [service.post(IMPORT, {"name": "n", "uri": f"{INCOMING}/{n}.jsonl"}).json["id"] for n in range(3)]
    first = service.get("/v1/projects/demo/imports", query="limit=2").json
    second = service.get("/v1/projects/demo/imports", query=f"limit=2&cursor={first['next_cursor']}").json
    assert [one["id"] for one in first["items"] + second["items"]] == made[::-1]
    assert service.get("/v1/projects/demo/imports", query="state=failed").json["items"] == []


def test_unknown_import_is_a_404(service: Api) -> None:
    for reference in ("11111111-1111-1111-1111-111111111111", "x"):
        assert service.get(f"/v1/projects/demo/imports/{reference}").status == 404


def test_evaluators_are_listed_with_their_parameters(service: Api) -> None:
    items = service.get("/v1/evaluators").json["items"]
    names = [item["name"] for item in items]
    assert "exact_match" in names
    assert names == sorted(names)
    assert all(item["params_schema"]["type"] == "object" for item in items)
