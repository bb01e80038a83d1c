from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import boto3
import pytest
from coordination.environment import Environment
from coordination.leases import take_lease
from coordination.queries import load_queries
from run_evaluation import evaluate_shard as evaluation

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.runs.conftest import World

SIX = ["yes", "no", "yes", None, "yes", "no"]
RUNS_SQL = load_queries("runs")


def shard_states(world: World) -> list[str]:
    return [
        row["state"] for row in world.database.look("SELECT state FROM scheduler.policy_run_jobs ORDER BY shard_no")
    ]


def outcome_of_dispatch(world: World) -> Any:
    return world.database.look_up("SELECT outcome FROM scheduler.estate_run_queue")


def test_cancelled_pending_run_is_never_evaluated(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    reply = world.act(run, "cancel")
    assert (reply.status, reply.json["state"], reply.json["error"]) == (200, "cancelled", None)
    assert reply.json["finished_at"] is not None
    assert world.waiting() == []
    world.work("run", run)
    assert (world.read(run)["state"], outcome_of_dispatch(world)) == ("cancelled", "cancelled")
    assert shard_states(world) == []


def test_cancelling_twice_answers_the_same(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    first = world.act(run, "cancel")
    assert world.act(run, "cancel").json == first.json


def test_cancelling_an_ended_run_is_refused(world: World) -> None:
    world.publish_answers(SIX)
    run = world.run_to_end()
    reply = world.act(run, "cancel")
    assert (reply.status, reply.code) == (409, "run_ended")
    assert world.read(run)["state"] == "succeeded"


@pytest.mark.parametrize("action", ["cancel", "resume"])
def test_changing_an_unknown_run_is_not_found(world: World, action: str) -> None:
    assert world.act("00000000-0000-0000-0000-000000000000", action).status == 404
    assert world.act("not-a-uuid", action).status == 404


def test_cancelled_run_keeps_what_it_has_and_drops_the_rest(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    world.work_once()
    world.act(run, "cancel")
    assert shard_states(world) == ["completed", "cancelled", "cancelled"]
    assert [result["record"] for result in world.results(run)] == ["r0", "r1"]
    assert world.waiting() == []


def test_resumed_run_evaluates_only_what_has_no_result(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    world.work_once()
    started_at = world.read(run)["started_at"]
    world.act(run, "cancel")
    world.database.look("UPDATE evals.run_results SET record = record || ' of the first time'")
    reply = world.act(run, "resume")
    assert (reply.status, reply.json["state"], reply.json["finished_at"]) == (202, "pending", None)
    world.work_all()
    ended = world.read(run)
    assert ended["state"] == "succeeded"
    assert ended["started_at"] == started_at
    assert ended["progress"] == {"total": 6, "done": 6, "scored": 5, "skipped": 1, "errors": 0}
    assert [result["record"] for result in world.results(run)] == [
        "r0 of the first time", "r1 of the first time", "r2", "r3", "r4", "r5",
    ]  # fmt: skip
    assert outcome_of_dispatch(world) == "succeeded"
    assert shard_states(world) == ["completed"] * 3


def test_resumed_run_needs_no_shard_rows_of_the_first_time(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    world.work_once()
    world.act(run, "cancel")
    world.database.look("DELETE FROM scheduler.policy_run_jobs")
    world.database.look("DELETE FROM scheduler.estate_run_queue")
    world.act(run, "resume")
    world.work_all()
    assert world.read(run)["progress"]["done"] == 6
    assert world.read(run)["state"] == "succeeded"


def test_run_cancelled_before_it_was_finished_is_finished_when_resumed(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    for _, shard in world.waiting():
        # Completed as by three workers of which the last died before it finished the run.
        world.database.look("UPDATE evals.runs SET shards_total = 4")
        world.work("shard", shard)
    world.database.look("UPDATE evals.runs SET shards_total = 3")
    world.act(run, "cancel")
    world.act(run, "resume")
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    assert len(world.results(run)) == 6


def test_run_in_error_is_resumed_when_its_cause_is_gone(world: World) -> None:
    world.publish_answers(SIX)
    client = boto3.client("s3")
    key = world.database.look_up("SELECT path FROM packs.packs")
    content = client.get_object(Bucket="evalward-test", Key=key)["Body"].read()
    run = world.create()
    world.work_once()
    client.delete_object(Bucket="evalward-test", Key=key)
    world.work_all()
    assert world.read(run)["error"]["code"] == "snapshot_missing"
    world.put(key, content)
    assert world.act(run, "resume").json["error"] is None
    world.work_all()
    assert world.read(run)["state"] == "succeeded"


def test_run_with_too_many_errors_is_not_resumed(world: World) -> None:
    world.publish_answers(["a\0", "b\0", "yes", "yes"])
    run = world.run_to_end(max_errors=1)
    assert world.read(run)["error"]["code"] == "too_many_errors"
    reply = world.act(run, "resume")
    assert (reply.status, reply.code) == (409, "run_not_resumable")
    assert "max_errors" in reply.json["detail"]


@pytest.mark.parametrize("works", [0, 1, 100])
def test_run_that_did_not_stop_is_not_resumed(world: World, works: int) -> None:
    world.publish_answers(SIX)
    run = world.create()
    for _ in range(min(works, len(SIX))):
        if world.waiting():
            world.work_once()
    reply = world.act(run, "resume")
    assert (reply.status, reply.code) == (409, "run_not_resumable")


def test_worker_of_a_cancelled_run_writes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    score = evaluation._score

    def score_while_it_is_cancelled(*arguments: Any) -> Any:
        scores = score(*arguments)
        assert world.act(run, "cancel").status == 200
        return scores

    monkeypatch.setattr(evaluation, "_score", score_while_it_is_cancelled)
    world.work_once()
    assert world.results(run) == []
    assert shard_states(world) == ["cancelled"] * 3
    assert world.waiting() == []


def test_shard_that_is_being_written_is_left_to_its_worker(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    """Cancelling passes over a locked shard instead of waiting for a worker that waits for the run."""
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    (_, shard), *_ = world.waiting()
    params: dict[str, Any] = {"tenant": "demo", "shard_id": UUID(shard)}
    worker = make_environments().database
    with worker.transaction("demo") as writing:
        writing.fetch_one(RUNS_SQL["begin_shard"], params)
        writing.fetch_one(RUNS_SQL["complete_shard"], params)
        assert world.act(run, "cancel").status == 200
    assert shard_states(world) == ["completed", "cancelled", "cancelled"]


def test_worker_that_completes_after_the_cancellation_rolls_back_and_cancels_its_shard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    write = evaluation.write_results

    def write_and_lose_the_run(transaction: Any, *arguments: Any) -> None:
        write(transaction, *arguments)
        transaction.fetch_all("SELECT 1 AS sent")
        # The shard is locked by the worker at this moment, so cancelling leaves it alone.
        assert world.database.look("UPDATE evals.runs SET state = 'cancelled', finished_at = clock_timestamp()") == []

    monkeypatch.setattr(evaluation, "write_results", write_and_lose_the_run)
    (_, shard), *_ = world.waiting()
    world.work("shard", shard)
    assert world.results(run) == []
    assert shard_states(world)[0] == "cancelled"
    assert ("shard", shard) not in world.waiting()


def test_worker_of_the_time_before_cannot_complete_a_resumed_run(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.work_once()
    (_, old_shard), *_ = world.waiting()
    world.act(run, "cancel")
    world.act(run, "resume")
    world.work_once()
    world.work("shard", old_shard)
    assert world.read(run)["progress"]["done"] == 0
    assert old_shard not in [ref for _, ref in world.waiting()]


def test_keyed_cancellation_and_resumption_are_replayed(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create()
    first = world.act(run, "cancel", idempotency_key="c")
    world.act(run, "resume", idempotency_key="r")
    again = world.act(run, "cancel", idempotency_key="c")
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert world.read(run)["state"] == "pending"


def test_changing_a_run_needs_its_permission(world: World, make_key: Callable[..., str]) -> None:
    world.publish_answers(SIX)
    run = world.create()
    viewer = make_key({"project": "demo", "role": "viewer"})
    runner = make_key({"project": "demo", "role": "runner"})
    path = f"/v1/projects/demo/runs/{run}"
    for key, statuses in ((viewer, [403, 403, 403, 403]), (runner, [200, 200, 202, 403])):
        replies = [
            world.service.call("PATCH", path, {"labels": {"a": "b"}}, key=key),
            world.act(run, "cancel", key=key),
            world.act(run, "resume", key=key),
            world.delete(run, key=key),
        ]
        assert [reply.status for reply in replies] == statuses


def label(world: World, run: str, labels: Any) -> Any:
    return world.service.call("PATCH", f"/v1/projects/demo/runs/{run}", {"labels": labels})


def test_labels_are_merged_and_null_takes_one_off(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create(labels={"team": "search", "draft": "yes"})
    reply = label(world, run, {"draft": None, "team": "ranking", "evalsi.keep": "true", "never-there": None})
    assert reply.status == 200
    assert reply.json["labels"] == {"team": "ranking", "evalsi.keep": "true"}
    listed = world.service.get("/v1/projects/demo/runs", query="label=team=ranking").json["items"]
    assert [one["id"] for one in listed] == [run]


def test_a_run_has_at_most_fifty_labels(world: World) -> None:
    world.publish_answers(SIX)
    run = world.create(labels={f"l{at}": "" for at in range(49)})
    assert label(world, run, {"l49": ""}).status == 200
    reply = label(world, run, {"l50": ""})
    assert (reply.status, reply.pointers) == (400, ["/labels"])
    assert len(world.read(run)["labels"]) == 50
    assert label(world, run, {"l0": None, "l50": ""}).status == 200


@pytest.mark.parametrize("labels", [{}, {" ": "a"}, {"a": 1}, {"a": "x" * 201}, None])
def test_labels_that_cannot_be_are_refused(world: World, labels: Any) -> None:
    world.publish_answers(SIX)
    assert label(world, world.create(), labels).status == 400


def test_a_lease_of_a_planner_keeps_another_from_planning_a_resumed_run(world: World, database: FreshDatabase) -> None:
    world.publish_answers(SIX)
    run = world.create()
    world.act(run, "cancel")
    world.act(run, "resume")
    assert take_lease(world.environment.database, f"run:demo:{run}", 60) is not None
    world.work("run", run)
    assert world.read(run)["state"] == "pending"
    database.look(
        "UPDATE coordination.leases SET expires_at = clock_timestamp() - interval '1 s' WHERE owner IS NOT NULL"
    )
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
