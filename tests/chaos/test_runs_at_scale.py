"""A large run gives the results of a plain loop: with one, two and four environments, and with messages that come
twice, late and out of order while environments are killed at random.

`make chaos` runs it with 100,000 records; otherwise it has 5,000.
"""

import json
import os
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient
from records.evaluators import catalogue
from records.record import Record

# Read here: the tests' environment is cleaned of such variables before the first fixture.
RECORDS = int(os.environ.get("EVALWARD_CHAOS_RECORDS", "5000"))
SEED = int(os.environ.get("EVALWARD_CHAOS_SEED", "6"))
SHARDS = -(-RECORDS // 1000)
# A shard may be begun five times.
KILLS = 4
ANSWERS = ["The capital is Paris.", "paris", "Lyon, I believe", "Paris is the capital of France", "I do not know"]
EVALUATORS: list[dict[str, Any]] = [
    {"name": "exact_match", "params": {"ignore_case": True}},
    {"name": "contains", "params": {"ignore_case": True}},
    {"name": "token_f1", "params": {}},
]
FUNCTION = "RunEvaluationFunction"
PROJECT = "large"
RUNS = f"/v1/projects/{PROJECT}/runs"

type Row = tuple[int, str, str, str, float | None, bool | None, str | None]


def make_rows() -> list[dict[str, Any]]:
    chance = random.Random(SEED)
    rows: list[dict[str, Any]] = []
    for number in range(RECORDS):
        row = {"id": f"r{number:06d}", "input": f"Question {number}: what is the capital of France?"}
        # Some have nothing to judge.
        row |= {"output": chance.choice(ANSWERS)} if chance.random() > 0.01 else {}
        row |= {"reference": "Paris"} if chance.random() > 0.01 else {}
        rows.append(row)
    return rows


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return make_rows()


@pytest.fixture(scope="module")
def expected(rows: list[dict[str, Any]]) -> list[Row]:
    """Score every record in a plain loop, in the order of the results."""
    scorers = {one["name"]: catalogue.build(one["name"], one["params"]) for one in EVALUATORS}
    results: list[Row] = []
    for number, row in enumerate(rows):
        record = Record(row["id"], row["input"], row.get("output"), row.get("reference"))
        for name in sorted(scorers):
            score = scorers[name](record)
            results.append((number, name, record.id, score.status, score.score, score.passed, score.message))
    return results


@contextmanager
def stack_with(folder: Path, environments: int, rows: list[dict[str, Any]]) -> Generator[StackClient]:
    """Run a stack whose functions have so many environments, and publish the records."""
    with running_stack(folder, environments=environments) as stack, StackClient(stack) as client:
        client.expect(201, "POST", "/v1/projects", json={"id": PROJECT})
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        key = client.drop(PROJECT, "answers.jsonl", content)
        assert client.wait_for_import(PROJECT, key)["state"] == "succeeded"
        yield client


def start_run(client: StackClient) -> str:
    order = {"name": "large", "dataset": {"name": "answers"}, "evaluators": EVALUATORS}
    return str(client.expect(202, "POST", RUNS, idempotency_key="large", json=order)["id"])


def check_results(client: StackClient, run_id: str, expected: list[Row]) -> None:
    """Insist on the results of the plain loop, in the database and in the report, and on nothing left behind."""
    run = client.expect(200, "GET", f"{RUNS}/{run_id}")
    assert (run["state"], run["error"]) == ("succeeded", None)
    statuses = [row[3] for row in expected]
    assert run["progress"] == {
        "total": RECORDS,
        "done": RECORDS,
        "scored": statuses.count("scored"),
        "skipped": statuses.count("skipped"),
        "errors": statuses.count("error"),
    }
    stored = client.look(
        """SELECT record_no, evaluator, record, status, score, passed, error FROM evals.run_results
            WHERE tenant_id = %(project)s ORDER BY record_no, trial, evaluator COLLATE "C" """,
        {"project": PROJECT},
    )
    assert len(stored) == len(expected)
    # Not as one comparison: explaining how two lists of so many rows differ takes minutes.
    differing = [
        (there, wanted)
        for there, wanted in zip((tuple(row.values()) for row in stored), expected, strict=True)
        if there != wanted
    ]
    assert differing[:3] == []
    report = client.expect(200, "GET", f"{RUNS}/{run_id}/report")
    for metric in report["metrics"]:
        scores = [row[4] for row in expected if row[1] == metric["id"] and row[4] is not None]
        assert metric["n"] == len(scores)
        assert metric["mean"] == pytest.approx(fmean(scores), rel=1e-12)
    client.drain(120)
    assert client.look("SELECT kind FROM coordination.wake_ups") == []
    assert client.look("SELECT name FROM coordination.leases WHERE name LIKE 'shard:%' AND owner IS NOT NULL") == []


def wait_for_end(client: StackClient, run_id: str) -> None:
    def has_ended() -> bool | None:
        if client.expect(200, "GET", f"{RUNS}/{run_id}?wait_seconds=5")["finished_at"] is not None:
            return True
        client.recover()
        return None

    # Longer than one wait: with one environment a large run takes its time.
    for _ in range(4):
        try:
            client.wait(has_ended, "the run to end")
        except AssertionError:
            continue
        return
    raise AssertionError("the run does not end")


def count_done(client: StackClient) -> int:
    (row,) = client.look("SELECT coalesce(sum(shards_done), 0) AS done FROM evals.runs")
    return int(row["done"])


@pytest.mark.long
@pytest.mark.parametrize("environments", [1, 2, 4])
def test_results_are_those_of_a_plain_loop(
    tmp_path: Path, environments: int, rows: list[dict[str, Any]], expected: list[Row]
) -> None:
    with stack_with(tmp_path, environments, rows) as client:
        run_id = start_run(client)
        wait_for_end(client, run_id)
        check_results(client, run_id, expected)


def test_chaos_changes_no_result(tmp_path: Path, rows: list[dict[str, Any]], expected: list[Row]) -> None:
    chance = random.Random(SEED)
    with stack_with(tmp_path, 4, rows) as client:
        run_id = start_run(client)
        # Before there is a shard: an end that nobody has reached, and the beginning again.
        ends = [{"kind": kind, "project": PROJECT, "ref_id": run_id} for kind in ("finish", "run", "run", "finish")]
        client.send("EvaluationQueue", *ends)

        def list_shards() -> list[dict[str, str]] | None:
            ids = client.look("SELECT id FROM scheduler.policy_run_jobs ORDER BY shard_no")
            return [{"kind": "shard", "project": PROJECT, "ref_id": str(row["id"])} for row in ids] or None

        shards = client.wait(list_shards, "shards")
        assert len(shards) == SHARDS
        killed_at_work = 0
        for least_done in sorted(chance.sample(range(SHARDS - 1), KILLS)):
            client.wait(lambda least=least_done: count_done(client) >= least or None, f"{least_done} shards done")
            again = [*chance.sample(shards, min(SHARDS, 8)), chance.choice(ends)]
            chance.shuffle(again)
            client.send("EvaluationQueue", *again)
            killed_at_work += client.kill_and_expire(FUNCTION)
            client.recover()
        wait_for_end(client, run_id)
        # Those that killed environments still hold would come back after 150 s.
        client.forget_messages("EvaluationQueue")
        check_results(client, run_id, expected)

        # Late: everything once more, the other way round.
        client.send("EvaluationQueue", *ends, *reversed(shards))
        client.drain(120)
        check_results(client, run_id, expected)
        assert killed_at_work > 0
        (attempts,) = client.look("SELECT sum(attempts) AS begun, max(attempts) AS most FROM scheduler.policy_run_jobs")
        assert attempts["begun"] > SHARDS
        assert attempts["most"] <= 5
