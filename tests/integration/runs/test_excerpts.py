"""What a report quotes of its worst records, to whom, and what it does when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from api.runs import read_excerpts
from coordination.datasets import manifest_key, object_key
from coordination.environment import Environment
from coordination.errors import StorageUnavailableError
from coordination.ports.objects import Objects
from coordination.settings import OutgoingSettings
from evalward_local.target_server import TargetServer

if TYPE_CHECKING:
    from integration.conftest import Reply
    from integration.runs.conftest import World

RUNS = "/v1/projects/demo/runs"
HOSTILE = "<img src=x onerror=alert(1)> | `a` [b](javascript:1) @all \u202egnp.exe\x1b[2J\nsecond line"


@pytest.fixture
def environment(make_environments: Callable[..., Environment], endpoint: TargetServer) -> Environment:
    """Return an environment whose project `demo` may call the endpoint."""
    return make_environments(outgoing=OutgoingSettings(allowed_hosts={"demo": [endpoint.host]}))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None, int | None]]:
    """Return what is read of the bucket from now on: key, first byte, end."""
    seen: list[tuple[str, int | None, int | None]] = []
    whole = Objects.read

    def read(self: Objects, key: str, start: int | None = None, end: int | None = None) -> bytes:
        seen.append((key, start, end))
        return whole(self, key, start, end)

    monkeypatch.setattr(Objects, "read", read)
    return seen


def report(world: World, run: str, query: str = "excerpts=true", **options: Any) -> Reply:
    return world.service.get(f"{RUNS}/{run}/report", query=query, **options)


def ask(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"r{number}",
        "input": f"question {number}",
        "output": f"answer {number}",
        "reference": "yes",
        **fields,
    }


def follow(world: World, path: str) -> Any:
    """Get the only item of a page that a report names."""
    address, _, query = path.partition("?")
    (item,) = world.service.get(address, query=query).json["items"]
    return item


def test_worst_records_are_quoted_and_say_where_they_are_whole(world: World) -> None:
    long = ask(3, input="why " * 100, reference=["no", "never"])
    world.publish([ask(0), ask(1, output="yes"), ask(2), long, {"id": "r4", "output": "maybe", "reference": "yes"}])
    run = world.run_to_end(evaluators=[{"name": "exact_match"}, {"name": "latency"}])
    worst = report(world, run).json["worst"]
    assert [one["record"] for one in worst] == ["r0", "r2", "r3", "r4"]
    assert [one["record_no"] for one in worst] == [0, 2, 3, 4]
    first, cut, short = worst[0]["excerpts"], worst[2]["excerpts"], worst[3]["excerpts"]
    assert first["input"] == {"text": "question 0", "is_cut": False}
    assert first["output"] == {"text": "answer 0", "is_cut": False}
    assert first["reference"] == {"text": "yes", "is_cut": False}
    assert first["output_path"] is None
    assert (len(cut["input"]["text"]), cut["input"]["is_cut"]) == (299, True)
    assert cut["reference"]["text"] == "no\nor: never"
    assert short["input"] is None
    for one in worst:
        assert follow(world, one["excerpts"]["record_path"])["id"] == one["record"]


def test_nothing_is_read_of_the_bucket_unless_asked_for(
    world: World, reads: list[tuple[str, int | None, int | None]]
) -> None:
    world.publish([ask(number) for number in range(6)])
    run = world.run_to_end()
    reads.clear()
    plain = report(world, run, "").json
    assert "excerpts" not in plain["worst"][0]
    assert "excerpts_missing" not in plain
    report(world, run, "format=junit&excerpts=true")
    assert reads == []


def test_reads_are_shards_and_not_records(world: World, reads: list[tuple[str, int | None, int | None]]) -> None:
    sha256 = world.publish([ask(number) for number in range(12)], shard_records=4)
    run = world.run_to_end(evaluators=[{"name": "exact_match"}, {"name": "contains"}])
    reads.clear()
    worst = report(world, run).json["worst"]
    assert len(worst) == 20
    assert all(one["excerpts"] for one in worst)
    # The manifest, and three shards for ten records of two metrics.
    assert [key for key, _, _ in reads] == [manifest_key("demo", sha256), *[object_key("demo", sha256)] * 3]


def test_outputs_of_a_target_are_quoted_by_trial(world: World, endpoint: TargetServer) -> None:
    world.publish([{"id": "r0", "input": "q", "output": "of the dataset", "reference": "yes"}])
    run = world.run_to_end(target={"kind": "http", "url": endpoint.url}, trials=2)
    worst = report(world, run).json["worst"]
    assert [one["trial"] for one in worst] == [1, 2]
    for one in worst:
        assert one["excerpts"]["output"] == {"text": "answer to q", "is_cut": False}
        whole = follow(world, one["excerpts"]["output_path"])
        assert (whole["record"], whole["trial"], whole["output"]) == ("r0", one["trial"], "answer to q")


@pytest.mark.parametrize(
    ("output", "text", "is_cut"),
    [
        ('{"b": 1, "a": [true]}', '{"a":[true],"b":1}', False),
        ('[{"role": "assistant", "content": "hello"}]', "hello", False),
        ('"\\u202eevil"', "\N{REPLACEMENT CHARACTER}evil", False),
        ('"' + "a" * 100_000 + '"', "a" * 300, True),
        ("[" + "1," * 100_000 + "1]", ("[" + "1," * 200)[:300], True),
    ],
)
def test_outputs_of_any_shape_and_size_are_quoted(
    world: World, endpoint: TargetServer, output: str, text: str, is_cut: bool
) -> None:
    world.publish([{"id": "r0", "input": "q", "reference": "yes"}])
    run = world.run_to_end(target={"kind": "http", "url": endpoint.url})
    world.database.look("UPDATE evals.run_outputs SET output = %(output)s::json RETURNING record", {"output": output})
    (one,) = report(world, run).json["worst"]
    assert one["excerpts"]["output"] == {"text": text, "is_cut": is_cut}


def test_a_record_without_an_answer_is_quoted_without(world: World, endpoint: TargetServer) -> None:
    world.publish([{"id": "r0", "input": "q", "output": "of the dataset", "reference": "yes"}])
    run = world.run_to_end(target={"kind": "http", "url": f"{endpoint.url}/nowhere?status=400"}, max_errors=5)
    world.database.look("UPDATE evals.run_outputs SET output = NULL, error = 'it failed' RETURNING record")
    (one,) = report(world, run).json["worst"]
    assert one["excerpts"]["input"]["text"] == "q"
    assert (one["excerpts"]["output"], one["excerpts"]["output_path"]) == (None, None)


def test_who_may_not_read_records_gets_the_report_without_them(world: World, make_key: Callable[..., str]) -> None:
    world.publish([ask(0), ask(1)])
    run = world.run_to_end()
    key = make_key({"project": "demo", "permissions": ["runs.read"]})
    reply = report(world, run, key=key)
    assert reply.status == 200
    assert (reply.json["excerpts_missing"]["code"], reply.json["excerpts_missing"]["results"]) == ("not_permitted", 2)
    assert b"question 0" not in reply.content
    assert b"This key may not read records" in report(world, run, "excerpts=true&format=html", key=key).content
    assert b"This key may not read records" in report(world, run, "excerpts=true&format=markdown", key=key).content
    stranger = make_key({"project": "demo", "permissions": ["datasets.read"]})
    assert report(world, run, key=stranger).status == 403


def test_deleting_the_dataset_takes_nothing_from_the_report_but_the_way_to_the_whole(world: World) -> None:
    sha256 = world.publish([ask(0)])
    run = world.run_to_end()
    assert world.service.call("DELETE", f"/v1/projects/demo/datasets/{sha256}").status == 200
    excerpts = report(world, run).json["worst"][0]["excerpts"]
    assert excerpts["input"]["text"] == "question 0"
    assert excerpts["record_path"] is None


def test_report_whose_records_are_gone_says_so(world: World, environment: Environment) -> None:
    sha256 = world.publish([ask(0), ask(1)])
    run = world.run_to_end()
    environment.objects.delete([object_key("demo", sha256)])
    gone = report(world, run).json
    assert gone["metrics"][0]["n"] == 2
    assert gone["excerpts_missing"] == {
        "results": 2, "code": "records_gone", "detail": "The records of this run are no longer in the bucket.",
    }  # fmt: skip
    assert "2 records are not quoted" in report(world, run, "excerpts=true&format=html").content.decode()
    environment.objects.delete([manifest_key("demo", sha256)])
    assert report(world, run).json["excerpts_missing"]["code"] == "records_gone"


def test_report_is_answered_though_the_bucket_is_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish([ask(0)])
    run = world.run_to_end()

    def refuse(*_: Any) -> bytes:
        raise StorageUnavailableError("The object store cannot be reached.", retry_after_seconds=5)

    monkeypatch.setattr(Objects, "read", refuse)
    reply = report(world, run)
    assert (reply.status, reply.json["excerpts_missing"]["code"]) == (200, "storage_unavailable")


def test_what_lies_beyond_the_bound_is_left_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish([ask(0), ask(1, output="yes"), ask(2)], shard_records=1)
    run = world.run_to_end()
    monkeypatch.setattr(read_excerpts, "MAX_BYTES", 100)
    found = report(world, run).json
    assert [one.get("excerpts") is not None for one in found["worst"]] == [True, False]
    assert (found["excerpts_missing"]["code"], found["excerpts_missing"]["results"]) == ("too_large", 1)


def test_a_report_from_before_places_were_noted_says_so(world: World) -> None:
    world.publish([ask(0)])
    run = world.run_to_end()
    world.database.look("UPDATE evals.runs SET report = report #- '{worst,0,record_no}' RETURNING id")
    assert report(world, run).json["excerpts_missing"]["code"] == "place_unknown"


def test_an_unknown_run_and_one_without_a_report_are_problems_as_ever(world: World) -> None:
    world.publish([ask(0)])
    pending = world.create()
    assert report(world, pending).code == "run_not_finished"
    assert report(world, "0198f5a0-0000-7000-8000-000000000000").status == 404
    assert report(world, pending, "excerpts=perhaps").status == 400


def test_hostile_texts_do_nothing_in_any_form(world: World) -> None:
    world.publish([{"id": "r0", "input": HOSTILE, "output": HOSTILE, "reference": [HOSTILE]}, ask(1)])
    run = world.run_to_end(evaluators=[{"name": "contains", "params": {"text": "nowhere"}}])
    page = report(world, run, "excerpts=true&format=html").content.decode()
    text = report(world, run, "excerpts=true&format=markdown").content.decode()
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "- Input: \\<img" in text
    assert "second line" in text
    assert "\nsecond line" not in text
    for form in (page, text):
        assert not set(form) & {"\u202e", "\x1b"}


def test_another_project_sees_nothing(
    world: World, make_project: Callable[..., str], make_key: Callable[..., str]
) -> None:
    world.publish([ask(0)])
    run = world.run_to_end()
    make_project("other")
    key = make_key({"project": "other", "role": "admin"})
    assert report(world, run, key=key).status in (403, 404)
    reply = world.service.get(f"/v1/projects/other/runs/{run}/report", query="excerpts=true", key=key)
    assert reply.status == 404
