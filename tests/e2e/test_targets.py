"""Runs whose outputs an endpoint makes, on a running stack, also while its workers are killed."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient
from evalward_local.target_server import Asked, Reply, TargetServer, echo

RECORDS = 1_200
KILLS = 3
CONCURRENCY = 8
FUNCTION = "RunEvaluationFunction"


@pytest.fixture(scope="module")
def endpoint() -> Generator[TargetServer]:
    with TargetServer() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, endpoint: TargetServer) -> Generator[StackClient]:
    hosts = {"OutgoingAllowedHosts": json.dumps({"*": [endpoint.host]})}
    with (
        running_stack(tmp_path_factory.mktemp("stack"), environments=4, parameters=hosts) as stack,
        StackClient(stack) as client,
    ):
        yield client


def make_rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"r{at}", "input": f"q{at}", "reference": f"answer to q{at}"} for at in range(count)]


def start(client: StackClient, project: str, endpoint: TargetServer, **fields: Any) -> str:
    order = {
        "name": "asked",
        "dataset": {"name": "questions"},
        "evaluators": [{"name": "exact_match"}, {"name": "cost"}, {"name": "latency"}],
        "target": {"kind": "http", "url": endpoint.url, "timeout_seconds": 20},
        "concurrency": CONCURRENCY,
        **fields,
    }
    return str(client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order, idempotency_key="run")["id"])


def test_run_asks_an_endpoint_and_reports_what_that_took(client: StackClient, endpoint: TargetServer) -> None:
    client.expect(201, "POST", "/v1/projects", json={"id": "asking"})
    client.upload("asking", "questions", make_rows(30))

    def answer(asked: Asked) -> Reply:
        match asked.body["record"], asked.times:
            case "r1", 1:
                return Reply(status=429, headers={"retry-after": "1"})
            case "r2", 1:
                return Reply(status=503)
            case "r3", _:
                return Reply(status=404)
            case _:
                return echo(asked)

    endpoint.answer = answer
    endpoint.forget()
    run = start(client, "asking", endpoint, trials=2)
    ended = client.wait_for_run("asking", run)
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert ended["progress"] == {"total": 30, "done": 30, "scored": 58 * 3, "skipped": 0, "errors": 2 * 3}
    report = client.expect(200, "GET", f"/v1/projects/asking/runs/{run}/report")
    assert report["usage"]["cost_usd"] == 58 * 0.25
    assert report["usage"]["latency_ms"]["n"] == 58
    # A body is another one for each trial, so each trial of r1 and r2 was asked again once.
    times = endpoint.times_asked()
    assert {record for record, count in times.items() if count > 1} == {"r1/1", "r1/2", "r2/1", "r2/2"}
    page = client.request("GET", f"/v1/projects/asking/runs/{run}/report?format=markdown").text
    assert "| Latency |" in page


def test_killed_workers_ask_again_only_for_what_was_not_written(client: StackClient, endpoint: TargetServer) -> None:
    client.expect(201, "POST", "/v1/projects", json={"id": "killed"})
    client.upload("killed", "questions", make_rows(RECORDS))
    endpoint.answer = echo
    endpoint.forget()
    run = start(client, "killed", endpoint)
    path = f"/v1/projects/killed/runs/{run}"
    # What was written at each kill, and how many questions had come by then.
    kept: list[tuple[set[str], int]] = []
    killed_at_work = 0
    for least in range(1, KILLS + 1):

        def is_in_the_middle(least: int = least) -> bool | None:
            (row,) = client.look("SELECT count(*) AS outputs FROM evals.run_outputs WHERE tenant_id = 'killed'")
            return row["outputs"] >= least * RECORDS // (KILLS + 2) or None

        client.wait(is_in_the_middle, "outputs to be written")
        killed_at_work += client.kill_and_expire(FUNCTION)
        rows = client.look("SELECT record FROM evals.run_outputs WHERE tenant_id = 'killed'")
        kept.append(({row["record"] for row in rows}, len(endpoint.asked)))
        client.recover()

    def has_ended() -> dict[str, Any] | None:
        seen = client.expect(200, "GET", f"{path}?wait_seconds=3")
        if seen["finished_at"] is None:
            client.recover()
            return None
        return seen

    ended = client.wait(has_ended, "the run to end")
    client.forget_messages("EvaluationQueue")
    assert killed_at_work > 0
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    assert ended["progress"] == {"total": RECORDS, "done": RECORDS, "scored": RECORDS * 3, "skipped": 0, "errors": 0}
    (counts,) = client.look(
        "SELECT (SELECT count(*) FROM evals.run_outputs WHERE tenant_id = 'killed') AS outputs,"
        " count(*) AS results, count(DISTINCT (record, evaluator)) AS distinct_results"
        " FROM evals.run_results WHERE tenant_id = 'killed'"
    )
    assert counts == {"outputs": RECORDS, "results": RECORDS * 3, "distinct_results": RECORDS * 3}
    report = client.expect(200, "GET", f"{path}/report")
    assert {metric["id"]: metric["mean"] for metric in report["metrics"]}["exact_match"] == 1.0
    assert report["usage"]["cost_usd"] == RECORDS * 0.25
    for written, asked_by_then in kept:
        assert not written & {one.body["record"] for one in endpoint.asked[asked_by_then:]}
    times = endpoint.times_asked()
    # Each of two shards loses, at a kill, what was ready to be written and what was on its way.
    repeated = sum(times.values()) - RECORDS
    assert repeated <= killed_at_work * (50 + CONCURRENCY)
    assert max(times.values()) <= 1 + KILLS


def test_judge_at_an_endpoint_grades_what_the_target_made(client: StackClient, endpoint: TargetServer) -> None:
    client.expect(201, "POST", "/v1/projects", json={"id": "judged"})
    client.upload("judged", "questions", make_rows(20))

    def answer(asked: Asked) -> Reply:
        if "messages" not in asked.body:
            return echo(asked)
        material = asked.body["messages"][1]["content"].split("\n")[1]
        grade = 5 if json.loads(material)["output"] != "answer to q7" else 2
        return Reply({"choices": [{"message": {"content": json.dumps({"reasoning": "so", "grade": grade})}}]})

    endpoint.answer = answer
    endpoint.forget()
    params = {
        "provider": "openai",
        "model": "judge-1",
        "rubric": "5: answers the question. 1: does not.",
        "url": f"http://{endpoint.host}/v1/chat/completions",
        "pass_at_least": 0.5,
    }
    evaluators = [{"name": "llm_judge", "params": params}]
    gates = [{"metric": "llm_judge", "stat": "mean", "min": 0.9}]
    run = start(client, "judged", endpoint, evaluators=evaluators, gates=gates)
    ended = client.wait_for_run("judged", run)
    assert (ended["state"], ended["progress"]["scored"]) == ("succeeded", 20)
    report = client.expect(200, "GET", f"/v1/projects/judged/runs/{run}/report")
    (metric,) = report["metrics"]
    assert (metric["passed"], metric["failed"]) == (19, 1)
    assert metric["mean"] == pytest.approx((19 + 0.25) / 20)
    assert report["worst"][0]["record"] == "r7"
