from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coordination.clock import Deadline
from coordination.errors import StorageUnavailableError
from coordination.failures import record_failure, resolve_failures
from delivery.export_run import export_run

if TYPE_CHECKING:
    from integration.runs.conftest import World

FAILURES = "/v1/projects/demo/failures"
S3 = {"kind": "s3", "prefix": "exports/demo/nightly"}


class Context:
    """Lambda's context of the delivery function."""

    def get_remaining_time_in_millis(self) -> int:
        return 50_000


def list_failures(world: World, query: str = "") -> list[Any]:
    reply = world.service.get(FAILURES, query=query)
    assert reply.status == 200, reply.json
    return reply.json["items"]


def fail(world: World, error: str, *, work: str = "hook", times: int = 1) -> None:
    for _ in range(times):
        with world.environment.database.transaction("demo") as transaction:
            record_failure(transaction, "webhook", work, error)


def finish(world: World, **fields: Any) -> str:
    run = world.create(**fields)
    while [kind for kind, _ in world.waiting() if kind != "sink"]:
        world.work_once()
    return run


def create(world: World, name: str, **fields: Any) -> str:
    body = {"name": name, "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}], **fields}
    reply = world.service.post("/v1/projects/demo/runs", body)
    assert reply.status == 202, reply.json
    return reply.json["id"]


def export(world: World) -> None:
    for kind, ref_id in world.waiting():
        assert kind == "sink"
        export_run(world.environment, "demo", ref_id, Deadline.of_invocation(Context()))


def test_sink_that_fails_is_one_failure_until_one_of_its_kind_succeeds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish_answers(["yes"])
    finish(world, sinks=[S3])

    def refuse(*_arguments: object) -> bool:
        raise StorageUnavailableError("The object store cannot be reached.")

    with monkeypatch.context() as patch:
        patch.setattr(world.environment.objects, "put", refuse)
        export(world)
        export(world)
    (failure,) = list_failures(world)
    assert (failure["kind"], failure["work"]) == ("sink", "s3:exports/demo/nightly/")
    assert (failure["state"], failure["occurrence_count"]) == ("unresolved", 2)
    assert failure["error"] == failure["sample"] == "The object store cannot be reached."
    assert failure["resolved_at"] is None
    assert failure["project"] == "demo"

    # Another run, the same destination.
    world.database.look("DELETE FROM coordination.wake_ups")
    finish(world, sinks=[{"kind": "s3", "prefix": "exports/demo/nightly/"}])
    export(world)

    (failure,) = list_failures(world)
    assert (failure["state"], failure["resolved_by"], failure["occurrence_count"]) == ("resolved", "work", 2)


def test_shard_that_never_ends_is_a_failure_that_the_next_run_of_that_name_resolves(world: World) -> None:
    world.publish_answers(["yes"])
    create(world, "nightly")
    world.work_once()
    world.database.look("UPDATE scheduler.policy_run_jobs SET attempts = 5")
    world.work_all()
    (failure,) = list_failures(world, "kind=shard")
    assert (failure["work"], failure["state"]) == ("run:nightly", "unresolved")
    assert failure["error"].startswith("attempts_exhausted: Shard <n> was tried <n> times")
    create(world, "another")
    world.work_all()
    assert list_failures(world)[0]["state"] == "unresolved"
    create(world, "nightly")
    world.work_all()
    assert list_failures(world)[0]["state"] == "resolved"


def test_run_that_ends_in_error_is_a_failure_and_no_id_stands_in_it(world: World) -> None:
    world.publish_answers(["a\0"])
    runs = [create(world, "nightly", max_errors=0) for _ in range(2)]
    world.work_all()
    (failure,) = list_failures(world, "kind=run&state=unresolved")
    assert failure["occurrence_count"] == 2
    assert failure["error"].startswith("too_many_errors: <n> results are errors")
    for run in runs:
        assert "scheduler.failure_signatures" not in world.tables_that_mention(run)


def test_cancelled_run_is_no_failure(world: World) -> None:
    world.publish_answers(["yes"])
    assert world.act(world.create(), "cancel").status == 200
    assert list_failures(world) == []


def test_same_error_is_counted_and_another_is_a_row_of_its_own(world: World) -> None:
    fail(world, "row 17 is wrong")
    fail(world, "row 18 is wrong", times=2)
    fail(world, "row 18 is gone")
    fail(world, "row 18 is wrong", work="other")
    counts = {(one["work"], one["error"]): one["occurrence_count"] for one in list_failures(world)}
    assert counts == {("hook", "row <n> is wrong"): 3, ("hook", "row <n> is gone"): 1, ("other", "row <n> is wrong"): 1}
    assert {one["sample"] for one in list_failures(world)} == {"row 18 is wrong", "row 18 is gone"}


@pytest.mark.parametrize(
    ("state", "after_failure", "after_success"),
    [
        ("resolved", "unresolved", "resolved"),
        ("investigating", "investigating", "resolved"),
        ("wont_fix", "wont_fix", "wont_fix"),
        ("unresolved", "unresolved", "resolved"),
    ],
)
def test_states_and_what_becomes_of_them(world: World, state: str, after_failure: str, after_success: str) -> None:
    fail(world, "refused")
    (failure,) = list_failures(world)
    path = f"{FAILURES}/{failure['id']}/resolve"
    reply = world.service.post(path, {"state": state})
    assert reply.status == 200
    assert reply.json["state"] == state
    assert (reply.json["resolved_at"] is not None) == (state == "resolved")
    assert (reply.json["resolved_by"] or "").startswith("key:") == (state == "resolved")
    fail(world, "refused")
    (failure,) = list_failures(world)
    assert (failure["state"], failure["resolved_at"], failure["occurrence_count"]) == (after_failure, None, 2)
    with world.environment.database.transaction("demo") as transaction:
        resolve_failures(transaction, ["webhook"], "hook")
    (failure,) = list_failures(world)
    assert failure["state"] == after_success


def test_resolving_needs_no_state_and_repeats_safely(world: World) -> None:
    fail(world, "refused")
    (failure,) = list_failures(world)
    path = f"{FAILURES}/{failure['id']}/resolve"
    first, again = (world.service.post(path, {}, idempotency_key="k") for _ in range(2))
    assert (first.status, first.json["state"]) == (200, "resolved")
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize("reference", ["nothing", "00000000-0000-0000-0000-000000000000"])
def test_failure_that_is_not_there_is_a_404(world: World, reference: str) -> None:
    assert world.service.post(f"{FAILURES}/{reference}/resolve", {}).status == 404


def test_listing_pages_through_all_and_filters(world: World) -> None:
    for number in range(7):
        fail(world, "refused", work=f"hook-{number}")
    seen: list[str] = []
    query = "limit=3"
    while True:
        page = world.service.get(FAILURES, query=query).json
        seen += [one["work"] for one in page["items"]]
        if page["next_cursor"] is None:
            break
        query = f"limit=3&cursor={page['next_cursor']}"
    assert seen == [f"hook-{number}" for number in reversed(range(7))]
    assert list_failures(world, "kind=sink") == []
    assert len(list_failures(world, "kind=webhook&state=unresolved")) == 7
    assert world.service.get(FAILURES, query="state=odd").status == 400


def test_reading_needs_runs_read_and_resolving_runs_create(world: World, make_key: Callable[..., str]) -> None:
    fail(world, "refused")
    (failure,) = list_failures(world)
    path = f"{FAILURES}/{failure['id']}/resolve"
    reader = make_key({"project": "demo", "permissions": ["runs.read"]})
    creator = make_key({"project": "demo", "permissions": ["runs.create"]})
    assert world.service.get(FAILURES, key=reader).status == 200
    assert world.service.get(FAILURES, key=creator).status == 403
    assert world.service.post(path, {}, key=reader).status == 403
    assert world.service.post(path, {}, key=creator).status == 200


def test_failures_of_another_project_are_not_seen(world: World, make_project: Callable[..., str]) -> None:
    make_project("other")
    fail(world, "refused")
    (failure,) = list_failures(world)
    other = "/v1/projects/other/failures"
    assert world.service.get(other).json["items"] == []
    assert world.service.post(f"{other}/{failure['id']}/resolve", {}).status == 404
