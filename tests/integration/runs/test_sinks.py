from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import boto3
import coordination.exported_results
import coordination.sink_attempts
import delivery.export_run
import delivery.handler
import orjson
import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import StorageUnavailableError
from coordination.ports.event_bus import EventBus, EventNotTakenError
from delivery.export_run import export_run

if TYPE_CHECKING:
    from integration.runs.conftest import World

BUCKET = "evalward-test"
ANSWERS = ["yes", "no", "yes", None, "yes"]
S3 = {"kind": "s3", "prefix": "exports/demo/nightly/"}
WORKERS = ("run", "shard", "finish")


class Context:
    """Lambda's context of the delivery function."""

    def __init__(self, seconds: float = 50.0) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


class DiedError(BaseException):
    """The environment was killed."""


class RecordedBus(EventBus):
    """A bus that keeps what was put on it, or takes nothing."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, Any]]] = []
        self.is_down = False

    def put(self, detail_type: str, detail: Mapping[str, Any], at: datetime) -> None:
        if self.is_down:
            raise EventNotTakenError("ThrottlingException")
        assert at.tzinfo is not None
        self.taken.append((detail_type, dict(detail)))


def finish(world: World, *sinks: Mapping[str, Any], **fields: Any) -> str:
    """Run to the end, whatever waits for the delivery function then."""
    world.publish_answers(ANSWERS)
    run = world.create(sinks=list(sinks), **fields)
    while world.waiting()[0][0] in WORKERS:
        world.work_once()
        if not world.waiting():
            break
    return run


def export(world: World, environment: Environment | None = None, seconds: float = 50.0) -> None:
    """Bring every sink message there is to the delivery function."""
    for kind, ref_id in world.waiting():
        assert kind == "sink"
        export_run(environment or world.environment, "demo", ref_id, Deadline.of_invocation(Context(seconds)))


def read_objects() -> dict[str, bytes]:
    client = boto3.client("s3")
    listed = client.list_objects_v2(Bucket=BUCKET, Prefix="exports/").get("Contents", [])
    return {
        one["Key"]: client.get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read() for one in listed if "Key" in one
    }


def sinks_of(world: World, run: str) -> list[tuple[str, int, str | None]]:
    return [(sink["state"], sink["attempts"], sink["error"]) for sink in world.read(run)["sinks"]]


def jobs(world: World) -> list[str]:
    rows = world.database.look("SELECT state FROM scheduler.jobs WHERE kind = 'sink_export' ORDER BY id")
    return [row["state"] for row in rows]


def leftovers(world: World) -> list[Any]:
    return world.waiting() + world.database.look("SELECT name FROM coordination.leases WHERE name LIKE 'sink:%%'")


def test_results_and_report_are_objects_below_the_prefix(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination.exported_results, "_PAGE_ROWS", 2)
    run = finish(world, S3)
    assert sinks_of(world, run) == [("queued", 0, None)]
    assert jobs(world) == ["queued"]

    export(world)

    objects = read_objects()
    folder = f"exports/demo/nightly/{run}"
    assert set(objects) == {f"{folder}/results.jsonl", f"{folder}/report.json"}
    lines = objects[f"{folder}/results.jsonl"].splitlines()
    assert [orjson.loads(line) for line in lines] == world.results(run)
    assert len(lines) == len(ANSWERS)
    report = orjson.loads(objects[f"{folder}/report.json"])
    assert report["run"] == run
    assert sinks_of(world, run) == [("succeeded", 1, None)]
    assert jobs(world) == ["succeeded"]
    assert leftovers(world) == []


def test_run_shows_its_sinks_in_their_order(world: World) -> None:
    world.publish_answers(ANSWERS)
    run = world.create(sinks=[{"kind": "eventbridge"}, S3])
    waiting = {"state": "waiting", "attempts": 0, "error": None, "external_id": None, "completed_at": None}
    nowhere = {"prefix": None, "format": None, "endpoint": None, "experiment": None}
    expected = [
        nowhere | {"kind": "eventbridge"} | waiting,
        nowhere | {"kind": "s3", "prefix": "exports/demo/nightly/", "format": "jsonl"} | waiting,
    ]
    assert world.read(run)["sinks"] == expected
    assert world.service.get("/v1/projects/demo/runs").json["items"][0]["sinks"] == expected


@pytest.mark.parametrize(
    ("sink", "pointer"),
    [
        ({"kind": "s3", "prefix": "exports/other/x"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo/../other/"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo/a//b"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo/%2e%2e/"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "datasets/demo/"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "/exports/demo/"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo/ä"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "s3://other/exports/demo/"}, "/sinks/0/prefix"),
        ({"kind": "s3", "prefix": "exports/demo/", "format": "csv"}, "/sinks/0/format"),
        ({"kind": "s3"}, "/sinks/0/prefix"),
        ({"kind": "eventbridge", "bus": "mine"}, "/sinks/0/bus"),
        ({"kind": "elsewhere"}, "/sinks/0"),
        ({"kind": "mlflow", "endpoint": "https://example.com"}, "/sinks/0/experiment"),
        ({"kind": "mlflow", "endpoint": "https://127.0.0.1:9", "experiment": "e"}, "/sinks/0/endpoint"),
        ({"kind": "mlflow", "endpoint": "ftp://example.com", "experiment": "e"}, "/sinks/0/endpoint"),
    ],
)
def test_sink_that_cannot_be_is_refused_at_its_pointer(world: World, sink: dict[str, Any], pointer: str) -> None:
    world.publish_answers(ANSWERS)
    body = {"name": "n", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}], "sinks": [sink]}
    reply = world.service.post("/v1/projects/demo/runs", body)
    assert (reply.status, reply.pointers) == (400, [pointer])
    assert world.database.look("SELECT id FROM evals.runs") == []


def test_attempt_that_died_halfway_is_repeated_and_changes_no_byte(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finish(world, S3)
    put_once = coordination.exported_results.put_once

    def put_and_die(*arguments: Any) -> None:
        put_once(*arguments)
        raise DiedError

    def keep(*_arguments: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(coordination.exported_results, "put_once", put_and_die)
        patch.setattr(coordination.sink_attempts, "drop_lease", keep)
        with pytest.raises(DiedError):
            export(world)
    before = read_objects()
    assert len(before) == 1
    export(world)
    # Its lease is live: somebody may be at it.
    assert sinks_of(world, run) == [("queued", 1, None)]
    world.database.look("UPDATE coordination.leases SET expires_at = clock_timestamp() WHERE owner IS NOT NULL")

    export(world)

    assert sinks_of(world, run) == [("succeeded", 2, None)]
    after = read_objects()
    assert len(after) == 2
    assert before.items() <= after.items()


def test_another_object_in_its_place_is_left_as_it_is(world: World) -> None:
    run = finish(world, S3)
    key = f"exports/demo/nightly/{run}/results.jsonl"
    world.put(key, b"mine")
    export(world)
    assert sinks_of(world, run) == [("failed", 1, f"there is another object at {key}; it was left as it is")]
    assert read_objects() == {key: b"mine"}
    assert jobs(world) == ["failed"]
    assert leftovers(world) == []


def test_bucket_that_cannot_be_reached_is_tried_again_six_times(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finish(world, S3)

    def refuse(*_arguments: object) -> bool:
        raise StorageUnavailableError("The object store cannot be reached.")

    monkeypatch.setattr(world.environment.objects, "put", refuse)
    for attempts, seconds in enumerate((5, 30, 180, 900, 3600), start=1):
        export(world)
        assert sinks_of(world, run) == [("queued", attempts, "The object store cannot be reached.")]
        wait = "SELECT round(extract(epoch FROM due_at - clock_timestamp()))::int FROM coordination.wake_ups"
        assert world.database.look_up(wait) in (seconds, seconds - 1)
    export(world)
    assert sinks_of(world, run) == [("failed", 6, "The object store cannot be reached.")]
    assert jobs(world) == ["failed"]
    assert leftovers(world) == []


def test_too_little_time_is_an_attempt_and_writes_nothing(world: World) -> None:
    run = finish(world, S3)
    export(world, seconds=10.0)
    ((state, attempts, error),) = sinks_of(world, run)
    assert (state, attempts) == ("queued", 1)
    assert error is not None
    assert read_objects() == {}
    export(world)
    assert sinks_of(world, run)[0][:2] == ("succeeded", 2)


def test_prefix_that_is_no_longer_right_is_not_written_to(world: World) -> None:
    run = finish(world, S3)
    world.database.look("""UPDATE evals.run_sinks SET config = '{"kind": "s3", "prefix": "datasets/demo/"}'""")
    export(world)
    assert sinks_of(world, run) == [("failed", 1, "the prefix must begin with exports/demo/")]


@pytest.mark.parametrize("minimum", [0.0, 1.0])
def test_event_says_how_the_run_ended(world: World, minimum: float) -> None:
    bus = RecordedBus()
    environment = replace(world.environment, event_bus=bus)
    gates = [{"metric": "exact_match", "stat": "mean", "min": minimum}]
    run = finish(world, {"kind": "eventbridge"}, gates=gates)
    export(world, environment)
    ((detail_type, detail),) = bus.taken
    shown = world.read(run)
    assert detail_type == "run.finished"
    assert (detail["project"], detail["run"], detail["state"]) == ("demo", run, shown["state"])
    assert detail["gates"] == shown["gates"]
    assert detail["links"]["report"] == f"/v1/projects/demo/runs/{run}/report"
    assert sinks_of(world, run) == [("succeeded", 1, None)]


def test_bus_that_takes_nothing_is_asked_again(world: World) -> None:
    bus = RecordedBus()
    environment = replace(world.environment, event_bus=bus)
    run = finish(world, {"kind": "eventbridge"})
    bus.is_down = True
    export(world, environment)
    assert sinks_of(world, run) == [("queued", 1, "EventBridge did not take the event (ThrottlingException)")]
    bus.is_down = False
    export(world, environment)
    assert sinks_of(world, run) == [("succeeded", 2, None)]
    assert len(bus.taken) == 1


def test_message_that_comes_twice_or_for_nothing_changes_nothing(world: World) -> None:
    finish(world, S3)
    messages = world.waiting()
    export(world)
    before = read_objects()
    for ref_id in (messages[0][1], "00000000-0000-0000-0000-000000000000"):
        export_run(world.environment, "demo", ref_id, Deadline.of_invocation(Context()))
    assert read_objects() == before
    assert jobs(world) == ["succeeded"]
    assert leftovers(world) == []


def test_run_that_is_cancelled_has_nothing_to_export(world: World) -> None:
    world.publish_answers(ANSWERS)
    run = world.create(sinks=[S3])
    assert world.act(run, "cancel").status == 200
    assert sinks_of(world, run) == [("waiting", 0, None)]
    assert leftovers(world) == []


def test_deleted_run_takes_its_sinks_along_and_leaves_what_was_exported(world: World) -> None:
    run = finish(world, S3, {"kind": "s3", "prefix": "exports/demo/again"})
    first = world.waiting()[0]
    export_run(world.environment, "demo", first[1], Deadline.of_invocation(Context()))
    objects = read_objects()
    second = world.waiting()[0]
    assert world.service.call("DELETE", f"/v1/projects/demo/runs/{run}").status == 204
    export_run(world.environment, "demo", second[1], Deadline.of_invocation(Context()))
    assert read_objects() == objects
    assert sorted(jobs(world)) == ["canceled", "succeeded"]
    assert world.database.look("SELECT id FROM evals.run_sinks") == []
    assert leftovers(world) == []


def test_run_deleted_while_it_is_read_is_not_exported_in_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finish(world, S3)
    write_results = delivery.export_run._write_results

    def delete_and_write(*arguments: Any) -> None:
        assert world.service.call("DELETE", f"/v1/projects/demo/runs/{run}").status == 204
        write_results(*arguments)

    monkeypatch.setattr(delivery.export_run, "_write_results", delete_and_write)
    export(world)
    assert read_objects() == {}
    assert leftovers(world) == []


def test_queue_brings_sinks_to_the_function(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finish(world, S3)
    seen: list[tuple[Any, ...]] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments)

    load: Callable[[], Environment] = lambda: world.environment  # noqa: E731
    monkeypatch.setattr(delivery.handler, "load_environment", load)
    monkeypatch.setattr(delivery.handler, "export_run", note)
    ((_, ref_id),) = world.waiting()
    delivery.handler._act({"kind": "sink", "project": "demo", "ref_id": ref_id}, Deadline(0.0))
    assert seen == [(world.environment, "demo", ref_id, Deadline(0.0))]
    assert sinks_of(world, run) == [("queued", 0, None)]
