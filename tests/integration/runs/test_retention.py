from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from api.runs.change_run import label_run
from api.runs.models import UpdateRun
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import DatabaseUnavailableError
from coordination.leases import take_lease
from coordination.settings import RunSettings
from retention_sweep import sweep_runs as sweeping
from retention_sweep.handler import lambda_handler
from retention_sweep.sweep_runs import sweep_runs

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.runs.conftest import World

INSERT = """
INSERT INTO evals.runs (tenant_id, id, name, state, dataset_name, dataset_version, config, config_sha256, records_total,
                        created_by, created_at, finished_at)
VALUES (%(project)s, %(id)s, 'n', %(state)s, 'd', 1, '{}', repeat('a', 64), 1, 'test',
        clock_timestamp() - %(age)s::interval,
        CASE WHEN %(state)s IN ('pending', 'running') THEN NULL ELSE clock_timestamp() - %(age)s::interval END)
"""


class Context:
    function_name = "retention_sweep"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:retention_sweep"
    aws_request_id = "1"

    def __init__(self, seconds: float = 300) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds * 1000)


@pytest.fixture
def put_run(database: FreshDatabase) -> Callable[..., str]:
    """Return a function that puts a run of some age into the database."""

    def put(age: str, *, state: str = "succeeded", project: str = "demo", keep: str | None = None) -> str:
        run = str(uuid4())
        database.look(INSERT, {"project": project, "id": run, "state": state, "age": age})
        if keep is not None:
            database.look(
                "INSERT INTO evals.run_labels VALUES (%(project)s, %(id)s, 'evalsi.keep', %(keep)s)",
                {"project": project, "id": run, "keep": keep},
            )
        return run

    return put


def sweep(make_environments: Callable[..., Environment], *, seconds: float = 300, **settings: Any) -> dict[str, int]:
    environment = make_environments(runs=RunSettings(**settings))
    return sweep_runs(environment, Deadline.of_invocation(Context(seconds)))


def runs_left(database: FreshDatabase) -> set[str]:
    return {str(row["id"]) for row in database.look("SELECT id FROM evals.runs")}


def test_ended_runs_past_their_age_are_deleted_with_all_they_own(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    world.publish_answers(["yes", "no", "yes"])
    run, young = world.run_to_end(labels={"a": "b"}), world.run_to_end()
    world.database.look(
        "UPDATE evals.runs SET finished_at = clock_timestamp() - interval '25 h' WHERE id = %(id)s", {"id": run}
    )
    counts = sweep(make_environments, retention="1d")
    assert counts == {"projects": 1, "deleted": 1, "tombstones": 0, "failed": 0, "left": 0}
    # No tombstone and no audit event either: nobody asked.
    assert world.tables_that_mention(run) == {}
    assert runs_left(world.database) == {young}
    assert world.delete(run).status == 404


def test_age_counts_from_the_end_and_not_from_the_creation(
    world: World, make_environments: Callable[..., Environment]
) -> None:
    world.publish_answers(["yes"])
    run = world.run_to_end()
    world.database.look("UPDATE evals.runs SET created_at = created_at - interval '10 d'")
    sweep(make_environments, retention="1d")
    assert runs_left(world.database) == {run}


def test_run_that_has_not_ended_never_expires(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    make_project()
    open_runs = {put_run("1000 d", state=state) for state in ("pending", "running")}
    for state in ("succeeded", "failed", "error", "cancelled"):
        put_run("1000 d", state=state)
    assert sweep(make_environments, retention="1h")["deleted"] == 4
    assert runs_left(database) == open_runs


def test_only_the_label_with_the_value_true_exempts(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    make_project()
    kept = put_run("10 d", keep="true")
    put_run("10 d", keep="false")
    sweep(make_environments, retention="1d")
    assert runs_left(database) == {kept}


def test_precedence_is_project_then_map_then_default(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    runs = {
        name: put_run("10 d", project=make_project(name)) for name in ("own", "own-zero", "map", "map-zero", "rest")
    }
    database.look("UPDATE coordination.projects SET run_retention = '5d' WHERE id = 'own'")
    database.look("UPDATE coordination.projects SET run_retention = '0' WHERE id = 'own-zero'")
    by_project = {"own": "30d", "own-zero": "1d", "map": "9d", "map-zero": "0"}
    assert sweep(make_environments, retention="30d", project_retention=by_project)["deleted"] == 2
    assert runs_left(database) == {runs["own-zero"], runs["map-zero"], runs["rest"]}


def test_without_settings_everything_is_kept(
    make_project: Callable[..., str], put_run: Callable[..., str], make_environments: Callable[..., Environment]
) -> None:
    make_project()
    put_run("1000 d")
    assert sweep(make_environments)["deleted"] == 0


def test_kept_runs_never_hide_expired_ones_behind_them(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_project()
    monkeypatch.setattr(sweeping, "_PAGE_SIZE", 3)
    kept = {put_run("20 d", keep="true") for _ in range(7)}
    for _ in range(4):
        put_run("10 d")
    # The same instant: the id tells the place in the page.
    database.look("UPDATE evals.runs SET finished_at = '2020-01-01' WHERE finished_at < now() - interval '15 d'")
    assert sweep(make_environments, retention="1d")["deleted"] == 4
    assert runs_left(database) == kept


def test_a_pass_ends_at_its_budget_and_the_next_goes_on(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    make_project()
    oldest = [put_run(f"{20 - at} d") for at in range(5)]
    first = sweep(make_environments, retention="1d", max_deletions_per_pass=2)
    assert (first["deleted"], first["left"]) == (2, 1)
    assert runs_left(database) == set(oldest[2:])
    assert sweep(make_environments, retention="1d", max_deletions_per_pass=50)["deleted"] == 3


def test_projects_take_turns(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweeping, "_RUNS_PER_TURN", 2)
    make_project("a")
    for _ in range(6):
        put_run("10 d", project="a")
    put_run("10 d", project=make_project("b"))
    sweep(make_environments, retention="1d", max_deletions_per_pass=3)
    assert database.look_up("SELECT count(*) FROM evals.runs WHERE tenant_id = 'b'") == 0
    assert sweep(make_environments, retention="1d")["deleted"] == 4


def test_a_pass_without_time_deletes_nothing(
    make_project: Callable[..., str], put_run: Callable[..., str], make_environments: Callable[..., Environment]
) -> None:
    make_project()
    put_run("10 d")
    assert sweep(make_environments, seconds=20, retention="1d")["deleted"] == 0


def test_failure_of_one_project_does_not_keep_the_pass_from_the_others(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    broken = put_run("10 d", project=make_project("a"))
    put_run("10 d", project=make_project("b"))
    make_project("c")
    database.look("UPDATE coordination.projects SET run_retention = 'one year' WHERE id = 'c'")
    # Rows that no deletion knows of stand in the way of the first project's run.
    database.look(
        "CREATE TABLE evals.stray (tenant_id text, run_id uuid, FOREIGN KEY (tenant_id, run_id)"
        " REFERENCES evals.runs (tenant_id, id))"
    )
    database.look("INSERT INTO evals.stray VALUES ('a', %(run)s)", {"run": broken})
    try:
        counts = sweep(make_environments, retention="1d")
    finally:
        database.look("DROP TABLE evals.stray")
    assert (counts["deleted"], counts["failed"]) == (1, 2)
    assert runs_left(database) == {broken}


def test_run_that_cannot_be_deleted_now_does_not_hide_the_next(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_project()
    stuck, _ = put_run("20 d"), put_run("10 d")
    delete = sweeping.delete_locked_run

    def delete_or_time_out(transaction: Any, run: Any) -> None:
        if str(run.id) == stuck:
            raise DatabaseUnavailableError("a lock was not to be had")
        delete(transaction, run)

    monkeypatch.setattr(sweeping, "delete_locked_run", delete_or_time_out)
    counts = sweep(make_environments, retention="1d")
    assert (counts["deleted"], counts["failed"]) == (1, 1)
    assert runs_left(database) == {stuck}


def test_leased_run_is_left_to_the_next_pass(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    make_project()
    run = put_run("10 d", state="cancelled")
    take_lease(make_environments().database, f"run:demo:{run}", 60)
    assert sweep(make_environments, retention="1d")["deleted"] == 0
    assert runs_left(database) == {run}


def test_label_that_is_being_set_keeps_its_run(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    world: World,
    make_environments: Callable[..., Environment],
) -> None:
    """The sweep waits for the run's row and then looks at the labels anew."""
    world.publish_answers(["yes"])
    run = world.run_to_end()
    database.look("UPDATE evals.runs SET finished_at = finished_at - interval '10 d'")
    with ThreadPoolExecutor(1) as threads:
        with world.environment.database.transaction("demo") as transaction:
            label_run(transaction, UUID(run), UpdateRun(labels={"evalsi.keep": "true"}))
            passing = threads.submit(sweep, make_environments, retention="1d")
            world.wait_until_blocked("evals.runs")
        assert passing.result(30)["deleted"] == 0
    assert runs_left(database) == {run}


def test_two_passes_at_once_delete_each_run_once(
    database: FreshDatabase,
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
) -> None:
    make_project()
    for _ in range(20):
        put_run("10 d")
    start = Barrier(2)

    def run(environment: Environment) -> dict[str, int]:
        start.wait(30)
        return sweep_runs(environment, Deadline.of_invocation(Context()))

    environments = [make_environments(runs=RunSettings(retention="1d")) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        counts = list(threads.map(run, environments))
    assert sum(one["deleted"] for one in counts) == 20
    assert sum(one["failed"] for one in counts) == 0
    assert runs_left(database) == set()


def test_deletions_are_forgotten_after_their_day(world: World, make_environments: Callable[..., Environment]) -> None:
    world.publish_answers(["yes"])
    old, new = world.run_to_end(), world.run_to_end()
    world.delete(old)
    world.delete(new)
    world.database.look(
        "UPDATE evals.run_tombstones SET deleted_at = deleted_at - interval '25 h',"
        " expires_at = expires_at - interval '25 h' WHERE run_id = %(run)s",
        {"run": old},
    )
    assert sweep(make_environments)["tombstones"] == 1
    assert str(world.database.look_up("SELECT run_id FROM evals.run_tombstones")) == new


def test_schedule_runs_the_pass(
    make_project: Callable[..., str],
    put_run: Callable[..., str],
    make_environments: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_project()
    put_run("10 d")
    environment = make_environments(runs=RunSettings(retention="1d"))
    monkeypatch.setattr("retention_sweep.handler.load_environment", lambda: environment)
    assert lambda_handler({"sweep": "runs"}, Context())["deleted"] == 1  # pyright: ignore[reportArgumentType]
