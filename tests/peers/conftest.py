"""Peers that run beside us, and a stack that may call them; without their environments these tests are left out."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import httpx
import pytest
from evalward_local.peer_servers import PeerServer, has_environment, run_mlflow, run_phoenix
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

_SHOWN_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.5
_BATCH_SIZE = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


@dataclass
class PeerSpan:
    """A span as OTLP has it.

    Attributes
    ----------
    trace, number
        Small numbers, out of which each test makes ids of its own: stores know each id once, in whatever project.
    parent
        Number of the span above it; 0: a root.
    start
        With microseconds.
    seconds
        How long it took; None: it has no end.
    attributes
        Texts by name.
    """

    trace: int
    number: int
    start: datetime
    parent: int = 0
    seconds: float | None = 1.0
    attributes: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Ids:
    """The ids of one test.

    Attributes
    ----------
    series
        Of the test.
    """

    series: int = field(default_factory=lambda: next(_numbers))

    def trace(self, trace: int) -> bytes:
        """Return a trace's id."""
        return self.series.to_bytes(8) + trace.to_bytes(8)

    def span(self, trace: int, number: int) -> bytes:
        """Return a span's id."""
        return self.series.to_bytes(3) + trace.to_bytes(3) + number.to_bytes(2)


class Peer(Protocol):
    """A trace store, as the tests use each.

    Attributes
    ----------
    connector
        Name of the connector.
    server
        The running server.
    location
        An experiment or project of this test's own.
    """

    connector: Literal["mlflow", "phoenix"]
    server: PeerServer
    location: str

    def push(self, spans: Sequence[PeerSpan]) -> None:
        """Send spans through OTLP and wait until the store shows them."""
        ...

    def add_poisoned(self, trace: int, start: datetime) -> None:
        """Make a trace that the store lists and has no spans of."""
        ...

    def name_of(self, trace: int) -> str:
        """Return the trace's id as the store writes it."""
        ...


class MlflowPeer:
    """An experiment of the MLflow server."""

    connector: Literal["mlflow", "phoenix"] = "mlflow"

    def __init__(self, server: PeerServer, http: httpx.Client) -> None:
        self.server = server
        self._http = http
        self._ids = Ids()
        name = f"experiment {next(_numbers)}"
        answer = self._http.post("/api/2.0/mlflow/experiments/create", json={"name": name}).raise_for_status()
        self.location = str(answer.json()["experiment_id"])

    def push(self, spans: Sequence[PeerSpan]) -> None:
        for start in range(0, len(spans), _BATCH_SIZE):
            _push(
                self._http, self._ids, spans[start : start + _BATCH_SIZE], {"x-mlflow-experiment-id": self.location}, {}
            )

    def add_poisoned(self, trace: int, start: datetime) -> None:
        info = {
            "trace_id": self.name_of(trace),
            "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.location}},
            "request_time": start.isoformat().replace("+00:00", "Z"),
            "state": "OK",
            "execution_duration": "1s",
        }
        self._http.post("/api/3.0/mlflow/traces", json={"trace": {"trace_info": info}}).raise_for_status()

    def name_of(self, trace: int) -> str:
        return f"tr-{self._ids.trace(trace).hex()}"


class PhoenixPeer:
    """A project of the Phoenix server, which shows what it was sent some seconds later."""

    connector: Literal["mlflow", "phoenix"] = "phoenix"

    def __init__(self, server: PeerServer, http: httpx.Client) -> None:
        self.server = server
        self._http = http
        self._ids = Ids()
        self.location = f"project {next(_numbers)}"
        self._http.post("/v1/projects", json={"name": self.location}).raise_for_status()

    def push(self, spans: Sequence[PeerSpan]) -> None:
        for start in range(0, len(spans), _BATCH_SIZE):
            batch = spans[start : start + _BATCH_SIZE]
            _push(self._http, self._ids, batch, {}, {"openinference.project.name": self.location})
        give_up_at = time.monotonic() + _SHOWN_PATIENCE_SECONDS
        missing = {self._ids.span(span.trace, span.number).hex() for span in spans}
        while missing:
            assert time.monotonic() < give_up_at, f"Phoenix does not show {len(missing)} spans"
            missing -= self._list_spans()
            if missing:
                # To be asked is work for a server that is busy taking spans in.
                time.sleep(max(_POLL_SECONDS, len(missing) / 400))

    def _list_spans(self) -> set[str]:
        found: set[str] = set()
        query: dict[str, Any] = {"limit": 1000}
        while True:
            answer = self._http.get(f"/v1/projects/{self.location}/spans", params=query).raise_for_status().json()
            found |= {span["context"]["span_id"] for span in answer["data"]}
            if not answer["next_cursor"]:
                return found
            query["cursor"] = answer["next_cursor"]

    def add_poisoned(self, trace: int, start: datetime) -> None:
        self.push([PeerSpan(trace, 1, start)])
        # Its API deletes the trace along with the last span; a crash between the two leaves it.
        with closing(sqlite3.connect(self.server.folder / "phoenix.db", timeout=30)) as database:
            database.execute("DELETE FROM spans WHERE span_id = ?", [self._ids.span(trace, 1).hex()])
            database.commit()

    def name_of(self, trace: int) -> str:
        return self._ids.trace(trace).hex()


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[PeerServer]:
    """Run MLflow for all tests of the session; a test makes experiments of its own."""
    _require("mlflow")
    with run_mlflow(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="session")
def phoenix_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[PeerServer]:
    """Run Phoenix for all tests of the session; a test makes projects of its own."""
    _require("phoenix")
    with run_phoenix(tmp_path_factory.mktemp("phoenix")) as server:
        yield server


@pytest.fixture(params=["mlflow", "phoenix"])
def peer(request: pytest.FixtureRequest) -> Generator[Peer]:
    """Return one store after the other."""
    server: PeerServer = request.getfixturevalue(f"{request.param}_server")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        yield MlflowPeer(server, http) if request.param == "mlflow" else PhoenixPeer(server, http)


@pytest.fixture(scope="session")
def client(
    tmp_path_factory: pytest.TempPathFactory, mlflow_server: PeerServer, phoenix_server: PeerServer
) -> Generator[StackClient]:
    """Run a stack whose deployment lists the peers' hosts."""
    allowed = json.dumps({"*": [mlflow_server.host, phoenix_server.host]})
    folder = tmp_path_factory.mktemp("stack")
    with (
        running_stack(folder, environments=4, parameters={"OutgoingAllowedHosts": allowed}) as stack,
        StackClient(stack) as client,
    ):
        yield client


@pytest.fixture
def project(client: StackClient) -> str:
    name = f"project-{next(_numbers)}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    return name


@pytest.fixture
def make_span() -> Callable[..., PeerSpan]:
    """Return the class of spans: what stands in conftest cannot be imported."""
    return PeerSpan


def _require(name: str) -> None:
    if not has_environment(name):
        pytest.skip(f"LEFT OUT: the {name} server is not set up (make peers)")


def _push(
    http: httpx.Client, ids: Ids, spans: Sequence[PeerSpan], headers: dict[str, str], resource: dict[str, str]
) -> None:
    content = _encode_request(ids, spans, resource)
    headers = {"content-type": "application/x-protobuf", **headers}
    http.post("/v1/traces", content=content, headers=headers).raise_for_status()


# OTLP's protobuf, as far as these tests need it: field numbers are those of opentelemetry-proto's trace.proto.


def _encode_request(ids: Ids, spans: Sequence[PeerSpan], resource: dict[str, str]) -> bytes:
    scope_spans = b"".join(_member(2, _encode_span(ids, span)) for span in spans)
    return _member(1, _member(1, _encode_attributes(1, resource)) + _member(2, scope_spans))


def _encode_span(ids: Ids, span: PeerSpan) -> bytes:
    start = _nanoseconds(span.start)
    end = 0 if span.seconds is None else start + int(span.seconds * 10**9)
    return b"".join(
        (
            _member(1, ids.trace(span.trace)),
            _member(2, ids.span(span.trace, span.number)),
            _member(4, ids.span(span.trace, span.parent)) if span.parent else b"",
            _member(5, b"chat"),
            b"\x30\x01",
            b"\x39" + start.to_bytes(8, "little"),
            b"\x41" + end.to_bytes(8, "little") if end else b"",
            _encode_attributes(9, span.attributes),
            _member(15, b"\x18\x01"),
        )
    )


def _encode_attributes(number: int, attributes: dict[str, str]) -> bytes:
    pairs = [_member(1, name.encode()) + _member(2, _member(1, text.encode())) for name, text in attributes.items()]
    return b"".join(_member(number, pair) for pair in pairs)


def _member(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _encode_length(len(content)) + content


def _encode_length(length: int) -> bytes:
    encoded = bytearray()
    while length > 0x7F:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded)


def _nanoseconds(instant: datetime) -> int:
    passed = instant - _EPOCH
    return (passed.days * 86_400 + passed.seconds) * 10**9 + passed.microseconds * 1000
