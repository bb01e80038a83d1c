"""Sinks of MLflow (a server that answers as its REST API is described) and of Parquet."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import boto3
import coordination.exported_results
import coordination.sink_attempts
import orjson
import pyarrow.parquet as pq
import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.ports.http_calls import HttpCalls
from coordination.ports.secrets import Secrets, SecretUnavailableError
from dataset_conversion.export_parquet import export_parquet
from delivery.export_run import export_run

if TYPE_CHECKING:
    from integration.runs.conftest import World

BUCKET = "evalward-test"
PARQUET = {"kind": "s3", "prefix": "exports/demo/nightly/", "format": "parquet"}
API = "/api/2.0/mlflow"


class Context:
    """Lambda's context."""

    def __init__(self, seconds: float = 100.0) -> None:
        self.seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds * 1000)


class DiedError(BaseException):
    """The environment was killed."""


def until(seconds: float = 100.0) -> Deadline:
    return Deadline.of_invocation(Context(seconds))  # pyright: ignore[reportArgumentType]


@dataclass
class FakeMlflow:
    """What a tracking server holds, and how it answers.

    Attributes
    ----------
    runs, artifacts, experiments
        What there is.
    calls
        Method and path of each call, and its headers.
    refusals
        Status and error code to answer the next calls with, taken from the front; None answers as usual.
    """

    address: str = ""
    runs: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    artifacts: dict[str, bytes] = field(default_factory=dict[str, bytes])
    experiments: list[str] = field(default_factory=list[str])
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    refusals: list[tuple[int, str] | None] = field(default_factory=list[tuple[int, str] | None])

    def answer(self, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        match path.removeprefix(API):
            case "/experiments/get-by-name":
                (name,) = query["experiment_name"]
                if name not in self.experiments:
                    return 404, {"error_code": "RESOURCE_DOES_NOT_EXIST"}
                return 200, {"experiment": {"experiment_id": str(self.experiments.index(name)), "name": name}}
            case "/experiments/create":
                self.experiments.append(body["name"])
                return 200, {"experiment_id": str(len(self.experiments) - 1)}
            case "/runs/create":
                run_id = f"run{len(self.runs)}"
                uri = f"mlflow-artifacts:/{body['experiment_id']}/{run_id}/artifacts"
                self.runs.append({"info": {"run_id": run_id, "artifact_uri": uri}, "new": body, "logged": []})
                return 200, {"run": self.runs[-1]}
            case "/runs/get":
                found = [run for run in self.runs if [run["info"]["run_id"]] == query["run_id"]]
                return (200, {"run": found[0]}) if found else (404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})
            case "/runs/search":
                wanted = body["filter"].removeprefix('tags."evalward.sink" = \'').removesuffix("'")
                tags = [[tag["value"] for tag in run["new"]["tags"]] for run in self.runs]
                return 200, {"runs": [run for run, values in zip(self.runs, tags, strict=True) if wanted in values]}
            case "/runs/log-batch" | "/runs/update":
                (run,) = [run for run in self.runs if run["info"]["run_id"] == body["run_id"]]
                run["logged"].append(body)
                return 200, {}
            case _:
                return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": "a private text"}


@pytest.fixture
def mlflow() -> Generator[FakeMlflow]:
    fake = FakeMlflow()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.respond()

        def do_POST(self) -> None:
            self.respond()

        def do_PUT(self) -> None:
            self.respond()

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002

        def respond(self) -> None:
            parts = urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.calls.append((f"{self.command} {parts.path}", headers))
            refusal = fake.refusals.pop(0) if fake.refusals else None
            if refusal is not None:
                status, answer = refusal[0], {"error_code": refusal[1], "message": "a private text"}
            elif self.command == "PUT":
                fake.artifacts[parts.path] = content
                status, answer = 200, {}
            else:
                body: Any = json.loads(content) if content else None
                status, answer = fake.answer(parts.path, parse_qs(parts.query), body)
            encoded = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        fake.address = f"127.0.0.1:{server.server_port}"
        yield fake
        server.shutdown()
        thread.join()


@pytest.fixture
def tracked(world: World, mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return an environment that may call the server, as may the API."""
    environment = replace(world.environment, http_calls=HttpCalls({"demo": [mlflow.address]}))
    monkeypatch.setattr("coordination.http.border.load_environment", lambda: environment)
    return environment


def sink_of(mlflow: FakeMlflow, **more: Any) -> dict[str, Any]:
    return {"kind": "mlflow", "endpoint": f"http://{mlflow.address}", "experiment": "nightly", **more}


def finish(world: World, sink: dict[str, Any]) -> str:
    world.publish_answers(["yes", "no", "yes", None])
    run = world.create(sinks=[sink])
    while [kind for kind, _ in world.waiting() if kind != "sink"]:
        world.work_once()
    return run


def export(world: World, environment: Environment, seconds: float = 100.0) -> None:
    ((_, ref_id),) = world.waiting()
    export_run(environment, "demo", ref_id, until(seconds))


def show(world: World, run: str) -> dict[str, Any]:
    (sink,) = world.read(run)["sinks"]
    return sink


def test_run_in_mlflow_is_whole_and_says_where_it_came_from(
    world: World, mlflow: FakeMlflow, tracked: Environment
) -> None:
    run = finish(world, sink_of(mlflow))
    export(world, tracked)
    sink = show(world, run)
    assert (sink["state"], sink["attempts"], sink["external_id"]) == ("succeeded", 1, "run0")
    (made,) = mlflow.runs
    assert made["new"]["run_name"] == "nightly"
    assert mlflow.experiments == ["nightly"]
    metrics = {one["key"]: one["value"] for batch in made["logged"] for one in batch.get("metrics", [])}
    assert (metrics["exact_match.mean"], metrics["exact_match.n"]) == (2 / 3, 3)
    assert (metrics["exact_match.skipped"], metrics["exact_match.coverage"]) == (1, 0.75)
    assert "usage.cost_usd" not in metrics
    tags = {one["key"]: one["value"] for batch in made["logged"] for one in batch.get("tags", [])}
    assert tags["evalward.run"] == run
    assert made["logged"][-1]["status"] == "FINISHED"
    (artifact,) = mlflow.artifacts.items()
    report = world.service.get(f"/v1/projects/demo/runs/{run}/report").json
    assert artifact[0] == "/api/2.0/mlflow-artifacts/artifacts/0/run0/artifacts/report.json"
    assert orjson.loads(artifact[1]) == report


@pytest.mark.parametrize("is_noted", [False, True])
def test_attempt_that_died_after_it_made_the_run_is_completed_in_that_run(
    world: World, mlflow: FakeMlflow, tracked: Environment, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    run = finish(world, sink_of(mlflow))

    def die(*_arguments: object) -> None:
        raise DiedError

    def keep(*_arguments: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(coordination.sink_attempts, "drop_lease", keep)
        if is_noted:
            patch.setattr("delivery.log_to_mlflow.list_metrics", die)
        else:
            patch.setattr(coordination.sink_attempts.SinkOrder, "note_external_id", die)
        with pytest.raises(DiedError):
            export(world, tracked)
    assert len(mlflow.runs) == 1
    world.database.look("UPDATE coordination.leases SET expires_at = clock_timestamp() WHERE owner IS NOT NULL")

    export(world, tracked)

    assert len(mlflow.runs) == 1
    assert (show(world, run)["state"], show(world, run)["external_id"]) == ("succeeded", "run0")
    assert len(mlflow.artifacts) == 1


@pytest.mark.parametrize(
    ("refusal", "state", "error"),
    [
        ((500, "INTERNAL_ERROR"), "queued", "500 INTERNAL_ERROR"),
        ((429, "REQUEST_LIMIT_EXCEEDED"), "queued", "429 REQUEST_LIMIT_EXCEEDED"),
        ((403, "PERMISSION_DENIED"), "failed", "403 PERMISSION_DENIED"),
        ((302, ""), "failed", "302"),
    ],
)
def test_refusal_is_told_without_the_servers_own_words(
    world: World, mlflow: FakeMlflow, tracked: Environment, refusal: tuple[int, str], state: str, error: str
) -> None:
    run = finish(world, sink_of(mlflow))
    mlflow.refusals = [None, None, None, refusal]
    export(world, tracked)
    sink = show(world, run)
    assert (sink["state"], sink["error"]) == (state, f"MLflow answered runs/log-batch with {error}")
    assert world.tables_that_mention("private") == {}


def test_secret_is_sent_as_headers_and_stands_nowhere(world: World, mlflow: FakeMlflow, tracked: Environment) -> None:
    secret = json.dumps({"Authorization": "Bearer tracking-token"})
    boto3.client("secretsmanager").create_secret(Name="evalward/demo/mlflow", SecretString=secret)
    run = finish(world, sink_of(mlflow, secret="evalward/demo/mlflow"))
    export(world, tracked)
    assert show(world, run)["state"] == "succeeded"
    assert {headers["authorization"] for _, headers in mlflow.calls} == {"Bearer tracking-token"}
    assert world.tables_that_mention("tracking-token") == {}


NOT_TO_BE_READ = "cannot be read: it is not there, no JSON, or not ours to read"
NO_OBJECT = "is no JSON object of request headers"
NO_HEADER = "has a member that is no request header to be added"


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, NOT_TO_BE_READ),
        ("no json", NOT_TO_BE_READ),
        ('["a"]', NO_OBJECT),
        ("{}", NO_OBJECT),
        ('{"authorization": 1}', NO_HEADER),
        ('{"authorization": "of-a-test\\n"}', NO_HEADER),
        ('{"content-type": "text/plain"}', NO_HEADER),
    ],
)
def test_secret_that_cannot_be_used_is_told(
    world: World,
    mlflow: FakeMlflow,
    tracked: Environment,
    caplog: pytest.LogCaptureFixture,
    content: str | None,
    error: str,
) -> None:
    if content is not None:
        boto3.client("secretsmanager").create_secret(Name="evalward/demo/mlflow", SecretString=content)
    run = finish(world, sink_of(mlflow, secret="evalward/demo/mlflow"))
    export(world, tracked)
    sink = show(world, run)
    assert (sink["state"], mlflow.calls) == ("failed", [])
    assert sink["error"] == f"the secret evalward/demo/mlflow {error}"
    assert "of-a-test" not in caplog.text


def test_sink_waits_for_secrets_manager_to_answer(world: World, mlflow: FakeMlflow, tracked: Environment) -> None:
    class SilentSecrets(Secrets):
        def read_foreign(self, secret_id: str) -> Any:
            raise SecretUnavailableError

    run = finish(world, sink_of(mlflow, secret="evalward/demo/mlflow"))
    export(world, replace(tracked, secrets=SilentSecrets()))
    sink = show(world, run)
    assert (sink["state"], sink["attempts"], mlflow.calls) == ("queued", 1, [])
    assert sink["error"] == "Secrets Manager did not answer"


def test_server_and_secret_of_others_are_refused_at_creation_and_at_use(
    world: World, mlflow: FakeMlflow, tracked: Environment
) -> None:
    run = finish(world, sink_of(mlflow))
    sinks = [sink_of(mlflow, secret="evalward/other/mlflow"), sink_of(mlflow)]
    order = {"name": "n", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}], "sinks": sinks}
    reply = world.service.post("/v1/projects/demo/runs", order)
    assert (reply.status, reply.pointers) == (400, ["/sinks/0/secret"])
    # The list of hosts has become shorter since.
    export(world, replace(tracked, http_calls=HttpCalls({})))
    sink = show(world, run)
    assert sink["state"] == "failed"
    assert sink["error"].startswith("MLflow may not be called: ")
    assert mlflow.calls == []


def test_server_that_is_gone_is_tried_again(world: World, mlflow: FakeMlflow, tracked: Environment) -> None:
    run = finish(world, sink_of(mlflow))
    closed = "127.0.0.1:9"
    world.database.look(
        "UPDATE evals.run_sinks SET config = config || jsonb_build_object('endpoint', 'http://127.0.0.1:9')"
    )
    export(world, replace(tracked, http_calls=HttpCalls({"demo": [closed]})))
    sink = show(world, run)
    assert (sink["state"], sink["attempts"]) == ("queued", 1)
    assert closed in sink["error"]


def test_parquet_holds_every_result_in_order(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordination.exported_results, "_PAGE_ROWS", 3)
    run = finish(world, PARQUET)
    assert world.database.look("SELECT queue FROM coordination.wake_ups") == [{"queue": "conversion"}]
    ((_, ref_id),) = world.waiting()
    export_parquet(world.environment, "demo", ref_id, until())
    sink = show(world, run)
    assert (sink["state"], sink["format"]) == ("succeeded", "parquet")
    objects = read_objects()
    assert set(objects) == {f"exports/demo/nightly/{run}/results.parquet", f"exports/demo/nightly/{run}/report.json"}
    table = pq.read_table(io.BytesIO(objects[f"exports/demo/nightly/{run}/results.parquet"]))
    assert table.to_pylist() == world.results(run)
    assert [str(kind) for kind in table.schema.types] == [
        "string", "int32", "string", "string", "double", "bool", "string"
    ]  # fmt: skip
    assert table.schema.metadata[b"evalward.run"] == run.encode()


def test_parquet_attempt_that_died_is_repeated_and_changes_no_byte(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = finish(world, PARQUET)
    ((_, ref_id),) = world.waiting()
    put_once: Callable[..., None] = coordination.exported_results.put_once

    def put_and_die(*arguments: Any) -> None:
        put_once(*arguments)
        raise DiedError

    def keep(*_arguments: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(coordination.exported_results, "put_once", put_and_die)
        patch.setattr(coordination.sink_attempts, "drop_lease", keep)
        with pytest.raises(DiedError):
            export_parquet(world.environment, "demo", ref_id, until())
    before = read_objects()
    world.database.look("UPDATE coordination.leases SET expires_at = clock_timestamp() WHERE owner IS NOT NULL")
    export_parquet(world.environment, "demo", ref_id, until())
    assert show(world, run)["state"] == "succeeded"
    assert before.items() <= read_objects().items()


def test_parquet_never_covers_other_bytes(world: World) -> None:
    run = finish(world, PARQUET)
    key = f"exports/demo/nightly/{run}/results.parquet"
    world.put(key, b"mine")
    ((_, ref_id),) = world.waiting()
    export_parquet(world.environment, "demo", ref_id, until())
    sink = show(world, run)
    assert (sink["state"], sink["error"]) == ("failed", f"there is another object at {key}; it was left as it is")
    assert read_objects() == {key: b"mine"}


def read_objects() -> dict[str, bytes]:
    client = boto3.client("s3")
    listing: Any = client.list_objects_v2(Bucket=BUCKET, Prefix="exports/")
    return {
        entry["Key"]: client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
        for entry in listing.get("Contents", [])
    }
