"""Functions are killed in the middle of their work, and the work ends right."""

import json
from collections.abc import Generator
from statistics import fmean
from typing import Any

import pytest
from evalward_local.stack_client import StackClient

RECORDS = 20_000
KILLS = 3
ANSWERS = ["The capital is Paris.", "paris", "Lyon, I believe", "Paris is the capital of France", "I do not know"]
# Enough work for a shard that a kill finds some of them at it.
EVALUATORS: list[dict[str, Any]] = [
    {"name": "contains", "params": {"ignore_case": True}},
    {"name": "token_f1"},
    {"name": "fuzzy_match", "params": {"method": "token_set_ratio", "ignore_case": True}},
    {"name": "length"},
]
FUNCTION = "RunEvaluationFunction"


@pytest.fixture
def no_leftovers(client: StackClient) -> Generator[None]:
    """Take away the messages that killed environments still hold: they would come back after 150 s."""
    yield
    client.forget_messages("EvaluationQueue")


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{number:05d}",
            "input": f"Question {number}: what is the capital of France?",
            "output": ANSWERS[number * 13 % len(ANSWERS)],
            "reference": "Paris",
        }
        for number in range(count)
    ]


@pytest.mark.usefixtures("no_leftovers")
def test_run_of_20000_records_survives_kills_of_its_workers(client: StackClient, project: str) -> None:
    rows = make_rows(RECORDS)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    key = client.drop(project, "large.jsonl", content)
    assert client.wait_for_import(project, key)["state"] == "succeeded"
    order = {"name": "large", "dataset": {"name": "large"}, "evaluators": EVALUATORS}
    path = f"/v1/projects/{project}/runs"
    run = client.expect(202, "POST", path, idempotency_key="large", json=order)
    shards = "FROM scheduler.policy_run_jobs WHERE tenant_id = %(project)s"

    killed_at_work = 0
    for least_done in range(1, KILLS + 1):
        # Some shards are done, and some are in hands that are alive.
        def is_in_the_middle(least_done: int = least_done) -> bool | None:
            (row,) = client.look(
                f"""SELECT count(*) FILTER (WHERE state = 'completed') AS done,
                           (SELECT count(*) FROM coordination.leases
                             WHERE starts_with(name, 'shard:' || %(project)s || ':')
                               AND expires_at > clock_timestamp()) AS held {shards}""",
                {"project": project},
            )
            return (row["done"] >= least_done and row["held"] >= 2) or row["done"] == RECORDS / 1000 or None

        client.wait(is_in_the_middle, "shards at work")
        killed_at_work += client.kill_and_expire(FUNCTION)
        client.recover()

    def has_ended() -> dict[str, Any] | None:
        seen = client.expect(200, "GET", f"{path}/{run['id']}?wait_seconds=3")
        if seen["finished_at"] is None:
            client.recover()
            return None
        return seen

    ended = client.wait(has_ended, "the run to end")

    assert killed_at_work > 0
    assert (ended["state"], ended["error"]) == ("succeeded", None)
    results = RECORDS * len(EVALUATORS)
    assert ended["progress"] == {
        "total": RECORDS,
        "done": RECORDS,
        "scored": results,
        "skipped": 0,
        "errors": 0,
    }
    (counts,) = client.look(
        """SELECT count(*) AS results, count(DISTINCT (record, evaluator)) AS distinct_results,
                  count(DISTINCT record) AS records
             FROM evals.run_results WHERE tenant_id = %(project)s""",
        {"project": project},
    )
    assert counts == {"results": results, "distinct_results": results, "records": RECORDS}
    (states,) = client.look(
        f"SELECT array_agg(DISTINCT state) AS states, count(*) AS shards, max(attempts) AS attempts {shards}",
        {"project": project},
    )
    assert (states["states"], states["shards"]) == (["completed"], RECORDS // 1000)
    assert states["attempts"] > 1
    report = client.expect(200, "GET", f"{path}/{run['id']}/report")
    means = {metric["id"]: metric["mean"] for metric in report["metrics"]}
    assert means["contains"] == pytest.approx(fmean("paris" in row["output"].lower() for row in rows), rel=1e-12)
    assert means["length"] == pytest.approx(fmean(len(row["output"]) for row in rows), rel=1e-12)


def test_api_goes_on_after_its_environments_were_killed(client: StackClient, project: str) -> None:
    client.kill("ApiFunction")
    client.kill("DatasetConversionFunction")

    dataset = client.upload(project, "answers", make_rows(3))

    assert client.expect(200, "GET", f"/v1/projects/{project}/datasets/answers@1") == dataset
