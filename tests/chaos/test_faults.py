"""Messages come twice, late, out of order or never, and workers die: afterwards nothing is lost and nothing doubled.

Short enough for every test run.
"""

import itertools
import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

_numbers = itertools.count(1)
ORDER = {
    "name": "run",
    "dataset": {"name": "answers"},
    "evaluators": [{"name": "exact_match"}, {"name": "length"}],
}
RECORDS = 3_500
SHARDS = 4


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackClient]:
    with running_stack(tmp_path_factory.mktemp("stack"), environments=4) as stack, StackClient(stack) as client:
        yield client


@pytest.fixture
def project(client: StackClient) -> str:
    name = f"chaos-{next(_numbers)}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    return name


def make_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"r{number:06d}",
            "input": f"Question {number}",
            "output": "yes",
            "reference": "yes" if number % 4 else "no",
        }
        for number in range(count)
    ]


def start_run(client: StackClient, project: str) -> str:
    client.upload(project, "answers", make_rows(RECORDS))
    return str(client.expect(202, "POST", f"/v1/projects/{project}/runs", json=ORDER)["id"])


def list_messages(client: StackClient, project: str, run_id: str) -> list[dict[str, str]]:
    """Every message that the run has had or may have."""
    shards = client.look(
        "SELECT id FROM scheduler.policy_run_jobs WHERE tenant_id = %(project)s ORDER BY shard_no", {"project": project}
    )
    return [
        {"kind": "run", "project": project, "ref_id": run_id},
        *({"kind": "shard", "project": project, "ref_id": str(shard["id"])} for shard in shards),
        {"kind": "finish", "project": project, "ref_id": run_id},
    ]


def check_run(client: StackClient, project: str, run_id: str) -> dict[str, Any]:
    """Check that every record was scored once by each evaluator and return the run with its report."""
    run = client.wait_for_run(project, run_id)
    assert (run["state"], run["error"]) == ("succeeded", None)
    assert run["progress"] == {
        "total": RECORDS,
        "done": RECORDS,
        "scored": 2 * RECORDS,
        "skipped": 0,
        "errors": 0,
    }
    (counts,) = client.look(
        """SELECT count(*) AS results, count(DISTINCT (record, evaluator)) AS distinct_results
             FROM evals.run_results WHERE tenant_id = %(project)s""",
        {"project": project},
    )
    assert counts == {"results": 2 * RECORDS, "distinct_results": 2 * RECORDS}
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run_id}/report")
    assert [metric["mean"] for metric in report["metrics"]] == [0.75, 3.0]
    return {"run": run, "report": report}


def test_messages_that_come_twice_late_and_out_of_order_change_nothing(client: StackClient, project: str) -> None:
    run_id = start_run(client, project)
    # Before there is a shard, and again and again while shards are at work, the last things first.
    first, last = list_messages(client, project, run_id)[0], list_messages(client, project, run_id)[-1]
    client.send("EvaluationQueue", last, first, first, last)

    def has_shards() -> list[dict[str, str]] | None:
        messages = list_messages(client, project, run_id)
        return messages if len(messages) == SHARDS + 2 else None

    messages = client.wait(has_shards, "shards")
    client.send("EvaluationQueue", *reversed(messages), *messages)
    before = check_run(client, project, run_id)

    client.send("EvaluationQueue", *messages, *reversed(messages))
    client.drain()

    assert check_run(client, project, run_id) == before
    assert client.look("SELECT id FROM coordination.wake_ups WHERE project = %(project)s", {"project": project}) == []


def test_pulses_at_once_do_not_send_the_same_message(client: StackClient, project: str) -> None:
    client.drain()
    client.upload(project, "answers", make_rows(RECORDS))
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": True})
    run_ids = [client.expect(202, "POST", f"/v1/projects/{project}/runs", json=ORDER)["id"] for _ in range(2)]
    client.drain()
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": False})
    client.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp() WHERE project = %(project)s", {"project": project}
    )

    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(client.fire, ["PulseSchedule"] * 3))

    # None finds what another has found; the stack's own pulse of the minute may have been there first.
    assert sum(answer["sent"] for answer in answers) <= len(run_ids)
    for run_id in run_ids:
        assert client.wait_for_run(project, run_id)["state"] == "succeeded"
    for _ in range(3):
        client.fire("PulseSchedule")
    client.drain()
    (counts,) = client.look(
        "SELECT count(*) AS results FROM evals.run_results WHERE tenant_id = %(project)s", {"project": project}
    )
    assert counts["results"] == 2 * 2 * RECORDS


def test_run_whose_messages_are_lost_is_found_by_the_pulse(client: StackClient, project: str) -> None:
    client.upload(project, "answers", make_rows(RECORDS))
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": True})
    run_id = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=ORDER)["id"]
    client.drain()
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": False})
    # Its only message was acknowledged while the project was paused; the row alone knows of the work.

    client.recover()

    check_run(client, project, run_id)


def test_import_whose_converter_is_killed_becomes_one_dataset(client: StackClient, project: str) -> None:
    rows = [{**row, "context": ["x" * 500]} for row in make_rows(90_000)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    client.drop(project, "large.jsonl", content)

    def is_at_work() -> bool | None:
        running = "SELECT 1 FROM scheduler.jobs WHERE tenant_id = %(project)s AND state = 'running'"
        return bool(client.look(running, {"project": project})) or None

    client.wait(is_at_work, "the conversion")
    killed_at_work = client.kill_and_expire("DatasetConversionFunction")
    client.recover()
    ended = client.wait_for_import(project, "large.jsonl")
    client.forget_messages("IncomingQueue")

    assert killed_at_work >= 1
    assert (ended["state"], ended["error"], ended["dataset"]["records"]) == ("succeeded", None, len(rows))
    assert ended["attempts"] == 2
    assert len(client.list_imports(project)) == 1
    datasets = client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"]
    assert [(dataset["name"], dataset["version"]) for dataset in datasets] == [("large", 1)]
    objects = client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=f"datasets/{project}/")["Contents"]
    assert [item["Key"].rpartition("/")[2].partition(".")[0] for item in objects] == [datasets[0]["sha256"]] * 2


def test_keyed_writes_take_effect_once_while_the_api_is_killed(client: StackClient, project: str) -> None:
    writes = 24

    def write(number: int) -> str:
        body = {"id": f"{project}-{number}"}

        def send() -> str | None:
            try:
                answer = client.request("POST", "/v1/projects", idempotency_key=f"{project}-{number}", json=body)
            except httpx.TransportError:
                return None
            if answer.status_code in (409, 500, 502, 503):
                # In progress, or its worker was killed: the same request again, under the same key.
                return None
            assert answer.status_code == 201, answer.text
            return str(answer.json()["id"])

        return client.wait(send, f"write {number}")

    with ThreadPoolExecutor(4) as threads:
        pending = [threads.submit(write, number) for number in range(writes)]
        for position in (2, 8, 14):
            pending[position].result()
            client.kill("ApiFunction")
        written = [future.result() for future in pending]

    assert written == [f"{project}-{number}" for number in range(writes)]
    (counts,) = client.look(
        """SELECT (SELECT count(*) FROM coordination.projects WHERE id LIKE %(ids)s) AS projects,
                  (SELECT count(*) FROM coordination.idempotency_records
                    WHERE operation = 'projects.create' AND tenant_id = '-'
                      AND convert_from(body, 'UTF8')::jsonb ->> 'id' LIKE %(ids)s) AS outcomes""",
        {"ids": f"{project}-%"},
    )
    assert counts == {"projects": writes, "outcomes": writes}
