from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import boto3
import pytest
from api.runs.change_run import resume_run
from api.runs.delete_run import delete_run
from coordination.access import Principal
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import NotFoundError, RunActiveError
from coordination.failures import record_failure
from coordination.leases import take_lease
from coordination.queries import load_queries
from coordination.run_deletion import OWNED_ROWS
from delivery.export_run import export_run

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.runs.conftest import World

SOMEBODY = Principal("key:1", "test", [])


class Context:
    """Lambda's context of the delivery function."""

    def get_remaining_time_in_millis(self) -> int:
        return 50_000


def list_objects() -> list[str]:
    listing: Any = boto3.client("s3").list_objects_v2(Bucket="evalward-test")
    return [entry["Key"] for entry in listing["Contents"]]


def test_deletion_leaves_only_a_tombstone_and_what_the_run_does_not_own(world: World) -> None:
    world.publish_answers(["yes", "no", "yes"])
    kept = world.run_to_end(labels={"team": "search"})
    before = world.tables_that_mention(kept)
    objects = list_objects()
    run = world.run_to_end(labels={"team": "search"})
    shards = [row["id"] for row in world.database.look(
        "SELECT id FROM scheduler.policy_run_jobs WHERE run_id = %(run)s", {"run": run})]  # fmt: skip
    assert set(world.tables_that_mention(run)) == {
        "coordination.leases", "evals.run_labels", "evals.run_results", "evals.run_snapshots", "evals.runs",
        "scheduler.estate_run_queue", "scheduler.policy_run_jobs",
    }  # fmt: skip
    assert world.delete(run).status == 204
    assert world.tables_that_mention(run) == {"evals.run_tombstones": 1}
    assert [world.tables_that_mention(str(shard)) for shard in shards] == [{}, {}]
    assert world.tables_that_mention(kept) == before
    assert list_objects() == objects
    (tombstone,) = world.database.look(
        "SELECT tenant_id, labels, deleted_by LIKE 'key:%%' AS is_key, expires_at - deleted_at = interval '24 h'"
        " AS is_a_day FROM evals.run_tombstones WHERE true"
    )
    assert tombstone["labels"] == {"team": "search"}
    assert tombstone["tenant_id"] == "demo"
    assert tombstone["is_key"]


def test_run_with_everything_that_a_run_can_have_leaves_its_exports_and_the_mechanics_of_its_jobs(world: World) -> None:
    world.database.look(
        "INSERT INTO evals.webhooks (tenant_id, id, url, events, created_by)"
        " VALUES ('demo', 'hook', 'https://example.com', '{run.finished,run.gate_failed}', 'test')"
    )
    records = [
        {"id": f"r{n}", "output": "a\0" if n == 2 else "no", "reference": "yes", "metadata": {"n": n}} for n in range(3)
    ]
    world.publish(records)
    sinks = [{"kind": "s3", "prefix": "exports/demo/kept"}, {"kind": "eventbridge"}]
    gates = [{"metric": "exact_match", "stat": "mean", "min": 1.0}]
    run = world.create(labels={"team": "search"}, slices=["n"], sinks=sinks, gates=gates)
    while [kind for kind, _ in world.waiting() if kind in ("run", "shard", "finish")]:
        world.work_once()
    # What a run with a target has beside these, and a failure that names the run.
    world.database.look(
        "INSERT INTO evals.run_outputs (tenant_id, run_id, record_no, trial, record, output, attempts)"
        " VALUES ('demo', %(run)s, 0, 1, 'r0', '1', 1)",
        {"run": run},
    )
    with world.environment.database.transaction("demo") as transaction:
        record_failure(transaction, "sink", "s3:exports/demo/kept/", f"there is another object at {run}/report.json")
    (sink,) = world.database.look("SELECT id FROM evals.run_sinks WHERE sink_no = 0")
    export_run(world.environment, "demo", str(sink["id"]), Deadline.of_invocation(Context()))  # pyright: ignore[reportArgumentType]
    owned = {
        "coordination.leases", "coordination.wake_ups", "evals.run_labels", "evals.run_outputs", "evals.run_results",
        "evals.run_sinks", "evals.run_slices", "evals.run_snapshots", "evals.runs", "evals.webhook_deliveries",
        "scheduler.estate_run_queue", "scheduler.policy_run_jobs",
    }  # fmt: skip
    assert owned - set(world.tables_that_mention(run)) <= {"coordination.wake_ups"}

    assert world.delete(run).status == 204

    # Jobs are swept by their age; what they were about is named and no more.
    assert set(world.tables_that_mention(run)) == {"evals.run_tombstones", "scheduler.jobs"}
    assert world.database.look("SELECT ref_id FROM coordination.wake_ups") == []
    assert {row["state"] for row in world.database.look("SELECT state FROM scheduler.jobs")} <= {
        "canceled",
        "succeeded",
    }
    by_prefix = Counter(key.partition("/")[0] for key in list_objects())
    assert by_prefix == {"datasets": 2, "exports": 2}


def test_every_table_with_rows_of_runs_is_emptied_by_deletion(database: FreshDatabase) -> None:
    """Who adds a table with a run_id adds a statement to OWNED_ROWS."""
    tables = {
        row["name"]
        for row in database.look(
            "SELECT a.attrelid::regclass::text AS name FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
            " WHERE a.attname = 'run_id' AND c.relkind IN ('r', 'p') AND NOT a.attisdropped"
        )
    }
    texts = [load_queries("runs")[name].as_string() for name in OWNED_ROWS]
    emptied = {match[1] for text in texts for match in re.finditer(r"^ *DELETE FROM (\S+)", text, re.MULTILINE)}
    assert tables - emptied == {"evals.run_tombstones"}


def test_deleted_run_is_gone_at_once(world: World) -> None:
    world.publish_answers(["yes"])
    run = world.run_to_end()
    world.delete(run)
    for part in ("", "/results", "/report"):
        assert world.service.get(f"/v1/projects/demo/runs/{run}{part}").status == 404
    assert world.service.get("/v1/projects/demo/runs").json["items"] == []
    assert world.act(run, "resume").status == 404


def test_deletion_can_be_repeated_for_a_day_by_who_may_delete(world: World, make_key: Callable[..., str]) -> None:
    world.publish_answers(["yes"])
    run = world.run_to_end()
    admin = make_key({"project": "demo", "role": "admin"})
    editor = make_key({"project": "demo", "role": "editor"})
    assert world.delete(run).status == 204
    assert world.delete(run, key=admin).status == 204
    assert world.delete(run, key=editor).status == 403
    expires_at = world.database.look_up("SELECT expires_at FROM evals.run_tombstones")
    assert world.delete(run).status == 204
    assert world.database.look_up("SELECT expires_at FROM evals.run_tombstones") == expires_at
    world.database.look(
        "UPDATE evals.run_tombstones SET deleted_at = deleted_at - interval '25 h',"
        " expires_at = expires_at - interval '25 h'"
    )
    assert world.delete(run, key=admin).status == 404


def test_unknown_run_is_not_deleted(world: World) -> None:
    assert world.delete("00000000-0000-0000-0000-000000000000").status == 404


def test_tombstone_of_one_project_says_nothing_in_another(world: World, make_project: Callable[..., str]) -> None:
    world.publish_answers(["yes"])
    run = world.run_to_end()
    make_project("other")
    world.delete(run)
    assert world.service.call("DELETE", f"/v1/projects/other/runs/{run}").status == 404


@pytest.mark.parametrize("works", [0, 1])
def test_active_run_is_not_deleted(world: World, works: int) -> None:
    world.publish_answers(["yes"])
    run = world.create()
    for _ in range(works):
        world.work_once()
    reply = world.delete(run)
    assert (reply.status, reply.code) == (409, "run_active")
    assert world.read(run)["id"] == run


def test_leased_shard_keeps_its_cancelled_run(world: World) -> None:
    world.publish_answers(["yes"])
    run = world.create()
    world.work_once()
    ((_, shard),) = world.waiting()
    take_lease(world.environment.database, f"shard:demo:{shard}", 60)
    world.act(run, "cancel")
    reply = world.delete(run)
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (409, "run_active", "5")
    world.database.look(
        "UPDATE coordination.leases SET expires_at = clock_timestamp() - interval '1 s' WHERE owner IS NOT NULL"
    )
    assert world.delete(run).status == 204
    world.work("shard", shard)
    assert set(world.tables_that_mention(shard)) <= {"coordination.leases"}


def test_deletion_gives_the_quota_back_at_once(world: World) -> None:
    world.publish_answers(["yes"])
    world.database.look("UPDATE coordination.projects SET max_stored_runs = 1")
    run = world.run_to_end()
    body = {"name": "n", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
    assert world.service.post("/v1/projects/demo/runs", body).code == "run_quota_exceeded"
    world.delete(run)
    assert world.service.post("/v1/projects/demo/runs", body).status == 202


def test_keyed_creation_is_replayed_after_its_run_was_deleted(world: World) -> None:
    world.publish_answers(["yes"])
    body = {"name": "n", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
    first = world.service.post("/v1/projects/demo/runs", body, idempotency_key="k")
    world.work_all()
    world.delete(first.json["id"], idempotency_key="d")
    again = world.service.post("/v1/projects/demo/runs", body, idempotency_key="k")
    assert (again.status, again.content) == (202, first.content)
    gone = world.service.get(f"/v1/projects/demo/runs/{first.json['id']}")
    assert gone.status == 404
    assert "deleted" in gone.json["detail"]
    assert world.delete(first.json["id"], idempotency_key="d").headers["idempotency-replayed"] == "true"


def test_resumption_that_holds_the_run_wins_over_a_deletion(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    world.publish_answers(["yes"])
    run = UUID(world.create())
    world.act(str(run), "cancel")
    deleting = make_environments().database

    def delete() -> None:
        with deleting.transaction("demo") as transaction:
            delete_run(transaction, run, SOMEBODY)

    with ThreadPoolExecutor(1) as threads:
        with world.environment.database.transaction("demo") as transaction:
            resume_run(transaction, run)
            deletion = threads.submit(delete)
            world.wait_until_blocked("evals.runs")
        with pytest.raises(RunActiveError):
            deletion.result(30)
    world.work_all()
    assert world.read(str(run))["state"] == "succeeded"


def test_deletion_that_holds_the_run_wins_over_a_resumption(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    world.publish_answers(["yes"])
    run = UUID(world.create())
    world.act(str(run), "cancel")
    resuming = make_environments().database

    def resume() -> None:
        with resuming.transaction("demo") as transaction:
            resume_run(transaction, run)

    with ThreadPoolExecutor(1) as threads:
        with world.environment.database.transaction("demo") as transaction:
            delete_run(transaction, run, SOMEBODY)
            transaction.fetch_one("SELECT 1 AS sent")
            resumption = threads.submit(resume)
            world.wait_until_blocked("evals.runs")
        with pytest.raises(NotFoundError):
            resumption.result(30)
    assert world.tables_that_mention(str(run)) == {"evals.run_tombstones": 1}


def test_two_deletions_at_once_both_succeed_and_delete_once(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    world.publish_answers(["yes"])
    run = UUID(world.run_to_end())
    second = make_environments().database

    def delete() -> None:
        with second.transaction("demo") as transaction:
            delete_run(transaction, run, SOMEBODY)

    with ThreadPoolExecutor(1) as threads:
        with world.environment.database.transaction("demo") as transaction:
            delete_run(transaction, run, SOMEBODY)
            transaction.fetch_one("SELECT 1 AS sent")
            other = threads.submit(delete)
            world.wait_until_blocked("coordination.leases")
        other.result(30)
    assert world.database.look_up("SELECT count(*) FROM evals.run_tombstones") == 1


def test_deletion_that_is_rolled_back_changes_nothing(world: World) -> None:
    world.publish_answers(["yes"])
    run = world.run_to_end()
    before = world.tables_that_mention(run)
    with suppress(ZeroDivisionError), world.environment.database.transaction("demo") as transaction:
        delete_run(transaction, UUID(run), SOMEBODY)
        transaction.fetch_one("SELECT 1 AS sent")
        raise ZeroDivisionError
    assert world.tables_that_mention(run) == before


def test_deletion_of_one_tenant_does_not_reach_a_run_of_another(
    world: World, make_project: Callable[..., str], environment: Environment
) -> None:
    world.publish_answers(["yes"])
    run: Any = world.run_to_end()
    make_project("other")
    with pytest.raises(NotFoundError), environment.database.transaction("other") as transaction:
        delete_run(transaction, UUID(run), SOMEBODY)
    assert world.read(run)["id"] == run
