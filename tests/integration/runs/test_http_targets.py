"""Runs whose outputs an endpoint makes."""

from __future__ import annotations

from collections.abc import Callable
from threading import Barrier
from typing import TYPE_CHECKING, Any

import boto3
import orjson
import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.leases import LeaseLostError
from coordination.settings import OutgoingSettings
from evalward_local.target_server import Asked, Reply, TargetServer, echo
from run_evaluation import evaluate_in_batches, patient_calls
from run_evaluation.evaluate_shard import evaluate_shard

if TYPE_CHECKING:
    from integration.runs.conftest import World

QUESTIONS = [{"id": f"r{at}", "input": f"q{at}", "reference": f"answer to q{at}"} for at in range(6)]
EXACT = [{"name": "exact_match"}]


@pytest.fixture
def environment(make_environments: Callable[..., Environment], endpoint: TargetServer) -> Environment:
    """Return an environment whose project `demo` may call the endpoint."""
    return make_environments(outgoing=OutgoingSettings(allowed_hosts={"demo": [endpoint.host]}))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pauses between calls short."""
    monkeypatch.setattr(patient_calls, "_FIRST_PAUSE_SECONDS", 0.001)


class CountedDeadline(Deadline):
    """A deadline that is near as soon as the server was asked so often."""

    def __init__(self, endpoint: TargetServer, times: int) -> None:
        object.__setattr__(self, "_server", endpoint)
        object.__setattr__(self, "_times", times)

    def remaining_seconds(self) -> float:
        return 25.0 if len(self._server.asked) >= self._times else 100.0  # pyright: ignore[reportAttributeAccessIssue]


def create(world: World, endpoint: TargetServer, **fields: Any) -> str:
    target = {"kind": "http", "url": endpoint.url, **fields.pop("target", {})}
    return world.create(target=target, **fields)


def shard_of(world: World) -> str:
    kind, ref_id = world.waiting()[0]
    assert kind == "shard"
    return ref_id


def outputs(world: World) -> list[dict[str, Any]]:
    return world.database.look(
        "SELECT record, trial, output::text AS output, error, attempts, input_tokens, output_tokens, cost_usd,"
        " latency_ms FROM evals.run_outputs ORDER BY record_no, trial"
    )


def test_each_input_is_asked_once_and_its_output_is_scored(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS)
    run = create(world, endpoint)
    world.work_all()
    ended = world.read(run)
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert ended["progress"] == {"total": 6, "done": 6, "scored": 6, "skipped": 0, "errors": 0}
    assert [result["score"] for result in world.results(run)] == [1.0] * 6
    assert endpoint.times_asked() == {f"r{at}/1": 1 for at in range(6)}
    first = next(one for one in endpoint.asked if one.body["record"] == "r0")
    # The reference is the run's own.
    assert first.body == {"record": "r0", "input": "q0", "trial": 1}
    assert first.headers["idempotency-key"] == f"{run}:0:1"
    stored = outputs(world)
    assert [row["output"] for row in stored] == [f'"answer to q{at}"' for at in range(6)]
    assert {(row["attempts"], row["error"], row["input_tokens"]) for row in stored} == {(1, None, 10)}
    assert all(row["latency_ms"] > 0 for row in stored)


def test_report_says_what_the_outputs_used(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS)
    run = create(world, endpoint, evaluators=[{"name": "cost"}, {"name": "tokens"}, {"name": "latency"}])
    world.work_all()
    report = world.service.get(f"/v1/projects/demo/runs/{run}/report").json
    usage = report["usage"]
    assert (usage["input_tokens"], usage["output_tokens"], usage["cost_usd"]) == (60, 30, 1.5)
    latency = usage["latency_ms"]
    assert latency["n"] == 6
    assert 0 < latency["p50"] <= latency["p95"] <= latency["max"]
    means = {metric["id"]: metric["mean"] for metric in report["metrics"]}
    assert (means["cost"], means["tokens"]) == (0.25, 15)
    assert means["latency"] == pytest.approx(latency["mean"])


def test_trials_ask_again_and_are_paired_when_runs_are_compared(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:2])
    first = create(world, endpoint, trials=3)
    world.work_all()
    assert world.read(first)["progress"] == {"total": 2, "done": 2, "scored": 6, "skipped": 0, "errors": 0}
    assert endpoint.times_asked() == {f"r{at}/{trial}": 1 for at in range(2) for trial in (1, 2, 3)}
    endpoint.answer = lambda asked: (
        Reply({"output": "wrong"}) if (asked.body["record"], asked.body["trial"]) == ("r1", 2) else echo(asked)
    )
    second = create(world, endpoint, trials=3)
    world.work_all()
    compared = world.service.get("/v1/projects/demo/runs:compare", query=f"baseline={first}&candidate={second}").json
    (metric,) = compared["metrics"]
    assert (metric["n"], metric["regressions_count"], metric["fixes_count"]) == (6, 1, 0)
    assert metric["regressions"] == [{"record": "r1", "trial": 2, "baseline": 1.0, "candidate": 0.0}]


def test_as_many_calls_are_made_at_once_as_the_run_wants(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS, shard_records=6)
    together = Barrier(3)

    def answer(asked: Asked) -> Reply:
        together.wait(30)
        return echo(asked)

    endpoint.answer = answer
    run = create(world, endpoint, concurrency=3)
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    assert endpoint.most_at_once == 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_call_that_may_pass_is_made_again(world: World, endpoint: TargetServer, status: int) -> None:
    world.publish(QUESTIONS[:1])
    endpoint.answer = lambda asked: Reply(status=status) if asked.times < 3 else echo(asked)
    run = create(world, endpoint)
    world.work_all()
    assert world.read(run)["progress"]["scored"] == 1
    assert endpoint.times_asked() == {"r0/1": 3}
    assert outputs(world)[0]["attempts"] == 3


def test_all_calls_wait_as_long_as_one_was_asked_to(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:2])
    endpoint.answer = lambda asked: (
        Reply(status=429, headers={"retry-after": "1"}) if len(endpoint.asked) == 1 else echo(asked)
    )
    run = create(world, endpoint, concurrency=1)
    world.work_all()
    assert world.read(run)["progress"]["scored"] == 2
    assert endpoint.times_asked() == {"r0/1": 2, "r1/1": 1}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("reply", "calls", "message"),
    [
        (Reply(status=500), 5, "the target answered 500, 200 was expected"),
        (Reply(status=404), 1, "the target answered 404, 200 was expected"),
        (
            Reply(status=302, headers={"location": "http://169.254.169.254/latest/meta-data/"}),
            1,
            "the target answered 302, 200 was expected; redirects are not followed",
        ),
        (
            Reply(status=429, headers={"retry-after": "3600"}),
            1,
            "the target answered 429, 200 was expected, and asked to wait 3600 s",
        ),
        (Reply(b"{"), 1, "the target's answer is not JSON"),
        (Reply({"answer": "x"}), 1, "the target's answer has no member `output`"),
        (Reply(b'{"output": "' + b"x" * 2**20 + b'"}'), 1, "the answer has more than 1048576 bytes"),
        (Reply({"output": "a\0b"}), 1, "the output cannot be kept: "),
        (Reply(b'{"output": "\\ud835"}'), 1, "the target's answer is not JSON"),
    ],
)
def test_failure_is_an_error_of_its_record_and_the_run_goes_on(
    world: World, endpoint: TargetServer, reply: Reply, calls: int, message: str
) -> None:
    world.publish(QUESTIONS[:3])
    endpoint.answer = lambda asked: reply if asked.body["record"] == "r1" else echo(asked)
    run = create(world, endpoint)
    world.work_all()
    assert world.read(run)["progress"] == {"total": 3, "done": 3, "scored": 2, "skipped": 0, "errors": 1}
    (failed,) = [result for result in world.results(run) if result["status"] == "error"]
    assert failed["record"] == "r1"
    assert failed["error"].startswith(message)
    assert endpoint.times_asked()["r1/1"] == calls
    stored = {row["record"]: row for row in outputs(world)}
    assert (stored["r1"]["output"], stored["r1"]["error"]) == (None, failed["error"])


@pytest.mark.usefixtures("quick")
def test_target_that_hangs_is_an_error_after_its_time(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_calls, "MAX_CALLS", 2)
    world.publish(QUESTIONS[:2])
    endpoint.answer = lambda asked: None if asked.body["record"] == "r0" else echo(asked)
    run = create(world, endpoint, target={"timeout_seconds": 0.2})
    world.work_all()
    (failed,) = [result for result in world.results(run) if result["status"] == "error"]
    assert "did not answer to the end within 0.2 s" in failed["error"]
    assert endpoint.times_asked() == {"r0/1": 2, "r1/1": 1}


def test_run_with_more_errors_than_it_may_have_ends_and_calls_nobody_more(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_in_batches, "_BATCH_WORKS", 2)
    world.publish([{"id": f"r{at}", "input": f"q{at}"} for at in range(40)], shard_records=40)
    endpoint.answer = lambda _asked: Reply(status=400)
    run = create(world, endpoint, max_errors=3, concurrency=1)
    world.work_all()
    ended = world.read(run)
    assert (ended["state"], ended["error"]["code"]) == ("error", "too_many_errors")
    assert ended["error"]["detail"].startswith("4 results are errors, max_errors allows 3.")
    # Two batches of two, and what was on its way while the second was written.
    assert len(endpoint.asked) < 10
    assert world.waiting() == []


def test_worker_stops_in_time_and_the_next_one_asks_for_the_rest_only(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS, shard_records=6)
    run = create(world, endpoint, concurrency=1)
    world.work_once()
    shard = shard_of(world)
    evaluate_shard(world.environment, "demo", shard, CountedDeadline(endpoint, 2))
    assert endpoint.times_asked() == {"r0/1": 1, "r1/1": 1}
    assert world.read(run)["progress"]["done"] == 2
    assert world.waiting() == [("shard", shard)]
    assert world.database.look("SELECT state, attempts FROM scheduler.policy_run_jobs") == [
        {"state": "queued", "attempts": 0}
    ]
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    assert set(endpoint.times_asked().values()) == {1}
    assert world.read(run)["progress"] == {"total": 6, "done": 6, "scored": 6, "skipped": 0, "errors": 0}


def test_attempt_without_progress_counts(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS)
    run = create(world, endpoint)
    world.work_once()
    shard = shard_of(world)
    for _ in range(5):
        evaluate_shard(world.environment, "demo", shard, CountedDeadline(endpoint, 0))
    evaluate_shard(world.environment, "demo", shard, CountedDeadline(endpoint, 0))
    assert world.read(run)["error"]["code"] == "attempts_exhausted"
    assert endpoint.asked == []


class KilledError(BaseException):
    """Ends a worker where nothing cleans up after it."""


def die_at(patch: pytest.MonkeyPatch, place: str, call: int, *, is_after: bool) -> None:
    """Let the worker die before or after a certain call of a step of its transactions."""
    step, made = getattr(evaluate_in_batches, place), [0]

    def die(*arguments: Any, **options: Any) -> Any:
        made[0] += 1
        if made[0] == call and not is_after:
            raise KilledError
        answer = step(*arguments, **options)
        if made[0] == call:
            raise KilledError
        return answer

    patch.setattr(evaluate_in_batches, place, die)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("call", [2, 3])
@pytest.mark.parametrize("place", ["require_lease", "store_outputs", "write_results", "add_to_run"])
def test_worker_that_dies_repeats_only_what_was_not_written(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch, place: str, call: int, is_after: bool
) -> None:
    # Six records in batches of two: two written on the way, the third with the shard's completion.
    monkeypatch.setattr(evaluate_in_batches, "_BATCH_WORKS", 2)
    world.publish(QUESTIONS, shard_records=6)
    run = create(world, endpoint, concurrency=1)
    world.work_once()
    shard = shard_of(world)
    with monkeypatch.context() as patch:
        die_at(patch, place, call, is_after=is_after)
        with pytest.raises(KilledError):
            evaluate_shard(world.environment, "demo", shard, Deadline.of_invocation(_Context()))
    written = [row["record"] for row in outputs(world)]
    assert len(written) == len(world.results(run)) == world.read(run)["progress"]["done"] == 2 * (call - 1)
    world.work_all()
    assert world.read(run)["progress"] == {"total": 6, "done": 6, "scored": 6, "skipped": 0, "errors": 0}
    assert world.read(run)["state"] == "succeeded"
    assert [row["record"] for row in outputs(world)] == [f"r{at}" for at in range(6)]
    times = endpoint.times_asked()
    assert all(times[f"{record}/1"] == 1 for record in written)
    assert max(times.values()) <= 2
    assert {one.headers["idempotency-key"] for one in endpoint.asked} == {f"{run}:{at}:1" for at in range(6)}


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 120_000


def test_output_without_results_is_judged_and_not_asked_for_again(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:2])
    run = create(world, endpoint)
    world.work_once()
    world.database.look(
        "INSERT INTO evals.run_outputs (tenant_id, run_id, record_no, trial, record, output, input_tokens, attempts)"
        " VALUES ('demo', %(run)s, 0, 1, 'r0', '\"kept\"', 7, 1)",
        {"run": run},
    )
    world.work_all()
    assert endpoint.times_asked() == {"r1/1": 1}
    assert [result["score"] for result in world.results(run)] == [0.0, 1.0]
    report = world.service.get(f"/v1/projects/demo/runs/{run}/report").json
    assert report["usage"]["input_tokens"] == 17


def test_failure_without_results_is_an_error_and_its_target_is_not_asked_again(
    world: World, endpoint: TargetServer
) -> None:
    world.publish(QUESTIONS[:2])
    run = create(world, endpoint)
    world.work_once()
    world.database.look(
        "INSERT INTO evals.run_outputs (tenant_id, run_id, record_no, trial, record, error, attempts)"
        " VALUES ('demo', %(run)s, 0, 1, 'r0', 'it was down', 5)",
        {"run": run},
    )
    world.work_all()
    assert endpoint.times_asked() == {"r1/1": 1}
    assert [(one["status"], one["error"]) for one in world.results(run)] == [("error", "it was down"), ("scored", None)]


def test_cancelled_run_stops_calling_and_resumed_asks_only_for_what_is_missing(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_in_batches, "_BATCH_WORKS", 1)
    world.publish([{"id": f"r{at}", "input": f"q{at}"} for at in range(30)], shard_records=30)
    run = create(world, endpoint, concurrency=1)

    def answer(asked: Asked) -> Reply:
        if len(endpoint.asked) == 3:
            # Through a connection of its own, as the API would.
            world.database.look(
                "UPDATE evals.runs SET state = 'cancelled', finished_at = clock_timestamp() WHERE state = 'running'"
            )
        return echo(asked)

    endpoint.answer = answer
    world.work_all()
    assert world.read(run)["state"] == "cancelled"
    kept = [row["record"] for row in outputs(world)]
    assert 1 <= len(kept) <= 3
    assert len(endpoint.asked) < 10
    assert world.act(run, "resume").status == 202
    world.work_all()
    ended = world.read(run)
    assert ended["state"] == "succeeded"
    assert ended["progress"]["done"] == 30
    times = endpoint.times_asked()
    assert {times[f"{record}/1"] for record in kept} == {1}
    assert len(outputs(world)) == 30


def test_cancelled_run_lets_go_of_calls_that_hang(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate_in_batches, "_RENEW_SECONDS", 0.0)
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint, target={"timeout_seconds": 60})

    def cancel_and_hang(_asked: Asked) -> None:
        world.database.look(
            "UPDATE evals.runs SET state = 'cancelled', finished_at = clock_timestamp() WHERE state = 'running'"
        )

    endpoint.answer = cancel_and_hang
    world.work_all()
    assert world.read(run)["state"] == "cancelled"
    assert (outputs(world), world.waiting()) == ([], [])
    assert world.delete(run).status == 204


def test_worker_whose_lease_was_taken_over_writes_nothing(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:2])
    run = create(world, endpoint)
    world.work_once()

    def take_over(asked: Asked) -> Reply:
        world.database.look(
            "UPDATE coordination.leases SET owner = gen_random_uuid(), epoch = epoch + 1"
            " WHERE starts_with(name, 'shard:')"
        )
        return echo(asked)

    endpoint.answer = take_over
    with pytest.raises(LeaseLostError):
        evaluate_shard(world.environment, "demo", shard_of(world), Deadline.of_invocation(_Context()))
    assert (outputs(world), world.results(run)) == ([], [])


def test_resumed_run_takes_up_a_shard_that_is_partly_done(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS, shard_records=3)
    run = create(world, endpoint, concurrency=1)
    world.work_once()
    evaluate_shard(world.environment, "demo", shard_of(world), CountedDeadline(endpoint, 2))
    world.act(run, "cancel")
    world.act(run, "resume")
    world.work_all()
    assert world.read(run)["progress"] == {"total": 6, "done": 6, "scored": 6, "skipped": 0, "errors": 0}
    assert world.read(run)["state"] == "succeeded"
    assert set(endpoint.times_asked().values()) == {1}


def test_deleted_run_takes_its_outputs_along(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS)
    run = create(world, endpoint)
    world.work_all()
    assert world.delete(run).status == 204
    assert world.tables_that_mention(run) == {"evals.run_tombstones": 1}
    assert outputs(world) == []


def test_outputs_are_read_page_by_page(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:3])
    endpoint.answer = lambda asked: Reply(status=404) if asked.body["record"] == "r1" else echo(asked)
    run = create(world, endpoint, trials=2)
    path = f"/v1/projects/demo/runs/{run}/outputs"
    assert world.service.get(path).json == {"items": [], "next_cursor": None}
    world.work_all()
    first = world.service.get(path, query="limit=4").json
    rest = world.service.get(path, query=f"limit=4&cursor={first['next_cursor']}").json
    items = first["items"] + rest["items"]
    assert (len(first["items"]), rest["next_cursor"]) == (4, None)
    assert [(one["record"], one["trial"]) for one in items] == [(f"r{at}", n) for at in range(3) for n in (1, 2)]
    answered, failed = items[0], items[2]
    assert (answered["output"], answered["cost_usd"], answered["attempts"]) == ("answer to q0", 0.25, 1)
    assert (failed["output"], failed["error"]) == (None, "the target answered 404, 200 was expected")
    assert world.service.get(path.replace(run, "00000000-0000-0000-0000-000000000000")).status == 404
    assert world.service.get(path, query="cursor=eyJ9").code == "invalid_cursor"


def test_page_of_large_outputs_ends_early_and_shows_them_all_in_the_end(world: World, endpoint: TargetServer) -> None:
    world.publish(QUESTIONS[:5])
    # Escaped twice on its way out: once as JSON, once in the function's response.
    endpoint.answer = lambda asked: Reply({"output": '"' * 500_000 + asked.body["record"]})
    run = create(world, endpoint, concurrency=2)
    world.work_all()
    seen: list[str] = []
    cursor, pages = "", 0
    while cursor is not None:
        page = world.service.get(f"/v1/projects/demo/runs/{run}/outputs", query=cursor and f"cursor={cursor}").json
        seen += [one["output"][-2:] for one in page["items"]]
        cursor, pages = page["next_cursor"], pages + 1
    assert (seen, pages) == (["r0", "r1", "r2", "r3", "r4"], 3)


def test_headers_of_a_secret_are_sent_and_stored_nowhere(world: World, endpoint: TargetServer) -> None:
    secret = {"authorization": "Bearer of-a-test", "x-team": "search"}
    boto3.client("secretsmanager").create_secret(Name="evalward/demo/bot", SecretString=orjson.dumps(secret).decode())
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint, target={"secret": "evalward/demo/bot"})
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    (asked,) = endpoint.asked
    assert (asked.headers["authorization"], asked.headers["x-team"]) == ("Bearer of-a-test", "search")
    assert world.tables_that_mention("of-a-test") == {}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("evalward/demo/other", '{"authorization": "x"}'),
        ("evalward/demo/bot", "no json"),
        ("evalward/demo/bot", '{"host": "elsewhere"}'),
        ("evalward/demo/bot", '{"x-a": "b\\r\\nx-c: d"}'),
    ],
)
def test_run_whose_secret_is_of_no_use_ends_in_words(
    world: World, endpoint: TargetServer, name: str, value: str
) -> None:
    boto3.client("secretsmanager").create_secret(Name=name, SecretString=value)
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint, target={"secret": "evalward/demo/bot"})
    world.work_all()
    ended = world.read(run)
    assert (ended["state"], ended["error"]["code"]) == ("error", "place_unusable")
    assert "the secret evalward/demo/bot" in ended["error"]["detail"]
    assert endpoint.asked == []


@pytest.mark.parametrize(
    ("target", "pointer"),
    [
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "/target/url"),
        ({"url": "https://127.0.0.1/answer"}, "/target/url"),
        ({"url": "https://[::1]/answer"}, "/target/url"),
        ({"secret": "evalward/other/bot"}, "/target/secret"),
        ({"secret": "evalward/demo/../other/bot"}, "/target/secret"),
        ({"secret": "prod/database"}, "/target/secret"),
        ({"timeout_seconds": 61}, "/target/timeout_seconds"),
        ({"headers": {"authorization": "x"}}, "/target/headers"),
    ],
)
def test_place_that_the_project_may_not_name_is_refused_at_creation(
    world: World, endpoint: TargetServer, target: dict[str, Any], pointer: str
) -> None:
    world.publish(QUESTIONS[:1])
    body = {
        "name": "nightly",
        "dataset": {"name": "questions"},
        "evaluators": EXACT,
        "target": {"kind": "http", "url": endpoint.url, **target},
    }
    reply = world.service.post("/v1/projects/demo/runs", body)
    assert (reply.status, reply.code, reply.pointers) == (400, "invalid_request", [pointer])
    assert world.waiting() == []


def test_host_that_is_listed_no_more_is_not_called(
    world: World, endpoint: TargetServer, make_environments: Callable[..., Environment]
) -> None:
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint)
    world.environment = make_environments()
    world.work_all()
    assert world.read(run)["error"]["code"] == "place_unusable"
    assert endpoint.asked == []


def test_name_that_does_not_resolve_is_tried_again_before_the_run_ends(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint)
    world.work_once()
    with monkeypatch.context() as patch:

        def fail(*_arguments: Any, **_options: Any) -> Any:
            raise OSError

        patch.setattr("coordination.ports.http_calls.socket.getaddrinfo", fail)
        world.work_once()
        assert world.read(run)["state"] == "running"
    world.work_all()
    assert world.read(run)["state"] == "succeeded"


def test_name_that_never_resolves_ends_the_run_in_words(
    world: World, endpoint: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(QUESTIONS[:1])
    run = create(world, endpoint)

    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise OSError

    monkeypatch.setattr("coordination.ports.http_calls.socket.getaddrinfo", fail)
    world.work_all()
    ended = world.read(run)
    assert (ended["state"], ended["error"]["code"]) == ("error", "place_unusable")
    assert "does not resolve" in ended["error"]["detail"]
    assert endpoint.asked == []


def test_trials_of_a_recorded_target_are_refused(world: World) -> None:
    world.publish(QUESTIONS[:1])
    body = {"name": "n", "dataset": {"name": "questions"}, "evaluators": EXACT, "trials": 2, "target": "recorded"}
    reply = world.service.post("/v1/projects/demo/runs", body)
    assert (reply.status, reply.pointers) == (400, ["/trials"])
