"""Sources of a store behind HTTP: a fake of Phoenix on a port of this machine, and what must not be called."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber
from coordination.environment import Environment
from coordination.settings import OutgoingSettings, SourceSettings

if TYPE_CHECKING:
    from integration.conftest import Api
    from integration.sources.conftest import World

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
SECRET = "evalward/demo/phoenix"


@dataclass
class Store:
    """Answers as Phoenix does, a trace a page.

    Attributes
    ----------
    traces
        Start by trace id.
    queries
        Query of each call for a page of the list.
    authorizations
        Header of each call.
    refuse
        Returns a status and headers to answer with instead, given the path and the query.
    has_spans
        Whether it hands over what its traces are made of.
    """

    traces: dict[str, datetime] = field(default_factory=dict[str, datetime])
    queries: list[dict[str, list[str]]] = field(default_factory=list[dict[str, list[str]]])
    authorizations: list[str | None] = field(default_factory=list[str | None])
    refuse: Callable[[str, dict[str, list[str]]], tuple[int, dict[str, str]] | None] = lambda _path, _query: None
    port: int = 0
    has_spans: bool = True

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def answer(self, path: str, query: dict[str, list[str]]) -> Any:
        if path.endswith("/traces"):
            self.queries.append(query)
            names = sorted(self.traces, key=lambda name: self.traces[name])
            place = int(query.get("cursor", ["0"])[0])
            more = str(place + 1) if place + 1 < len(names) else None
            return {"data": [{"trace_id": name} for name in names[place : place + 1]], "next_cursor": more}
        return {"data": [self._span(name) for name in query["trace_id"] if self.has_spans], "next_cursor": None}

    def _span(self, name: str) -> dict[str, Any]:
        start = self.traces[name]
        return {
            "context": {"trace_id": name, "span_id": name},
            "name": "chat",
            "start_time": start.isoformat(),
            "end_time": (start + SECOND).isoformat(),
            "attributes": {"input.value": "q", "output.value": "write to ann@example.com"},
        }


@pytest.fixture
def store() -> Generator[Store]:
    """Run the fake while a test lasts."""
    store = Store()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            store.authorizations.append(self.headers.get("authorization"))
            refused = store.refuse(parts.path, query)
            content = b"" if refused else json.dumps(store.answer(parts.path, query)).encode()
            self.send_response(refused[0] if refused else 200)
            for name, value in (refused[1] if refused else {}).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *_arguments: Any) -> None:  # noqa: A002
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.port = int(server.server_address[1])
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield store
        server.shutdown()
        thread.join()


@pytest.fixture
def environment(make_environments: Callable[..., Environment], store: Store) -> Environment:
    """Return an environment whose deployment lists the fake, and a bucket."""
    return make_environments(
        outgoing=OutgoingSettings(allowed_hosts={"demo": [store.host]}),
        sources=SourceSettings(allowed_buckets={"demo": ["other-traces/support"]}),
    )


@pytest.fixture
def tick(world: World, store: Store) -> datetime:
    """Make a source of the fake, due at a tick, and return the tick."""
    world.create(connector="phoenix", endpoint=store.url, location="my project")
    tick = world.last_tick()
    world.set_cursor(tick - MINUTE)
    return tick


def test_window_of_a_store_becomes_a_run(world: World, store: Store, tick: datetime) -> None:
    store.traces = {
        "early": tick - HOUR - SECOND,
        "first": tick - HOUR,
        "last": tick - timedelta(microseconds=1),
        "late": tick,
    }
    world.pull()
    world.finish_runs()
    (window,) = world.windows()
    assert (window["state"], window["traces"]) == ("done", 2)
    (run,) = world.runs()
    results = world.service.get(f"/v1/projects/demo/runs/{run['id']}/results").json["items"]
    assert [result["record"] for result in results] == ["first", "last"]
    report = world.service.get(f"/v1/projects/demo/runs/{run['id']}/report").json
    assert report["redactions"] == {"email": 2}
    assert set(store.authorizations) == {None}


def test_503_on_page_2_leaves_cursor_and_window_as_they_were(
    world: World, store: Store, tick: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduled_pull.connectors.trace_store._FIRST_WAIT_SECONDS", 0.001)
    store.traces = dict.fromkeys(("a", "b"), tick - MINUTE)
    cursor = world.read()["cursor"]
    store.refuse = lambda _path, query: (503, {}) if "cursor" in query else None
    world.pull()
    assert world.read()["cursor"] == cursor
    (failed,) = world.windows()
    assert (failed["state"], failed["error_code"]) == ("working", "store_unavailable")
    assert world.stored_keys() == []
    first = store.queries[0]

    store.refuse = lambda _path, _query: None
    store.queries.clear()
    world.make_due()
    world.pull()
    (done,) = world.windows()
    assert (done["window"], done["state"], done["traces"]) == (failed["window"], "done", 2)
    assert {name: store.queries[0][name] for name in ("start_time", "end_time")} == {
        name: first[name] for name in ("start_time", "end_time")
    }


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "\ufffe", "'; DROP TABLE evals.runs; --"])
def test_trace_whose_id_is_no_id_fails_the_attempt_by_a_name_that_can_be_kept(
    world: World, store: Store, tick: datetime, name: str
) -> None:
    store.traces = {name: tick - MINUTE}
    store.has_spans = False
    world.pull()
    (window,) = world.windows()
    assert (window["state"], window["error_code"]) == ("working", "trace_without_spans")
    assert 0 < len(window["trace_id"]) <= 256
    assert world.read()["failed_attempts"] == 1


def test_store_that_asks_for_more_time_than_a_pull_has_is_tried_later(
    world: World, store: Store, tick: datetime
) -> None:
    store.traces = {"a": tick - MINUTE}
    store.refuse = lambda _path, _query: (429, {"retry-after": "600"})
    world.pull()
    (window,) = world.windows()
    assert window["error_code"] == "store_unavailable"
    assert "429" in window["error"]
    assert len(store.authorizations) == 1


def test_credentials_come_from_the_secret_and_stand_nowhere_else(
    world: World, store: Store, tick: datetime, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("secretsmanager")
    client.create_secret(Name=SECRET, SecretString='{"token": "the-token-itself"}')
    changed = world.service.call("PATCH", "/v1/projects/demo/sources/nightly", {"credentials": SECRET})
    assert (changed.status, changed.json["credentials"]) == (200, SECRET)
    store.traces = {"a": tick - MINUTE}
    world.pull()
    assert world.windows()[0]["state"] == "done"
    assert set(store.authorizations) == {"Bearer the-token-itself"}
    # Read at every pull: a token that was replaced is used at once.
    client.put_secret_value(SecretId=SECRET, SecretString='{"username": "u", "password": "p"}')
    world.finish_runs()
    world.act(f"nightly/windows/{world.windows()[0]['window']['start']}/run", {})
    world.pull()
    assert store.authorizations[-1] == "Basic dTpw"
    texts = ["".join(capsys.readouterr())]
    tables = ("evals.sources", "evals.source_windows", "evals.runs", "scheduler.graph_jobs")
    texts += [str(world.database.look(f"SELECT t::text FROM {table} t")) for table in tables]
    texts += [world.environment.objects.read(key).decode() for key in world.stored_keys()]
    assert not [text for text in texts if "the-token-itself" in text or "dTpw" in text]


@pytest.mark.parametrize(
    "content", [None, '"a text"', '{"api_key": "s3cr3t"}', '{"token": ""}', '{"username": "s3cr3t"}', "s3cr3t"]
)
def test_secret_that_is_not_there_or_holds_no_credentials_fails_the_attempt(
    world: World, store: Store, tick: datetime, content: str | None
) -> None:
    if content is not None:
        boto3.client("secretsmanager").create_secret(Name=SECRET, SecretString=content)
    world.service.call("PATCH", "/v1/projects/demo/sources/nightly", {"credentials": SECRET})
    store.traces = {"a": tick - MINUTE}
    world.pull()
    (window,) = world.windows()
    assert (window["error_code"], window["state"]) == ("credentials_unusable", "working")
    assert SECRET in window["error"]
    assert "s3cr3t" not in window["error"]
    assert store.authorizations == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("AccessDeniedException", "credentials_unusable"),
        ("DecryptionFailure", "credentials_unusable"),
        ("InternalServiceError", "credentials_unavailable"),
        ("ThrottlingException", "credentials_unavailable"),
        ("UnrecognizedClientException", "credentials_unavailable"),
        (None, "credentials_unavailable"),
    ],
)
def test_secrets_manager_that_refuses_or_does_not_answer_is_told_apart(
    world: World, store: Store, tick: datetime, monkeypatch: pytest.MonkeyPatch, answer: str | None, code: str
) -> None:
    client = boto3.client("secretsmanager")
    client.create_secret(Name=SECRET, SecretString='{"token": "the-token-itself"}')
    world.service.call("PATCH", "/v1/projects/demo/sources/nightly", {"credentials": SECRET})
    store.traces = {"a": tick - MINUTE}
    with socket.socket() as silent, monkeypatch.context() as patch:
        # Bound and not listening: whoever calls is refused.
        silent.bind(("127.0.0.1", 0))
        config = Config(retries={"mode": "standard", "total_max_attempts": 1})
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        sick = boto3.client("secretsmanager", endpoint_url=endpoint, config=config)
        patch.setattr(world.environment.secrets, "_client", sick)
        if answer is None:
            world.pull()
        else:
            with Stubber(sick) as stubber:
                stubber.add_client_error("get_secret_value", answer)
                world.pull()
    (window,) = world.windows()
    assert (window["error_code"], window["state"], window["attempts"]) == (code, "working", 1)
    assert SECRET in window["error"]
    assert store.authorizations == []
    assert world.runs() == []
    # As soon as there is an answer the same window is read.
    world.make_due()
    world.pull()
    (after,) = world.windows()
    assert (after["state"], after["error_code"], after["window"]) == ("done", None, window["window"])


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"endpoint": "http://169.254.169.254/latest"}, "/endpoint"),
        ({"endpoint": "https://169.254.169.254/"}, "/endpoint"),
        ({"endpoint": "https://127.0.0.1:1/"}, "/endpoint"),
        ({"endpoint": "https://10.0.0.1/"}, "/endpoint"),
        ({"endpoint": "https://[::1]/"}, "/endpoint"),
        ({"endpoint": "https://[::ffff:169.254.169.254]/"}, "/endpoint"),
        ({"endpoint": "https://2852039166/"}, "/endpoint"),
        ({"endpoint": "https://user:password@192.0.2.1/"}, "/endpoint"),
        ({"endpoint": "ftp://192.0.2.1/"}, "/endpoint"),
        ({"endpoint": None}, "/endpoint"),
        ({"credentials": "evalward/other/phoenix"}, "/credentials"),
        ({"credentials": "evalward/demo/../other"}, "/credentials"),
        ({"credentials": "arn:aws:secretsmanager:eu-central-1:1:secret:x"}, "/credentials"),
        ({"location": "a/b"}, "/location"),
        ({"location": ".."}, "/location"),
        ({"connector": "mlflow", "location": "not an id"}, "/location"),
        ({"connector": "langfuse", "location": "p1"}, "/credentials"),
        ({"connector": "otlp_s3", "location": "s3://evalward-test/traces/demo/"}, "/endpoint"),
        ({"connector": "jaeger"}, "/connector"),
    ],
)
def test_place_that_a_project_may_not_name_is_refused(
    world: World, store: Store, fields: dict[str, Any], pointer: str
) -> None:
    named = {"connector": "phoenix", "endpoint": store.url, "location": "my project"} | fields
    body = world.body(**{name: value for name, value in named.items() if value is not None})
    reply = world.service.post("/v1/projects/demo/sources", body)
    assert (reply.status, reply.pointers) == (400, [pointer]), reply.json
    assert world.database.look("SELECT id FROM evals.sources") == []


def test_query_of_an_endpoint_is_refused(world: World, store: Store) -> None:
    body = world.body(connector="phoenix", endpoint=f"{store.url}/?a=b", location="p")
    assert world.service.post("/v1/projects/demo/sources", body).pointers == ["/endpoint"]


def test_host_that_the_deployment_lists_for_another_project_is_refused(
    world: World, store: Store, make_project: Callable[..., str]
) -> None:
    make_project("other")
    body = world.body(connector="phoenix", endpoint=store.url, location="p")
    assert world.service.post("/v1/projects/other/sources", body).pointers == ["/endpoint"]


def test_name_that_leads_inside_after_it_was_checked_is_not_called(
    world: World, store: Store, tick: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["192.0.2.1"] + ["127.0.0.1"] * 100)

    def resolve(_host: str, port: int, **_options: Any) -> list[Any]:
        # 192.0.2.0/24 is for documentation and not public: a public address stands in for it at the first look.
        address = next(answers)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8" if address == "192.0.2.1" else address, port))]

    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", resolve)
        changed = world.service.call(
            "PATCH", "/v1/projects/demo/sources/nightly", {"endpoint": f"https://rebound.example.com:{store.port}"}
        )
        assert changed.status == 200, changed.json
        world.pull()
    (window,) = world.windows()
    assert window["error_code"] == "endpoint_refused"
    assert store.authorizations == []


def test_redirect_is_not_followed(world: World, store: Store, tick: datetime) -> None:
    store.traces = {"a": tick - MINUTE}
    store.refuse = lambda path, _query: (307, {"location": f"{store.url}/inside{path}"})
    world.pull()
    (window,) = world.windows()
    assert window["error_code"] == "endpoint_refused"
    assert "inside" not in window["error"]
    assert (len(store.authorizations), store.queries) == (1, [])


def test_host_that_is_listed_no_more_is_not_called(
    world: World, store: Store, tick: datetime, make_environments: Callable[..., Environment]
) -> None:
    store.traces = {"a": tick - MINUTE}
    world.environment = make_environments()
    world.pull()
    assert world.windows()[0]["error_code"] == "endpoint_refused"
    assert store.authorizations == []


@pytest.mark.parametrize(
    "location",
    [
        "s3://other-traces/",
        "s3://other-traces/supporting/",
        "s3://other-traces/support/../",
        "s3://evalward-test/traces/other/",
        "s3://evalward-test/datasets/demo/",
        "https://other-traces/support/",
    ],
)
def test_files_outside_of_what_is_listed_are_refused(world: World, location: str) -> None:
    assert world.service.post("/v1/projects/demo/sources", world.body(location=location)).pointers == ["/location"]


def test_files_of_a_listed_bucket_are_read(world: World, service: Api) -> None:
    client = boto3.client("s3")
    client.create_bucket(Bucket="other-traces", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
    world.create(location="s3://other-traces/support/eu/")
    tick = world.last_tick()
    world.put = lambda key, content: client.put_object(Bucket="other-traces", Key=key, Body=content) and None
    world.add_trace(tick - MINUTE, key="support/eu/loose.json")
    world.add_trace(tick - MINUTE, key="support/us/loose.json")
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    assert [run["progress"]["total"] for run in world.runs()] == [1]
