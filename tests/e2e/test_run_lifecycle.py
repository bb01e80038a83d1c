"""A run on a running stack: reported in four forms, compared, labelled, cancelled, resumed, deleted, expired."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from evalward_local.stack_client import StackClient

ROWS = [{"id": str(at), "input": "q", "output": "a" if at % 3 else "b", "reference": "a"} for at in range(30)]
EVALUATORS = [{"name": "exact_match"}, {"name": "token_f1"}]


def create(client: StackClient, project: str, **fields: Any) -> str:
    order = {"name": "nightly", "dataset": {"name": "answers"}, "evaluators": EVALUATORS, **fields}
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)
    return str(run["id"])


def test_report_is_read_in_four_forms(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    run = create(client, project, gates=[{"metric": "exact_match", "stat": "mean", "min": 0.9}])
    assert client.wait_for_run(project, run)["state"] == "failed"
    path = f"/v1/projects/{project}/runs/{run}/report"

    report = client.expect(200, "GET", path)
    page = client.request("GET", path, headers={"accept": "text/html"})
    text = client.request("GET", f"{path}?format=markdown")
    junit = client.request("GET", path, headers={"accept": "application/xml"})

    assert (report["passed"], report["metrics"][0]["passed"], report["metrics"][0]["failed"]) == (False, 20, 10)
    assert [one["record"] for one in report["worst"] if one["evaluator"] == "exact_match"][:3] == ["0", "3", "6"]
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<h2>Gates</h2>" in page.text
    assert text.text.startswith("# ❌ Failed: nightly")
    assert ElementTree.fromstring(junit.content).get("failures") == "1"


def test_two_runs_are_compared(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    first = create(client, project)
    better = [row | {"output": "a"} if row["id"] == "0" else row for row in ROWS]
    client.wait_for_run(project, first)
    client.upload(project, "answers", better)
    second = create(client, project)
    client.wait_for_run(project, second)

    compared = client.expect(200, "GET", f"/v1/projects/{project}/runs:compare?baseline={first}&candidate={second}")

    (exact, _) = compared["metrics"]
    assert (exact["n"], exact["regressions_count"], exact["fixes_count"]) == (30, 0, 1)
    assert exact["fixes"] == [{"record": "0", "trial": 1, "baseline": 0.0, "candidate": 1.0}]
    assert compared["same_dataset"] is False


def test_cancelled_run_is_resumed_and_ends(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": True})
    run = create(client, project)
    path = f"/v1/projects/{project}/runs/{run}"

    assert client.expect(200, "POST", f"{path}/cancel")["state"] == "cancelled"
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": False})
    assert client.expect(202, "POST", f"{path}/resume")["state"] == "pending"

    ended = client.wait_for_run(project, run)
    assert (ended["state"], ended["progress"]["done"]) == ("succeeded", 30)


def test_deleted_run_is_gone_and_its_deletion_can_be_repeated(
    client: StackClient, project: str, make_key: Callable[..., str]
) -> None:
    client.upload(project, "answers", ROWS)
    run = create(client, project)
    client.wait_for_run(project, run)
    path = f"/v1/projects/{project}/runs/{run}"
    editor = make_key({"project": project, "role": "editor"})

    first = client.request("DELETE", path)
    again = client.request("DELETE", path)
    denied = client.request("DELETE", path, key=editor)

    assert (first.status_code, again.status_code, denied.status_code) == (204, 204, 403)
    client.expect(404, "GET", path)
    rows = client.look("SELECT run_id FROM evals.run_results WHERE tenant_id = %(project)s", {"project": project})
    assert rows == []


def test_expired_run_is_swept_and_a_kept_one_stays(client: StackClient, project: str) -> None:
    client.upload(project, "answers", ROWS)
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"run_retention": "30d"})
    expired, kept = create(client, project), create(client, project)
    for run in (expired, kept):
        client.wait_for_run(project, run)
    path = f"/v1/projects/{project}/runs"
    client.expect(200, "PATCH", f"{path}/{kept}", json={"labels": {"evalsi.keep": "true"}})
    client.look(
        "UPDATE evals.runs SET finished_at = finished_at - interval '31 d' WHERE tenant_id = %(project)s",
        {"project": project},
    )

    assert client.fire("RunRetentionHourly")["deleted"] == 1

    assert [run["id"] for run in client.expect(200, "GET", path)["items"]] == [kept]
