"""Remote writes in process: effects that a fake remote counts, environments that can die, and `/evaluate`."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import api.operations
import orjson
import pytest
import run_evaluation.operations
from coordination.clock import Deadline
from coordination.database import Database, Transaction
from coordination.environment import Environment
from coordination.errors import ProblemError
from coordination.http import border
from coordination.http.operation import Answer, Call, LocalWrite, Operation, RemoteWrite
from coordination.http.request import Request
from coordination.http.responses import encode_error
from coordination.idempotency.remote_write import EffectBoundary
from coordination.models import RequestModel
from coordination.settings import OutgoingSettings

if TYPE_CHECKING:
    from conftest import FreshDatabase

NDJSON = "application/x-ndjson"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"
PATH = {"project": "demo"}


@dataclass(frozen=True)
class Answered:
    """What an operation answered.

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
    def is_replayed(self) -> bool:
        """Whether the answer is a stored one."""
        return self.headers.get("idempotency-replayed") == "true"


class Pause:
    """Stands in an effect until it is told to go on: the explicit hand-over between two calls."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._go = threading.Event()

    def wait_for_arrival(self) -> None:
        """Return when the effect has arrived here."""
        assert self._arrived.wait(30), "nobody came"

    def go(self) -> None:
        """Let it go on."""
        self._go.set()

    def __call__(self) -> None:
        """Stand here."""
        self._arrived.set()
        assert self._go.wait(30), "nobody let it go on"


def do_nothing() -> None:
    """Let a step pass."""


@dataclass
class FakeRemote:
    """A place outside the database: counts what happens there, and runs a hook at each step of an act.

    Attributes
    ----------
    effects
        By the body's `name`.
    before_claim, before_boundary, before_effect, after_effect
        Hooks: raise, pause or crash there. They stay until they are replaced.
    """

    effects: Counter[str] = field(default_factory=Counter[str])
    before_claim: Callable[[], None] = do_nothing
    before_boundary: Callable[[], None] = do_nothing
    before_effect: Callable[[], None] = do_nothing
    after_effect: Callable[[], None] = do_nothing
    lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, name: str, boundary: EffectBoundary) -> str:
        """Have the effect."""
        self.before_boundary()
        boundary.cross()
        self.before_effect()
        with self.lock:
            self.effects[name] += 1
        self.after_effect()
        return name


class Order(RequestModel):
    """Body of the operations of the tests."""

    name: str = "effect"
    size: int = 0
    note: str | None = None
    amount: float = 0.0


@dataclass
class Caller:
    """A caller of operations, in an environment of its own.

    Attributes
    ----------
    environment
        Where its calls run.
    key
        Text of its API key.
    """

    environment: Environment
    key: str

    def send(
        self,
        operation: Operation,
        body: Any = None,
        idempotency_key: str | None = None,
        *,
        path: Mapping[str, str] = PATH,
        query: Sequence[tuple[str, str]] = (),
        content_type: str = "application/json",
        remaining_seconds: float = 29.0,
    ) -> Answered:
        """Authenticate, authorize, validate and run; a thread of its own may do it at the same time."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": content_type}
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        content = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        request = Request(str(uuid.uuid4()), operation.method, "/", headers, list(query), content)
        context = _Remaining(int(remaining_seconds * 1000))
        answered: dict[str, str] = {}
        try:
            response = border._respond(
                operation, request, path, answered, self.environment, Deadline.of_invocation(context)
            )
        except ProblemError as error:
            response = encode_error(error, request.request_id)
        text = response.body if isinstance(response.body, bytes) else (response.body or "").encode()
        sent = {name.lower(): str(value) for name, value in (response.headers | answered).items()}
        return Answered(response.status_code, sent | {"content-type": response.content_type or ""}, text)


@dataclass(frozen=True)
class _Remaining:
    milliseconds: int

    def get_remaining_time_in_millis(self) -> int:
        return self.milliseconds


class Mortal:
    """An environment that can lose the database for good, as a process that is killed does.

    Parameters
    ----------
    environment
        Whose settings and ports to take.
    url
        libpq URI.
    """

    def __init__(self, environment: Environment, url: str) -> None:
        self._url = url
        self._live_url = url
        database = Database(self._load_url, environment.settings.transactions, lambda _wake_ups: None)
        self.environment = replace(environment, database=database)

    def _load_url(self, _is_fresh: bool) -> str:
        return self._url

    def die(self) -> None:
        """Let nothing of this environment reach the database any more."""
        self.environment.database.close()
        self._url = NOWHERE

    def rise(self) -> None:
        """Be another process, with a connection of its own."""
        self.environment.database.close()
        self._url = self._live_url


@pytest.fixture
def remote() -> FakeRemote:
    """Return the place where remote effects are counted."""
    return FakeRemote()


def _answer(call: Call, transaction: Transaction) -> Answer:
    order = call.body_as(Order)
    row = transaction.fetch_one("SELECT clock_timestamp()::text AS at")
    assert row is not None
    body = orjson.dumps({"name": order.name, "at": row["at"], "filler": "x" * order.size})
    headers = {"location": f"/effects/{order.name}", "etag": '"1"', "set-cookie": "session=1", "x-other": "1"}
    return Answer(201, body, headers)


@pytest.fixture
def remote_operation(remote: FakeRemote) -> Operation:
    """Return a remote write on a project; its answer sets a cookie."""
    return Operation(
        id="test.remote",
        method="POST",
        path="/v1/projects/{project}/effects",
        summary="Have an effect.",
        permission="evaluate",
        body=Order,
        idempotency=RemoteWrite(
            act=lambda call, boundary: remote.act(call.body_as(Order).name, boundary),
            effect_boundary="the effect",
            needed_seconds=5.0,
            reserved_bytes=1024,
        ),
        prepare=lambda _call: remote.before_claim(),
        handle=_answer,
    )


@pytest.fixture
def local_operation(remote: FakeRemote) -> Operation:
    """Return a local write with the same body and answer: it makes a project."""

    def handle(call: Call, transaction: Transaction) -> Answer:
        transaction.submit(
            "INSERT INTO coordination.projects (id, created_by) VALUES (%(id)s::text, 'test')",
            {"id": f"{call.body_as(Order).name}-{uuid.uuid4()}"},
        )
        return _answer(call, transaction)

    return Operation(
        id="test.local",
        method="POST",
        path="/v1/projects/{project}/rows",
        summary="Write a row.",
        permission="evaluate",
        body=Order,
        idempotency=LocalWrite(),
        prepare=lambda _call: remote.before_claim(),
        handle=handle,
    )


OPERATIONS = {one.id: one for one in (*api.operations.OPERATIONS, *run_evaluation.operations.OPERATIONS)}


@pytest.fixture
def operations() -> Mapping[str, Operation]:
    """Return the operations of `api` and `run_evaluation` by id."""
    return OPERATIONS


@pytest.fixture
def project(make_project: Callable[..., str]) -> str:
    """Make the project `demo`."""
    return make_project("demo")


@pytest.fixture
def make_caller(
    make_environments: Callable[..., Environment], database: FreshDatabase, project: str
) -> Callable[..., Caller]:
    """Return a function that makes a caller with an environment of its own; keywords replace settings."""

    def make(key: str | None = None, url: str | None = None, **changes: Any) -> Caller:
        return Caller(make_environments(url, **changes), key or database.admin_key)

    return make


@pytest.fixture
def caller(make_caller: Callable[..., Caller]) -> Caller:
    """Return a caller with the first key of the installation."""
    return make_caller()


@pytest.fixture
def make_mortal(
    make_environments: Callable[..., Environment], database: FreshDatabase
) -> Generator[Callable[[], Mortal]]:
    """Return a function that makes environments that can die."""
    made: list[Mortal] = []

    def make() -> Mortal:
        made.append(Mortal(make_environments(), database.app_url))
        return made[-1]

    yield make
    for mortal in made:
        mortal.environment.database.close()


@pytest.fixture
def threads() -> Generator[Callable[..., Future[Any]]]:
    """Return a function that runs something beside the test."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


@dataclass
class Records:
    """The idempotency records, as the superuser sees and moves them.

    Attributes
    ----------
    database
        Where they are.
    """

    database: FreshDatabase

    def states(self) -> list[str]:
        """Return the states, in the order of claiming."""
        rows = self.database.look("SELECT state FROM coordination.idempotency_records ORDER BY claimed_at")
        return [row["state"] for row in rows]

    def let_pass(self, interval: str) -> None:
        """Let time pass for the records: every instant in them moves back by an interval."""
        self.database.look(
            "UPDATE coordination.idempotency_records SET claimed_at = claimed_at - %(by)s::interval,"
            " deadline_at = deadline_at - %(by)s::interval, completed_at = completed_at - %(by)s::interval,"
            " expires_at = expires_at - %(by)s::interval",
            {"by": interval},
        )

    def claim_id(self) -> str:
        """Return the id of the only record."""
        return str(self.database.look_up("SELECT id FROM coordination.idempotency_records"))


@pytest.fixture
def records(database: FreshDatabase) -> Records:
    """Return the records of the test's database."""
    return Records(database)


@dataclass
class TargetServer:
    """An HTTP server that `/evaluate` calls: counts the calls it took and runs a hook before it answers.

    Attributes
    ----------
    url
        Where it is.
    calls
        Bodies as JSON, in the order of arrival.
    before_answer
        Hook; returns whether to answer at all.
    make_output
        Makes the output of an input.
    """

    url: str
    calls: list[Any] = field(default_factory=list[Any])
    before_answer: Callable[[], bool] = lambda: True
    make_output: Callable[[str], str] = "answer to {}".format


@pytest.fixture
def target() -> Generator[TargetServer]:
    """Run a target on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            question = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
            served.calls.append(question)
            if not served.before_answer():
                return
            content = orjson.dumps({"output": served.make_output(question["input"])})
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = TargetServer(f"http://127.0.0.1:{server.server_address[1]}/answer")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def evaluator(make_caller: Callable[..., Caller]) -> Callable[[], Caller]:
    """Return a function that makes a caller who may have targets on this machine called."""
    return lambda: make_caller(outgoing=OutgoingSettings(allowed_hosts={"*": ["127.0.0.1"]}))


@pytest.fixture
def make_frames(target: TargetServer) -> Callable[..., bytes]:
    """Return a function that makes the body of `/evaluate`: a settings frame and record frames."""

    def make(*inputs: str, has_target: bool = True) -> bytes:
        settings: dict[str, Any] = {"evaluators": [{"name": "contains"}]}
        if has_target:
            settings["target"] = {"kind": "http", "url": target.url}
        rows = [
            {"id": f"r{number}", "input": text, "reference": "answer"} | ({} if has_target else {"output": text})
            for number, text in enumerate(inputs)
        ]
        return b"\n".join(orjson.dumps(frame) for frame in [settings, *rows])

    return make


@pytest.fixture
def new_pause() -> type[Pause]:
    """Return the class of pauses, which tests cannot import."""
    return Pause
