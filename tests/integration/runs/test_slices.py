from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from coordination.errors import DatabaseUnavailableError

if TYPE_CHECKING:
    from integration.runs.conftest import World

TEXTS = [("de", True), ("de", False), ("en", True), ("de", True), ("en", None), (None, True)]


def make_records(**metadata: Any) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    for number, (language, is_right) in enumerate(TEXTS):
        own = {**({"language": language} if language else {}), **metadata}
        record: dict[str, Any] = {"id": f"r{number}", "reference": "yes"}
        record |= {"output": "yes" if is_right else "no"} if is_right is not None else {}
        records.append(record | ({"metadata": own} if own else {}))
    return records


def read_slices(world: World, run: str) -> list[dict[str, Any]]:
    reply = world.service.get(f"/v1/projects/demo/runs/{run}/report")
    assert reply.status == 200
    return reply.json["slices"]


def summarize(slices: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (part["key"], part["value"], part["records"], metric["id"], metric["n"], metric["mean"], metric["skipped"])
        for part in slices
        for metric in part["metrics"]
    ]


def test_report_is_sliced_by_the_values_of_a_key(world: World) -> None:
    world.publish(make_records())
    run = world.run_to_end(evaluators=[{"name": "exact_match"}, {"name": "length"}], slices=["language"])
    assert world.read(run)["slices"] == ["language"]
    slices = read_slices(world, run)
    assert summarize(slices) == [
        ("language", "de", 3, "exact_match", 3, 2 / 3, 0),
        ("language", "de", 3, "length", 3, 8 / 3, 0),
        ("language", "en", 2, "exact_match", 1, 1.0, 1),
        ("language", "en", 2, "length", 1, 3.0, 1),
    ]
    # The same statistics as those of the whole: one of one is Wilson's, and there is no Student of one.
    (english, length) = slices[1]["metrics"]
    assert (english["ci_high"], english["coverage"]) == (1.0, 0.5)
    assert (length["ci_low"], length["std"]) == (None, None)


def test_keys_come_in_the_order_they_were_asked_for_and_values_by_their_frequency(world: World) -> None:
    records = make_records()
    for number, record in enumerate(records):
        record.setdefault("metadata", {})["tier"] = [1, 2, 2.5, True, False, 2][number]
    world.publish(records)
    run = world.run_to_end(slices=["tier", "language"])
    seen = [(part["key"], part["value"], part["records"]) for part in read_slices(world, run)]
    assert seen[0] == ("tier", 2, 2)
    assert sorted(map(str, seen[1:5])) == sorted(
        map(str, [("tier", 1, 1), ("tier", 2.5, 1), ("tier", True, 1), ("tier", False, 1)])
    )
    assert seen[5:] == [("language", "de", 3), ("language", "en", 2)]


@pytest.mark.parametrize("value", [None, [1], {"a": 1}])
def test_what_names_nothing_makes_no_slice(world: World, value: Any) -> None:
    world.publish(make_records(odd=value))
    run = world.run_to_end(slices=["odd", "absent"])
    assert read_slices(world, run) == []
    assert world.read(run)["state"] == "succeeded"


def test_long_and_awkward_values_are_cut_and_kept(world: World) -> None:
    world.publish(make_records(text="ä" * 500, quote='a "b" \\ {c},NULL'))
    run = world.run_to_end(slices=["text", "quote"])
    assert [part["value"] for part in read_slices(world, run)] == ["ä" * 100, 'a "b" \\ {c},NULL']


def test_twenty_most_frequent_values_are_shown(world: World) -> None:
    records = [{"id": f"r{n}", "output": "x", "reference": "x", "metadata": {"user": n // 2}} for n in range(50)]
    world.publish(records, shard_records=10)
    run = world.run_to_end(slices=["user"])
    slices = read_slices(world, run)
    assert len(slices) == 20
    assert {part["records"] for part in slices} == {2}


def test_slices_decide_no_score_and_are_no_part_of_the_config(world: World) -> None:
    world.publish(make_records())
    plain, sliced = world.run_to_end(), world.run_to_end(slices=["language"])
    digests = {
        world.service.get(f"/v1/projects/demo/runs/{run}/report").json["config_sha256"] for run in (plain, sliced)
    }
    assert len(digests) == 1
    assert world.results(plain) == world.results(sliced)
    assert read_slices(world, plain) == []


def test_shard_that_is_begun_twice_writes_its_values_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(make_records())
    run = world.create(slices=["language"])
    world.work_once()

    class DiedError(BaseException):
        pass

    def die(*_arguments: object) -> None:
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr("run_evaluation.evaluate_shard._score", die)
        with pytest.raises(DiedError):
            world.work_once()
    assert world.database.look_up("SELECT count(*) FROM evals.run_slices") > 0
    world.work_all()
    assert summarize(read_slices(world, run))[0][:5] == ("language", "de", 3, "exact_match", 3)


def test_deleted_run_takes_its_slices_along(world: World) -> None:
    world.publish(make_records())
    run = world.run_to_end(slices=["language"])
    assert world.delete(run).status == 204
    assert world.database.look("SELECT run_id FROM evals.run_slices") == []


def test_run_too_large_to_be_sliced_ends_without_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish(make_records())
    run = world.create(slices=["language"])
    monkeypatch.setattr("coordination.database.Transaction.fetch_all", _fetch_all_but_slices)
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    assert read_slices(world, run) == []


def _fetch_all_but_slices(self: Any, query: Any, params: Any = None) -> Any:
    if "run_slices s" in str(query.as_string() if hasattr(query, "as_string") else query):
        raise DatabaseUnavailableError("The database did not answer in time.")
    return self.submit(query, params).fetchall()


@pytest.mark.parametrize(
    ("slices", "pointer"),
    [(["a", "a"], "/slices/1"), ([""], "/slices/0"), (["x" * 101], "/slices/0"), (list("abcdef"), "/slices")],
)
def test_slices_that_cannot_be_are_refused(world: World, slices: list[str], pointer: str) -> None:
    world.publish(make_records())
    body = {"name": "n", "dataset": {"name": "questions"}, "evaluators": [{"name": "length"}], "slices": slices}
    reply = world.service.post("/v1/projects/demo/runs", body)
    assert (reply.status, reply.pointers) == (400, [pointer])


@pytest.mark.parametrize("form", ["html", "markdown", "junit"])
def test_every_form_of_the_report_has_the_slices(world: World, form: str) -> None:
    world.publish(make_records())
    run = world.run_to_end(slices=["language"])
    text = world.service.get(f"/v1/projects/demo/runs/{run}/report", query=f"format={form}").content.decode()
    assert "language" in text
    assert orjson.dumps(read_slices(world, run)[0]["value"]).decode().strip('"') in text
