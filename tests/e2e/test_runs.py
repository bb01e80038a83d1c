"""Runs: from a file in the bucket to a report, and the ways in which they end."""

import io
import math
from statistics import fmean, stdev
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evalward_local.stack_client import StackClient

ANSWERS = ["Paris", "paris", "It is Paris.", "London", "I do not know", "PARIS  "]


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"record-{number:05d}",
            "input": f"What is the capital of France? ({number})",
            "output": ANSWERS[number * 7 % len(ANSWERS)],
            "reference": "Paris",
            "usage": {"input_tokens": 10 + number % 3, "output_tokens": 5, "latency_ms": 100 + number * 37 % 400},
        }
        for number in range(count)
    ]


def start_run(client: StackClient, project: str, **fields: Any) -> dict[str, Any]:
    order = {"name": "run", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}], **fields}
    return client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)


def test_parquet_file_is_scored_as_plain_python_scores_it(client: StackClient, project: str) -> None:
    rows = make_rows(2_345)
    for row in rows[5::10]:
        del row["reference"]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    key = client.drop(project, "answers.parquet", buffer.getvalue())
    assert client.wait_for_import(project, key)["state"] == "succeeded"

    run = start_run(
        client,
        project,
        evaluators=[
            {"name": "exact_match", "params": {"ignore_case": True, "ignore_whitespace": True}},
            {"name": "contains", "params": {"text": "Paris"}},
            {"name": "latency"},
            {"id": "tokens-out", "name": "tokens", "params": {"count": "output"}},
        ],
        labels={"suite": "nightly"},
    )
    assert (run["state"], run["progress"]["total"]) == ("pending", len(rows))
    run = client.wait_for_run(project, run["id"])

    assert (run["state"], run["error"]) == ("succeeded", None)
    referenced = [row for row in rows if "reference" in row]
    scores = {
        "exact_match": [float(row["output"].strip().lower() == "paris") for row in referenced],
        "contains": [float("Paris" in row["output"]) for row in rows],
        "latency": [float(row["usage"]["latency_ms"]) for row in rows],
        "tokens-out": [5.0] * len(rows),
    }
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run['id']}/report")
    assert [metric["id"] for metric in report["metrics"]] == list(scores)
    for metric in report["metrics"]:
        expected = scores[metric["id"]]
        assert metric["n"] == metric["scored"] == len(expected)
        assert (metric["skipped"], metric["errors"]) == (len(rows) - len(expected), 0)
        assert metric["coverage"] == len(expected) / len(rows)
        assert math.isclose(metric["mean"], fmean(expected), rel_tol=1e-12)
        assert math.isclose(metric["std"], stdev(expected), rel_tol=1e-9, abs_tol=1e-9)
        assert metric["ci_low"] <= metric["mean"] <= metric["ci_high"]
    assert report["usage"] == {
        "input_tokens": sum(row["usage"]["input_tokens"] for row in rows),
        "output_tokens": 5 * len(rows),
        "cost_usd": None,
        "latency_ms": None,
    }
    total = sum(map(len, scores.values()))
    assert run["progress"] == {
        "total": len(rows),
        "done": len(rows),
        "scored": total,
        "skipped": 4 * len(rows) - total,
        "errors": 0,
    }


def test_failed_gate_fails_the_run_and_says_why(client: StackClient, project: str) -> None:
    client.upload(project, "answers", make_rows(60))
    gates = [
        {"metric": "exact_match", "stat": "mean", "min": 0.1},
        {"metric": "exact_match", "stat": "ci_low", "min": 0.9},
    ]

    run = client.wait_for_run(project, start_run(client, project, gates=gates)["id"])

    assert (run["state"], run["error"]) == ("failed", None)
    assert [gate["passed"] for gate in run["gates"]] == [True, False]
    assert "is less than 0.9" in run["gates"][1]["reason"]
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run['id']}/report")
    assert report["passed"] is False
    assert report["gates"] == run["gates"]


def test_run_with_more_errors_than_allowed_ends_in_error(client: StackClient, project: str) -> None:
    rows = make_rows(20)
    for row in rows:
        row["output"] = "{}"
    for row in rows[:3]:
        # As text a row may hold it, as a value it is too deep for a validator.
        row["output"] = "[" * 100 + "]" * 100
    client.upload(project, "answers", rows)
    evaluators = [{"name": "json_schema", "params": {"schema": {"type": "object"}}}]

    ends = [
        client.wait_for_run(project, start_run(client, project, evaluators=evaluators, max_errors=allowed)["id"])
        for allowed in (3, 2)
    ]

    assert (ends[0]["state"], ends[0]["progress"]["errors"], ends[0]["progress"]["scored"]) == ("succeeded", 3, 17)
    assert (ends[1]["state"], ends[1]["error"]["code"]) == ("error", "too_many_errors")
    path = f"/v1/projects/{project}/runs"
    report = client.expect(200, "GET", f"{path}/{ends[0]['id']}/report")
    assert (report["metrics"][0]["mean"], report["metrics"][0]["coverage"]) == (1.0, 17 / 20)
    assert client.expect(409, "GET", f"{path}/{ends[1]['id']}/report")["code"] == "run_without_report"
    errors = client.expect(200, "GET", f"{path}/{ends[1]['id']}/results?status=error")["items"]
    assert [error["record"] for error in errors] == [row["id"] for row in rows[:3]]
    assert "nested deeper" in errors[0]["error"]


def test_paused_project_takes_a_run_and_dispatches_it_once_it_goes_on(client: StackClient, project: str) -> None:
    client.upload(project, "answers", make_rows(10))
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": True})
    run = start_run(client, project)

    client.drain()
    client.recover()
    client.drain()
    waiting = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run['id']}")
    problem = client.expect(409, "GET", f"/v1/projects/{project}/runs/{run['id']}/report")
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": False})
    client.recover()

    assert (waiting["state"], waiting["started_at"]) == ("pending", None)
    assert problem["code"] == "run_not_finished"
    assert client.wait_for_run(project, run["id"])["state"] == "succeeded"


def test_results_are_paged_in_the_order_of_the_records(client: StackClient, project: str) -> None:
    rows = make_rows(25)
    client.upload(project, "answers", rows)
    run = start_run(client, project, evaluators=[{"name": "exact_match"}, {"name": "length"}])
    client.wait_for_run(project, run["id"])
    path = f"/v1/projects/{project}/runs/{run['id']}/results?limit=20"

    pages: list[dict[str, Any]] = [client.expect(200, "GET", path)]
    while pages[-1]["next_cursor"]:
        pages.append(client.expect(200, "GET", f"{path}&cursor={quote(pages[-1]['next_cursor'])}"))

    results = [result for page in pages for result in page["items"]]
    assert [len(page["items"]) for page in pages] == [20, 20, 10]
    expected = [(row["id"], evaluator) for row in rows for evaluator in ("exact_match", "length")]
    assert [(result["record"], result["evaluator"]) for result in results] == expected
    assert [result["score"] for result in results[1::2]] == [float(len(row["output"])) for row in rows]
    of_one = client.expect(200, "GET", f"{path}&evaluator=length")["items"]
    assert {result["evaluator"] for result in of_one} == {"length"}


def test_runs_are_listed_by_state_and_label(client: StackClient, project: str) -> None:
    client.upload(project, "answers", make_rows(3))
    nightly = start_run(client, project, labels={"suite": "nightly", "team": "a"})
    manual = start_run(client, project, labels={"suite": "manual"})
    for run in (nightly, manual):
        client.wait_for_run(project, run["id"])
    path = f"/v1/projects/{project}/runs"

    def ids(query: str) -> list[str]:
        return [run["id"] for run in client.expect(200, "GET", f"{path}{query}")["items"]]

    assert ids("") == [manual["id"], nightly["id"]]
    assert ids("?label=suite%3Dnightly") == [nightly["id"]]
    assert ids("?state=succeeded&label=suite%3Dmanual") == [manual["id"]]
    assert ids("?state=error") == []
    assert ids(f"?created_after={quote(nightly['created_at'])}") == [manual["id"]]
    assert client.expect(400, "GET", f"{path}?label=suite")["errors"][0]["pointer"] == "/label"


def test_run_is_pinned_to_the_version_it_was_created_on(client: StackClient, project: str) -> None:
    first = client.upload(project, "answers", make_rows(5))
    run = start_run(client, project)
    client.upload(project, "answers", make_rows(6))

    assert client.wait_for_run(project, run["id"])["progress"]["total"] == 5
    assert run["dataset"] == {"name": "answers", "version": 1, "sha256": first["sha256"]}
    again = start_run(client, project, dataset={"name": "answers", "version": 1})
    by_digest = start_run(client, project, dataset={"sha256": first["sha256"]})
    assert run["dataset"] == again["dataset"] == by_digest["dataset"]


@pytest.mark.parametrize("dataset", [{"name": "other"}, {"name": "answers", "version": 9}, {"sha256": "0" * 64}])
def test_run_over_an_unknown_dataset_is_404(client: StackClient, project: str, dataset: dict[str, Any]) -> None:
    client.upload(project, "answers", make_rows(1))
    order = {"name": "run", "dataset": dataset, "evaluators": [{"name": "exact_match"}]}

    assert client.expect(404, "POST", f"/v1/projects/{project}/runs", json=order)["code"] == "not_found"


def test_quota_of_stored_runs_is_kept(client: StackClient, project: str) -> None:
    client.upload(project, "answers", make_rows(1))
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"quotas": {"max_stored_runs": 1}})
    start_run(client, project)
    order = {"name": "run", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}]}

    answer = client.request("POST", f"/v1/projects/{project}/runs", json=order)

    assert (answer.status_code, answer.json()["code"]) == (429, "run_quota_exceeded")
    assert int(answer.headers["retry-after"]) > 0
