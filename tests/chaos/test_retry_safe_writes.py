"""Functions are killed with a keyed write in their hands, and the write takes effect once.

A stack of its own: its functions may call a target on this machine, which counts what it is asked and holds the call
until it is told to go on.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import orjson
import psycopg
import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

EVALUATION = "RunEvaluationFunction"
FUNCTION_SECONDS = 120


class HeldTarget:
    """A target that counts the calls and can hold them.

    Attributes
    ----------
    port
        Where it listens on this machine.
    calls
        Inputs in the order of arrival.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.go = threading.Event()
        self.arrived = threading.Semaphore(0)
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = orjson.loads(self.rfile.read(int(self.headers["content-length"])))
                target.calls.append(question["input"])
                target.arrived.release()
                assert target.go.wait(60)
                content = orjson.dumps({"output": "the answer"})
                try:
                    self.send_response(200)
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    # The caller was killed.
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def reset(self) -> None:
        """Forget the calls and answer at once."""
        self.calls.clear()
        self.go.set()
        while self.arrived.acquire(blocking=False):
            pass

    def hold(self) -> None:
        """Hold calls from now on."""
        self.go.clear()

    def wait_for_call(self) -> None:
        """Return when a call is there."""
        assert self.arrived.acquire(timeout=60), "the target was not called"

    def close(self) -> None:
        """Let all go and stop."""
        self.go.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def held() -> Generator[HeldTarget]:
    target = HeldTarget()
    yield target
    target.close()


@pytest.fixture(scope="module")
def client(held: HeldTarget, tmp_path_factory: pytest.TempPathFactory) -> Generator[StackClient]:
    hosts = orjson.dumps({"*": [f"127.0.0.1:{held.port}"]}).decode()
    with (
        running_stack(tmp_path_factory.mktemp("stack"), parameters={"OutgoingAllowedHosts": hosts}) as stack,
        StackClient(stack) as client,
    ):
        yield client


@pytest.fixture
def target(held: HeldTarget) -> Generator[HeldTarget]:
    held.reset()
    yield held
    held.go.set()


@pytest.fixture
def project(client: StackClient) -> str:
    name = f"p-{uuid.uuid4().hex[:8]}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    return name


@pytest.fixture
def evaluate(client: StackClient, project: str, target: HeldTarget) -> Callable[..., httpx.Response]:
    """Return a function that has records evaluated whose outputs the target makes."""

    def send(*inputs: str, idempotency_key: str = "k", timeout_seconds: float = 10.0, **options: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{target.port}/"
        frames: list[Any] = [
            {
                "evaluators": [{"name": "contains"}],
                "target": {"kind": "http", "url": url, "timeout_seconds": timeout_seconds},
            }
        ]
        frames += [{"id": str(number), "input": text, "reference": "answer"} for number, text in enumerate(inputs)]
        content = b"\n".join(map(orjson.dumps, frames))
        path = f"/v1/projects/{project}/evaluate"
        return client.request("POST", path, idempotency_key=idempotency_key, content=content, **options)

    return send


@pytest.fixture
def beside() -> Generator[Callable[..., Future[Any]]]:
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


def let_pass(client: StackClient, project: str, interval: str) -> None:
    client.look(
        "UPDATE coordination.idempotency_records SET claimed_at = claimed_at - %(by)s::interval,"
        " deadline_at = deadline_at - %(by)s::interval, completed_at = completed_at - %(by)s::interval,"
        " expires_at = expires_at - %(by)s::interval WHERE tenant_id = %(project)s",
        {"by": interval, "project": project},
    )


def states(client: StackClient, project: str) -> list[str]:
    rows = client.look(
        "SELECT state FROM coordination.idempotency_records WHERE tenant_id = %(project)s", {"project": project}
    )
    return [row["state"] for row in rows]


@contextmanager
def held_scope(client: StackClient, tenant: str) -> Generator[Callable[[], None]]:
    """Hold the lock of the first key's scope; the yielded function returns when somebody waits for it."""
    scope = f"{tenant} key:{client.stack.admin_key[3:19]}"
    with psycopg.connect(client.stack.superuser_url) as holder:
        holder.execute("SELECT coordination.take_advisory_lock('idempotency-scope', %(scope)s)", {"scope": scope})

        def wait_for_waiter() -> None:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            client.wait(lambda: client.look(waiting) or None, "a function that waits for the scope")

        yield wait_for_waiter


@contextmanager
def held_name(client: StackClient, name: str) -> Generator[Callable[[], None]]:
    """Hold the name of a project that is not committed, and give it back."""
    with psycopg.connect(client.stack.superuser_url) as holder:
        holder.execute("INSERT INTO coordination.projects (id, created_by) VALUES (%(name)s, 'test')", {"name": name})

        def wait_for_waiter() -> None:
            waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"
            client.wait(lambda: client.look(waiting) or None, "a function that waits for the name")

        yield wait_for_waiter
        holder.rollback()


def assert_blocked_for_seven_days(
    client: StackClient, project: str, target: HeldTarget, evaluate: Callable[..., httpx.Response]
) -> None:
    """Walk through the life of a claim whose owner died after the effect."""
    before = evaluate("one")
    assert (before.status_code, before.json()["code"]) == (409, "idempotency_in_progress")
    assert 0 < int(before.headers["retry-after"]) <= FUNCTION_SECONDS
    assert evaluate("another").json()["code"] == "idempotency_key_reused"

    for interval in (f"{FUNCTION_SECONDS} s", "25 h", "142 h"):
        let_pass(client, project, interval)
        after = evaluate("one")
        assert (after.status_code, after.json()["code"]) == (409, "idempotency_uncertain"), interval
        assert "retry-after" not in after.headers
        assert evaluate("another").json()["code"] == "idempotency_key_reused"
    assert target.calls == ["one"]

    let_pass(client, project, "2 h")
    fresh = evaluate("one")
    assert (fresh.status_code, "idempotency-replayed" in fresh.headers) == (200, False)
    assert target.calls == ["one", "one"]


def test_function_killed_while_the_target_holds_its_call(
    client: StackClient,
    project: str,
    target: HeldTarget,
    evaluate: Callable[..., httpx.Response],
    beside: Callable[..., Future[httpx.Response]],
) -> None:
    target.hold()
    first = beside(evaluate, "one")
    target.wait_for_call()
    assert client.kill(EVALUATION) == 1
    assert first.result(60).status_code >= 500
    target.go.set()
    assert states(client, project) == ["claimed"]
    assert_blocked_for_seven_days(client, project, target, evaluate)


def test_function_killed_while_its_outcome_is_committed_is_replayed(
    client: StackClient,
    project: str,
    target: HeldTarget,
    evaluate: Callable[..., httpx.Response],
    beside: Callable[..., Future[httpx.Response]],
) -> None:
    target.hold()
    first = beside(evaluate, "one")
    target.wait_for_call()
    with held_scope(client, project) as wait_for_waiter:
        target.go.set()
        wait_for_waiter()
        assert client.kill(EVALUATION) == 1
        assert first.result(60).status_code >= 500
        assert evaluate("one").json()["code"] == "idempotency_in_progress"
    # The server had the COMMIT before its client died.
    client.wait(lambda: states(client, project) == ["completed"] or None, "the commit")
    again = evaluate("one")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert target.calls == ["one"]


def test_function_killed_right_after_it_answered_had_stored_its_outcome(
    client: StackClient, project: str, target: HeldTarget, evaluate: Callable[..., httpx.Response]
) -> None:
    first = evaluate("one")
    client.kill(EVALUATION)
    again = evaluate("one")
    assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
    assert again.headers["idempotency-replayed"] == "true"
    assert target.calls == ["one"]
    assert states(client, project) == ["completed"]


@pytest.mark.parametrize("is_committing", [False, True])
def test_killed_local_write_happened_wholly_or_not_at_all(
    client: StackClient, beside: Callable[..., Future[httpx.Response]], is_committing: bool
) -> None:
    name = f"p-{uuid.uuid4().hex[:8]}"
    key = f"project-{name}"

    def create() -> httpx.Response:
        return client.request("POST", "/v1/projects", idempotency_key=key, json={"id": name})

    with held_scope(client, "-") if is_committing else held_name(client, name) as wait_for_waiter:
        first = beside(create)
        wait_for_waiter()
        assert create().json()["code"] == "idempotency_in_progress"
        assert client.kill("ApiFunction") == 1
        assert first.result(60).status_code >= 500

    def retry() -> httpx.Response | None:
        # Until the server has noticed, the dead one holds the key.
        answer = create()
        return None if answer.status_code == 409 else answer

    answer = client.wait(retry, "the server to notice")
    assert (answer.status_code, "idempotency-replayed" in answer.headers) == (201, is_committing)
    assert create().content == answer.content
    assert client.look("SELECT id FROM coordination.projects WHERE id = %(name)s", {"name": name}) == [{"id": name}]


@pytest.mark.long
def test_call_that_outlives_the_gateway_is_in_progress_and_then_replayed(
    project: str,
    client: StackClient,
    target: HeldTarget,
    evaluate: Callable[..., httpx.Response],
    beside: Callable[..., Future[httpx.Response]],
) -> None:
    # Eight calls at a time: the second eight are still held when the gateway gives up after 30 s.
    inputs = [str(number) for number in range(16)]
    target.hold()
    first = beside(evaluate, *inputs, timeout_seconds=20.0)
    target.wait_for_call()
    cut = first.result(60)
    assert cut.status_code == 503
    assert "code" not in cut.json()
    meanwhile = evaluate(*inputs, timeout_seconds=20.0)
    assert meanwhile.json()["code"] == "idempotency_in_progress"
    assert 0 < int(meanwhile.headers["retry-after"]) <= FUNCTION_SECONDS - 30
    target.go.set()

    def retry() -> httpx.Response | None:
        answer = evaluate(*inputs, timeout_seconds=20.0)
        return answer if answer.status_code == 200 else None

    assert client.wait(retry, "the outcome").headers["idempotency-replayed"] == "true"
    assert sorted(target.calls) == sorted(inputs)


def test_hourly_pass_fired_three_times_at_once_forgets_what_expired(
    client: StackClient, project: str, evaluate: Callable[..., httpx.Response], beside: Callable[..., Future[Any]]
) -> None:
    evaluate("one")
    let_pass(client, project, "25 h")
    fired = [beside(client.fire, "IdempotencySweepHourly") for _ in range(3)]
    counts = [one.result(60) for one in fired]
    assert sum(one["pruned"] for one in counts) == 1
    assert states(client, project) == []


def test_short_history_on_the_running_stack_agrees_with_a_model(
    client: StackClient, project: str, target: HeldTarget, evaluate: Callable[..., httpx.Response]
) -> None:
    choose = random.Random(20)
    bound: dict[str, tuple[str, bytes]] = {}
    effects = 0
    for _ in range(60):
        key, text = choose.choice(["k1", "k2", "k3"]), choose.choice(["a", "b"])
        if choose.random() < 0.1:
            let_pass(client, project, "25 h")
            bound.clear()
        answer = evaluate(text, idempotency_key=key)
        is_replayed = "idempotency-replayed" in answer.headers
        if key not in bound:
            assert (answer.status_code, is_replayed) == (200, False)
            bound[key] = (text, answer.content)
            effects += 1
        elif bound[key][0] != text:
            assert answer.status_code == 422
        else:
            assert (answer.status_code, is_replayed, answer.content) == (200, True, bound[key][1])
        assert len(target.calls) == effects


def test_logs_hold_neither_secrets_nor_idempotency_keys(
    client: StackClient, project: str, evaluate: Callable[..., httpx.Response]
) -> None:
    idempotency_key = f"to-look-for-{uuid.uuid4()}"
    body = {"name": "logged", "grants": [{"project": project, "role": "runner"}]}
    secret = client.expect(201, "POST", "/v1/keys", idempotency_key=idempotency_key, json=body)["secret"]
    evaluate("one", idempotency_key=idempotency_key, key=secret)
    evaluate("one", idempotency_key=idempotency_key, key=secret[:-1] + "0")
    client.expect(422, "POST", "/v1/keys", idempotency_key=idempotency_key, json=body | {"name": "other"})
    for function in ("ApiFunction", EVALUATION):
        log = httpx.get(f"{client.stack.control_url}/logs/{function}", trust_env=False).text
        assert len(log) > 0
        for text in (idempotency_key, secret[20:], client.stack.admin_key[20:]):
            assert text not in log
