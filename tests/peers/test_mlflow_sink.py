"""A run's outcome in a real MLflow, brought there by the stack's own functions."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from evalward_local.peer_servers import PeerServer
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

ROWS = [
    {"id": f"r{number}", "input": "q", "output": "yes" if number % 4 else "no", "reference": "yes"}
    for number in range(40)
]
API = "/api/2.0/mlflow"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, mlflow_server: PeerServer) -> Generator[StackClient]:
    hosts = {"OutgoingAllowedHosts": json.dumps({"*": [mlflow_server.host]})}
    folder = tmp_path_factory.mktemp("stack")
    with running_stack(folder, environments=4, parameters=hosts) as stack, StackClient(stack) as client:
        client.expect(201, "POST", "/v1/projects", json={"id": "demo"})
        client.upload("demo", "answers", ROWS)
        yield client


def evaluate(client: StackClient, server: PeerServer, experiment: str) -> dict[str, Any]:
    """Run to the end with a sink in MLflow and return the run as it is when the sink has ended."""
    order = {
        "name": "nightly",
        "dataset": {"name": "answers"},
        "evaluators": [{"name": "exact_match"}, {"name": "length"}],
        "gates": [{"metric": "exact_match", "stat": "mean", "min": 0.5}],
        "sinks": [{"kind": "mlflow", "endpoint": server.url, "experiment": experiment}],
    }
    run = client.expect(202, "POST", "/v1/projects/demo/runs", json=order)
    client.wait_for_run("demo", run["id"])

    def has_ended() -> dict[str, Any] | None:
        shown = client.expect(200, "GET", f"/v1/projects/demo/runs/{run['id']}")
        return shown if shown["sinks"][0]["completed_at"] else None

    return client.wait(has_ended, "the sink to end")


def search(server: PeerServer, experiment: str) -> list[dict[str, Any]]:
    found = httpx.get(f"{server.url}{API}/experiments/get-by-name", params={"experiment_name": experiment})
    body = {"experiment_ids": [found.raise_for_status().json()["experiment"]["experiment_id"]]}
    runs = httpx.post(f"{server.url}{API}/runs/search", json=body).raise_for_status().json()["runs"]
    assert isinstance(runs, list)
    return runs


def test_run_is_in_mlflow_with_metrics_parameters_and_its_report(
    client: StackClient, mlflow_server: PeerServer
) -> None:
    run = evaluate(client, mlflow_server, "sinks / made by the sink")
    (sink,) = run["sinks"]
    assert (sink["state"], sink["attempts"], sink["error"]) == ("succeeded", 1, None)
    report = client.expect(200, "GET", f"/v1/projects/demo/runs/{run['id']}/report")

    (logged,) = search(mlflow_server, "sinks / made by the sink")

    info, data = logged["info"], logged["data"]
    assert (info["run_id"], info["run_name"], info["status"]) == (sink["external_id"], "nightly", "FINISHED")
    metrics = {metric["key"]: metric["value"] for metric in data["metrics"]}
    for metric in report["metrics"]:
        for statistic in ("mean", "std", "ci_low", "ci_high", "n", "coverage"):
            assert metrics[f"{metric['id']}.{statistic}"] == pytest.approx(metric[statistic], rel=1e-12)
    assert metrics["passed"] == 1
    parameters = {parameter["key"]: parameter["value"] for parameter in data["params"]}
    assert parameters["dataset_sha256"] == report["dataset_sha256"]
    assert parameters["evaluator.exact_match"] == "1"
    tags = {tag["key"]: tag["value"] for tag in data["tags"]}
    assert (tags["evalward.run"], tags["evalward.project"]) == (run["id"], "demo")
    stored = httpx.get(
        f"{mlflow_server.url}/get-artifact", params={"path": "report.json", "run_id": info["run_id"]}
    ).raise_for_status()
    assert stored.json() == report


def test_delivery_killed_between_sending_and_noting_makes_no_second_run(
    client: StackClient, mlflow_server: PeerServer
) -> None:
    run = evaluate(client, mlflow_server, "sinks twice")
    # As after a kill: everything is in MLflow, and the row does not say so.
    client.look(
        "UPDATE evals.run_sinks SET state = 'queued', completed_at = NULL, external_id = NULL WHERE run_id = %(run)s",
        {"run": run["id"]},
    )
    client.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id)"
        " SELECT 'delivery', tenant_id, 'sink', id::text FROM evals.run_sinks WHERE run_id = %(run)s",
        {"run": run["id"]},
    )
    client.fire("PulseSchedule")

    def has_ended() -> dict[str, Any] | None:
        shown = client.expect(200, "GET", f"/v1/projects/demo/runs/{run['id']}")
        return shown if shown["sinks"][0]["completed_at"] else None

    again = client.wait(has_ended, "the sink to end again")
    assert (again["sinks"][0]["state"], again["sinks"][0]["attempts"]) == ("succeeded", 2)
    (logged,) = search(mlflow_server, "sinks twice")
    assert logged["info"]["run_id"] == again["sinks"][0]["external_id"] == run["sinks"][0]["external_id"]
    history = httpx.get(
        f"{mlflow_server.url}{API}/metrics/get-history",
        params={"run_id": logged["info"]["run_id"], "metric_key": "exact_match.mean"},
    )
    assert len(history.raise_for_status().json()["metrics"]) == 1


def test_experiment_whose_artifacts_the_server_does_not_take_fails_with_a_reason(
    client: StackClient, mlflow_server: PeerServer
) -> None:
    body = {"name": "elsewhere", "artifact_location": "s3://somewhere/else"}
    httpx.post(f"{mlflow_server.url}{API}/experiments/create", json=body).raise_for_status()
    (sink,) = evaluate(client, mlflow_server, "elsewhere")["sinks"]
    assert (sink["state"], sink["attempts"]) == ("failed", 1)
    assert "at s3: and takes none itself" in sink["error"]
