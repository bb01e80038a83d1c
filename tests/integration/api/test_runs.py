from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, RecordedQueues

RUNS = "/v1/projects/demo/runs"
NEW = {"name": "nightly", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
DEEP: dict[str, Any] = functools.reduce(lambda inner, _: {"a": inner}, range(150), dict[str, Any]())
INSERT_RESULTS = """
INSERT INTO evals.run_results (tenant_id, run_id, record_no, trial, evaluator, record, status, score, passed)
SELECT 'demo', %(run)s::uuid, n, 1, e, 'record ' || n, 'scored', 1, true
FROM generate_series(0, %(count)s::integer - 1) AS n, unnest(ARRAY['a', 'b']) AS e
"""


@pytest.fixture(autouse=True)
def project(make_project: Callable[..., str], make_dataset: Callable[..., str]) -> str:
    """Return a project with one dataset."""
    name = make_project()
    make_dataset()
    return name


def test_created_run_is_pending_pinned_and_complete(service: Api) -> None:
    reply = service.post(RUNS, NEW | {"labels": {"team": "search", "evalsi.keep": "true"}, "max_errors": 0})
    assert reply.status == 202
    run = reply.json
    assert reply.headers["location"] == f"{RUNS}/{run['id']}"
    assert run["created_at"].endswith("Z")
    assert run["state"] == "pending"
    assert run["dataset"] == {"name": "questions", "version": 1, "sha256": "a" * 64}
    assert run["progress"] == {"total": 3, "done": 0, "scored": 0, "skipped": 0, "errors": 0}
    assert run["config"]["evaluators"][0]["id"] == "exact_match"
    assert run["config"]["target"]["kind"] == "recorded"
    assert (run["started_at"], run["finished_at"], run["error"], run["gates"]) == (None, None, None, None)
    assert service.get(f"{RUNS}/{run['id']}").json == run


def test_creation_writes_run_snapshot_dispatch_and_wake_up_together_and_sends_after_it(
    service: Api, database: FreshDatabase, queues: RecordedQueues
) -> None:
    reply = service.post(RUNS, NEW)
    run_id = reply.json["id"]
    counts = database.look("""
        SELECT (SELECT count(*) FROM evals.runs) AS runs, (SELECT count(*) FROM evals.run_snapshots) AS snapshots,
               (SELECT count(*) FROM scheduler.estate_run_queue) AS dispatches,
               (SELECT count(*) FROM coordination.wake_ups WHERE kind = 'run' AND sent_at IS NOT NULL) AS wake_ups
    """)
    assert counts == [{"runs": 1, "snapshots": 1, "dispatches": 1, "wake_ups": 1}]
    message = {"kind": "run", "project": "demo", "ref_id": run_id, "request_id": reply.headers["x-request-id"]}
    assert queues.sent == [("https://sqs/evaluation", message)]


def test_run_is_created_while_the_queue_is_down_and_the_pulse_will_send(
    service: Api, database: FreshDatabase, queues: RecordedQueues
) -> None:
    queues.is_down = True
    assert service.post(RUNS, NEW).status == 202
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups WHERE sent_at IS NULL") == 1


def test_newest_version_is_pinned_when_none_is_named(service: Api, make_dataset: Callable[..., str]) -> None:
    make_dataset(version=2, sha256="b" * 64)
    by_name = service.post(RUNS, NEW).json["dataset"]
    by_version = service.post(RUNS, NEW | {"dataset": {"name": "questions", "version": 1}}).json["dataset"]
    by_content = service.post(RUNS, NEW | {"dataset": {"sha256": "b" * 64}}).json["dataset"]
    assert [one["version"] for one in (by_name, by_version, by_content)] == [2, 1, 2]


@pytest.mark.parametrize(
    ("change", "pointers"),
    [
        ({"name": ""}, ["/name"]),
        ({"dataset": {}}, ["/dataset"]),
        ({"dataset": {"name": "questions", "sha256": "a" * 64}}, ["/dataset"]),
        ({"dataset": {"sha256": "a" * 64, "version": 1}}, ["/dataset/version"]),
        ({"dataset": {"name": "questions", "version": 0}}, ["/dataset/version"]),
        ({"evaluators": []}, ["/evaluators"]),
        ({"evaluators": [{"name": "no_such"}]}, ["/evaluators/0/name"]),
        ({"evaluators": [{"name": "exact_match", "params": {"no": 1}}]}, ["/evaluators/0/params/no"]),
        ({"evaluators": [{"name": "exact_match"}, {"name": "exact_match"}]}, ["/evaluators/1/id"]),
        ({"gates": [{"metric": "other", "stat": "mean", "min": 0.5}]}, ["/gates/0/metric"]),
        ({"gates": [{"metric": "exact_match", "stat": "mean"}]}, ["/gates/0"]),
        # One slip of the pen is one fault, although a gate names what was meant.
        (
            {"evaluators": [{"name": "exact_mach"}], "gates": [{"metric": "exact_match", "stat": "mean", "min": 0.5}]},
            ["/evaluators/0/name"],
        ),
        (
            {"evaluators": [{"name": "exact_mach"}], "gates": [{"metric": "other", "stat": "mean", "min": 0.5}]},
            ["/evaluators/0/name", "/gates/0/metric"],
        ),
        ({"trials": 2}, ["/trials"]),
        ({"labels": {"a b": "x"}}, None),
        ({"max_errors": -1}, ["/max_errors"]),
        ({"evaluators": [{"name": "numeric_match", "params": {"tolerance": 10**30}}]}, None),
        ({"evaluators": [{"name": "contains", "params": {"a": [[[[[[[[[[0]]]]]]]]]]}}]}, None),
        ({"evaluators": [{"name": "contains", "params": DEEP}]}, None),
        ({"evaluators": [{"name": "contains", "params": {"a": 2**70}}]}, None),
    ],
)
@pytest.mark.parametrize("idempotency_key", [None, "k"])
def test_run_that_cannot_be_is_refused_with_every_place_named(
    service: Api,
    database: FreshDatabase,
    change: dict[str, Any],
    pointers: list[str] | None,
    idempotency_key: str | None,
) -> None:
    reply = service.post(RUNS, NEW | change, idempotency_key=idempotency_key)
    assert (reply.status, reply.code) == (400, "invalid_request"), reply.json
    assert pointers is None or reply.pointers == pointers
    assert database.look_up("SELECT count(*) FROM evals.runs") == 0


@pytest.mark.parametrize("dataset", [{"name": "absent"}, {"name": "questions", "version": 9}, {"sha256": "c" * 64}])
def test_run_of_a_dataset_that_is_not_there_is_a_404(service: Api, dataset: dict[str, Any]) -> None:
    reply = service.post(RUNS, NEW | {"dataset": dataset})
    assert (reply.status, reply.code) == (404, "not_found")


def test_dataset_of_another_project_is_not_there(service: Api, make_project: Callable[..., str]) -> None:
    make_project("other")
    assert service.post("/v1/projects/other/runs", NEW).status == 404


def test_runs_are_listed_newest_first_filtered_and_stable_under_inserts(service: Api) -> None:
    made = [service.post(RUNS, NEW | {"name": str(n), "labels": {"n": str(n % 2)}}).json["id"] for n in range(5)]
    first = service.get(RUNS, query="limit=2").json
    service.post(RUNS, NEW)
    second = service.get(RUNS, query=f"limit=2&cursor={first['next_cursor']}").json
    third = service.get(RUNS, query=f"limit=2&cursor={second['next_cursor']}").json
    seen = [run["id"] for page in (first, second, third) for run in page["items"]]
    assert seen == made[::-1]
    assert third["next_cursor"] is None
    odd = service.get(RUNS, query="label=n%3D1").json["items"]
    assert [run["id"] for run in odd] == [made[3], made[1]]
    assert service.get(RUNS, query="state=running").json["items"] == []
    after = first["items"][1]["created_at"]
    assert len(service.get(RUNS, query=f"created_after={after}").json["items"]) == 2


def test_unknown_run_is_a_404_everywhere(service: Api) -> None:
    for run in ("11111111-1111-1111-1111-111111111111", "not-a-uuid"):
        for path in ("", "/results", "/report"):
            assert service.get(f"{RUNS}/{run}{path}").status == 404


def test_report_of_an_unfinished_run_is_a_409_with_retry_after(service: Api) -> None:
    run_id = service.post(RUNS, NEW).json["id"]
    reply = service.get(f"{RUNS}/{run_id}/report")
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (409, "run_not_finished", "5")


def test_wait_returns_at_once_for_a_run_that_has_ended(
    service: Api, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = service.post(RUNS, NEW).json["id"]
    database.look("UPDATE evals.runs SET state = 'error', finished_at = clock_timestamp()")

    def fail(_: float) -> None:
        raise AssertionError("it must not wait")

    monkeypatch.setattr("time.sleep", fail)
    assert service.get(f"{RUNS}/{run_id}", query="wait_seconds=20").json["state"] == "error"


def test_wait_sees_a_run_end_between_two_looks(
    service: Api, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = service.post(RUNS, NEW).json["id"]

    def end(_: float) -> None:
        database.look("UPDATE evals.runs SET state = 'error', finished_at = clock_timestamp()")

    monkeypatch.setattr("time.sleep", end)
    assert service.get(f"{RUNS}/{run_id}", query="wait_seconds=20").json["state"] == "error"


def test_results_are_paged_in_the_order_of_the_records(service: Api, database: FreshDatabase) -> None:
    run_id = service.post(RUNS, NEW).json["id"]
    database.look(INSERT_RESULTS, {"run": run_id, "count": 3})
    seen: list[tuple[str, str]] = []
    query, page = "limit=4", dict[str, Any]()
    for _ in range(2):
        page = service.get(f"{RUNS}/{run_id}/results", query=query).json
        seen += [(result["record"], result["evaluator"]) for result in page["items"]]
        query = f"limit=4&cursor={page['next_cursor']}"
    assert seen == [(f"record {n}", evaluator) for n in range(3) for evaluator in ("a", "b")]
    assert page["next_cursor"] is None
    assert len(service.get(f"{RUNS}/{run_id}/results", query="evaluator=a").json["items"]) == 3
    assert service.get(f"{RUNS}/{run_id}/results", query="status=error").json["items"] == []


def test_cursor_made_by_hand_is_a_400(service: Api) -> None:
    from coordination.http.pages import encode_cursor

    run_id = service.post(RUNS, NEW).json["id"]
    for path, cursor in (
        (RUNS, encode_cursor("runs", ["yesterday", run_id])),
        (RUNS, encode_cursor("runs", ["2026-01-01", "no"])),
        (f"{RUNS}/{run_id}/results", encode_cursor("results", [2**40, 1, "a"])),
        (f"{RUNS}/{run_id}/results", encode_cursor("results", [1, 2**40, "a"])),
        (f"{RUNS}/{run_id}/results", encode_cursor("results", [1, 1, "\0"])),
        (f"{RUNS}/{run_id}/results", encode_cursor("results", [None, 1, "a"])),
        ("/v1/audit", encode_cursor("audit", ["9" * 40])),
        ("/v1/projects", encode_cursor("projects", ["\0"])),
        ("/v1/keys", encode_cursor("keys", ["2026-01-01", "\0"])),
    ):
        reply = service.get(path, query=f"cursor={cursor}")
        assert (reply.status, reply.code) == (400, "invalid_cursor"), (path, reply.json)


def test_40_concurrent_creates_one_below_the_quota_admit_one(
    make_order: Callable[..., Any],
    perform_together: Callable[..., list[Any]],
    service: Api,
    database: FreshDatabase,
) -> None:
    database.look("UPDATE coordination.projects SET max_stored_runs = 2")
    assert service.post(RUNS, NEW).status == 202
    orders = [make_order("runs.create", NEW, {"project": "demo"}, service.admin_key) for _ in range(40)]
    replies = perform_together(orders)
    assert sorted(reply.status for reply in replies) == [202] + [429] * 39
    assert {reply.code for reply in replies} == {None, "run_quota_exceeded"}
    assert {reply.headers.get("retry-after") for reply in replies} == {None, "60"}
    assert database.look_up("SELECT count(*) FROM evals.runs") == 2


def test_50_concurrent_duplicates_of_a_create_make_one_run(
    make_order: Callable[..., Any],
    perform_together: Callable[..., list[Any]],
    service: Api,
    database: FreshDatabase,
) -> None:
    order = make_order("runs.create", NEW, {"project": "demo"}, service.admin_key, "k")
    replies = perform_together([order] * 50)
    done = [reply for reply in replies if reply.status == 202]
    waiting = [reply for reply in replies if reply.status == 409]
    assert len(done) + len(waiting) == 50
    assert [reply.headers.get("idempotency-replayed") for reply in done].count(None) == 1
    assert len({reply.content for reply in done}) == 1
    assert {reply.code for reply in waiting} <= {"idempotency_in_progress"}
    assert database.look_up("SELECT count(*) FROM evals.runs") == 1
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 1
    assert order.perform(service.environment).content == done[0].content


def test_quota_is_refused_without_a_trace_and_the_key_may_be_used_again(service: Api, database: FreshDatabase) -> None:
    database.look("UPDATE coordination.projects SET max_stored_runs = 1")
    service.post(RUNS, NEW)
    assert service.post(RUNS, NEW, idempotency_key="k").status == 429
    database.look("UPDATE coordination.projects SET max_stored_runs = 2")
    assert service.post(RUNS, NEW, idempotency_key="k").status == 202
