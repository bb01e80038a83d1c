"""The API as its gateway calls it, use cases on a real database, queues and bucket that can be looked into."""

from __future__ import annotations

import base64
import json
import select
import socket
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any, Literal

import api.handler
import api.operations
import boto3
import orjson
import pytest
from coordination.access import generate_token
from coordination.clock import Deadline
from coordination.database import Database
from coordination.environment import Environment, make_environment
from coordination.errors import ProblemError
from coordination.http import border
from coordination.http.request import Request
from coordination.http.responses import encode_error
from coordination.ports.objects import Objects
from coordination.ports.secrets import Secrets
from coordination.settings import QueueSettings, Settings, StorageSettings
from moto import mock_aws
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from pydantic import SecretStr

if TYPE_CHECKING:
    from conftest import FreshDatabase

BUCKET = "evalward-test"
OPERATIONS = {operation.id: operation for operation in api.operations.OPERATIONS}


class QueueIsDownError(Exception):
    """The queue was told to refuse."""


@dataclass
class RecordedQueues:
    """A queue port that keeps what was sent.

    Attributes
    ----------
    sent
        (URL, decoded body) in the order of sending.
    delays
        Seconds of delay, in the same order.
    is_down
        Whether sending fails.
    """

    sent: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    delays: list[int] = field(default_factory=list[int])
    is_down: bool = False

    def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None:
        """Keep the bodies."""
        if self.is_down:
            raise QueueIsDownError
        self.sent += [(url, orjson.loads(body)) for body in bodies]
        self.delays += [delay_seconds] * len(bodies)


@dataclass(frozen=True)
class Context:
    """Lambda's context object.

    Attributes
    ----------
    remaining_seconds
        What the invocation has left.
    """

    remaining_seconds: float = 29.0
    aws_request_id: str = "00000000-0000-0000-0000-000000000001"
    function_name: str = "api"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn:aws:lambda:eu-central-1:000000000000:function:api"

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return int(self.remaining_seconds * 1000)


@dataclass(frozen=True)
class Reply:
    """What the handler answered.

    Attributes
    ----------
    status, headers
        Header names in lower case.
    content
        The body's bytes.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return orjson.loads(self.content)

    @property
    def code(self) -> str | None:
        """The code of a problem; None for a success."""
        is_problem = self.headers.get("content-type") == "application/problem+json"
        return self.json["code"] if is_problem else None

    @property
    def pointers(self) -> list[str]:
        """The places a problem points at."""
        return [error["pointer"] for error in self.json.get("errors", [])]


@dataclass
class Api:
    """One environment of the function `api`; a call at a time, as in Lambda.

    Attributes
    ----------
    environment
        What the function holds.
    admin_key
        Sent unless a call names another key.
    """

    environment: Environment
    admin_key: str

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: str = "",
        key: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        is_base64: bool = False,
        changes: Mapping[str, Any] | None = None,
    ) -> Reply:
        """Invoke the handler with the event API Gateway would make of a request.

        Parameters
        ----------
        body
            JSON values, or text or bytes to be sent as they are; None sends none.
        key
            Text of an API key; "" sends no Authorization header.
        headers
            Added last, names as given.
        is_base64
            Deliver the body the way binary bodies are delivered.
        changes
            Members of the event to replace.
        """
        sent_headers: dict[str, str] = {"host": "api.example.com", "accept": "*/*"}
        if key != "":
            sent_headers["authorization"] = f"Bearer {key or self.admin_key}"
        content = (
            body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        if body is not None:
            sent_headers["content-type"] = "application/json"
        if idempotency_key is not None:
            sent_headers["idempotency-key"] = idempotency_key
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": query,
            "headers": sent_headers | dict(headers or {}),
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "stage": "$default",
                "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            },
            "isBase64Encoded": is_base64,
        }
        if body is not None:
            event["body"] = base64.b64encode(content).decode() if is_base64 else content.decode()
        answer = api.handler.lambda_handler(event | dict(changes or {}), Context())  # pyright: ignore[reportArgumentType]
        answered: str = answer.get("body") or ""
        reply = Reply(
            status=answer["statusCode"],
            headers={name.lower(): value for name, value in answer["headers"].items()},
            content=base64.b64decode(answered) if answer.get("isBase64Encoded") else answered.encode(),
        )
        expected = (event | dict(changes or {}))["requestContext"]
        assert reply.headers["x-request-id"] == (expected.get("requestId") or Context().aws_request_id)
        return reply

    def get(self, path: str, **options: Any) -> Reply:
        """Call GET."""
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any, **options: Any) -> Reply:
        """Call POST."""
        return self.call("POST", path, body, **options)


@pytest.fixture
def queues() -> RecordedQueues:
    """Return a queue port to look into."""
    return RecordedQueues()


@pytest.fixture
def make_environments(database: FreshDatabase, queues: RecordedQueues) -> Generator[Callable[..., Environment]]:
    """Return a function that makes an environment with a connection of its own; keywords replace settings."""
    made: list[Environment] = []

    def make(url: str | None = None, **changes: Any) -> Environment:
        given: dict[str, Any] = {
            "database_url": SecretStr(url or database.app_url),
            "storage": StorageSettings(bucket=BUCKET),
            "queues": QueueSettings(
                conversion_url="https://sqs/conversion",
                evaluation_url="https://sqs/evaluation",
                delivery_url="https://sqs/delivery",
            ),
        }
        settings = Settings(**(given | changes))
        made.append(make_environment(settings, queues, Objects(settings.storage.bucket), Secrets()))
        return made[-1]

    yield make
    for environment in made:
        environment.database.close()


@pytest.fixture
def environment(make_environments: Callable[..., Environment]) -> Environment:
    """Return one environment with the default settings."""
    return make_environments()


@pytest.fixture
def app(environment: Environment) -> Database:
    """Return the environment's database."""
    return environment.database


@pytest.fixture
def open_api(database: FreshDatabase, monkeypatch: pytest.MonkeyPatch) -> Callable[[Environment], Api]:
    """Return a function that lets the handler work in a given environment."""

    def open_with(environment: Environment) -> Api:
        monkeypatch.setattr(border, "load_environment", lambda: environment)
        return Api(environment, database.admin_key)

    return open_with


@pytest.fixture
def service(environment: Environment, open_api: Callable[[Environment], Api]) -> Api:
    """Return the API over one environment."""
    return open_api(environment)


@pytest.fixture
def make_key(database: FreshDatabase) -> Callable[..., str]:
    """Return a function that puts a key with the given grants into the database and answers with its text."""

    def make(*grants: Mapping[str, Any], expires_in: str | None = None) -> str:
        text, token = generate_token()
        database.look(
            "INSERT INTO coordination.api_keys (id, name, secret_sha256, grants, created_by, expires_at)"
            " VALUES (%(id)s, 'made by a test', %(secret)s, %(grants)s, 'test',"
            " clock_timestamp() + %(expires)s::interval)",
            {
                "id": token.key_id,
                "secret": token.secret_sha256,
                "grants": Jsonb([dict(grant) for grant in grants]),
                "expires": expires_in,
            },
        )
        return text

    return make


@pytest.fixture
def make_project(database: FreshDatabase) -> Callable[..., str]:
    """Return a function that puts a project into the database; keywords are columns."""

    def make(project: str = "demo", *, max_stored_runs: int | None = None) -> str:
        database.look(
            "INSERT INTO coordination.projects (id, max_stored_runs, created_by) VALUES (%(id)s, %(runs)s, 'test')",
            {"id": project, "runs": max_stored_runs},
        )
        return project

    return make


@pytest.fixture
def make_dataset(database: FreshDatabase) -> Callable[..., str]:
    """Return a function that puts a dataset version into the database and answers with its sha256."""

    def make(
        project: str = "demo", name: str = "questions", version: int = 1, sha256: str = "a" * 64, records: int = 3,
        size: int = 300,
    ) -> str:  # fmt: skip
        database.look(
            "INSERT INTO packs.packs (tenant_id, name, version, sha256, path, records, bytes, source, created_by)"
            " VALUES (%(project)s, %(name)s, %(version)s, %(sha256)s, %(path)s, %(records)s, %(bytes)s,"
            " 'upload', 'test')",
            {
                "project": project,
                "name": name,
                "version": version,
                "sha256": sha256,
                "path": f"datasets/{project}/sha256/{sha256}.jsonl",
                "records": records,
                "bytes": size,
            },
        )
        return sha256

    return make


@pytest.fixture
def bucket() -> Generator[Callable[[str, bytes], None]]:
    """Make the bundle's bucket and return a function that puts an object into it."""
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        yield lambda key, content: client.put_object(Bucket=BUCKET, Key=key, Body=content) and None


@dataclass(frozen=True)
class Order:
    """A call of an operation below the gateway's event, so that several can run in one process.

    Attributes
    ----------
    operation
        Its id.
    body
        JSON values.
    path
        Path parameters.
    key
        Text of the API key.
    idempotency_key
        Or None for an unkeyed write.
    """

    operation: str
    body: Any
    path: Mapping[str, str]
    key: str
    idempotency_key: str | None = None

    def perform(self, environment: Environment) -> Reply:
        """Authenticate, authorize, validate and run the operation in an environment."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        if self.idempotency_key is not None:
            headers["idempotency-key"] = self.idempotency_key
        request = Request(str(uuid.uuid4()), "POST", "/", headers, [], orjson.dumps(self.body))
        operation, deadline = OPERATIONS[self.operation], Deadline.of_invocation(Context())
        answered: dict[str, str] = {}
        try:
            response = border._respond(operation, request, self.path, answered, environment, deadline)
        except ProblemError as error:
            response = encode_error(error, request.request_id)
        content = response.body if isinstance(response.body, bytes) else (response.body or "").encode()
        sent = {name.lower(): str(value) for name, value in (response.headers | answered).items()}
        return Reply(response.status_code, sent | {"content-type": response.content_type or ""}, content)


@pytest.fixture
def make_order() -> Callable[..., Order]:
    """Return the class of orders, which tests cannot import."""
    return Order


@pytest.fixture
def perform_together(make_environments: Callable[..., Environment]) -> Callable[[Sequence[Order]], list[Reply]]:
    """Return a function that performs orders at the same time, each in an environment of its own."""

    def perform(orders: Sequence[Order], **changes: Any) -> list[Reply]:
        environments = [make_environments(**changes) for _ in orders]
        for one in environments:
            one.database.fetch_one("SELECT 1 AS connected")
        start = Barrier(len(orders))

        def run(order: Order, environment: Environment) -> Reply:
            start.wait(30)
            return order.perform(environment)

        with ThreadPoolExecutor(len(orders)) as threads:
            return list(threads.map(run, orders, environments))

    return perform


class Wire:
    """Stands between a client and PostgreSQL: counts round trips, and cuts the line around a COMMIT when told to.

    Parameters
    ----------
    server
        Path of the server's Unix socket.

    Attributes
    ----------
    round_trips
        How often a client spoke after the server had spoken.
    cut
        `before`: the next COMMIT does not arrive; `after`: its answer does not. Done once.
    on_cut
        Called between the cut and the client's learning of it.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.round_trips = 0
        self.cut: Literal["before", "after"] | None = None
        self.on_cut: Callable[[], None] = lambda: None
        self._start(self._accept)

    def close(self) -> None:
        """Stop listening and wait for the lines to end; clients have hung up by now."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._start(self._carry, self._listener.accept()[0])

    def _carry(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            is_answered = False
            while True:
                ready, _, _ = select.select([client, server], [], [])
                source, sink = (client, server) if client in ready else (server, client)
                data = source.recv(1 << 20)
                if not data:
                    return
                if source is client:
                    self.round_trips += is_answered
                    is_answered = False
                    if self.cut is not None and b"COMMIT\0" in data:
                        self._cut(data, client, server)
                        return
                else:
                    is_answered = True
                sink.sendall(data)

    def _cut(self, data: bytes, client: socket.socket, server: socket.socket) -> None:
        where, self.cut = self.cut, None
        if where == "after":
            server.sendall(data)
            answer = b""
            while b"COMMIT\0" not in answer:
                ready, _, _ = select.select([client, server], [], [], 30)
                assert ready, "nobody speaks any more"
                if client in ready:
                    server.sendall(client.recv(1 << 20))
                else:
                    answer += server.recv(1 << 20)
        server.close()
        self.on_cut()


@pytest.fixture
def wire(database: FreshDatabase) -> Generator[Wire]:
    """Return a line to the server; `wired` is an environment that uses it."""
    login = database.server.superuser
    line = Wire(f"{login.host}/.s.PGSQL.{login.port}")
    yield line
    line.close()


@pytest.fixture
def wired(wire: Wire, database: FreshDatabase, make_environments: Callable[..., Environment]) -> Generator[Environment]:
    """Return an environment whose connection goes over the wire."""
    options = {"host": "127.0.0.1", "port": wire.port, "sslmode": "disable", "gssencmode": "disable"}
    environment = make_environments(make_conninfo(database.app_url, **options))
    yield environment
    environment.database.close()
