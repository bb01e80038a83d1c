"""Clients of AWS against a server that accepts and stays silent."""

import socket
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ReadTimeoutError
from coordination.errors import StorageUnavailableError
from coordination.ports import client_configs
from coordination.ports.dead_letters import DeadLetters
from coordination.ports.event_bus import EventBus, EventNotTakenError
from coordination.ports.functions import Functions
from coordination.ports.language_models import LanguageModels
from coordination.ports.objects import Objects
from coordination.ports.queues import SqsQueues
from coordination.ports.remote_calls import CallFailedError
from coordination.ports.secrets import Secrets, SecretUnavailableError

QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/q"
SECONDS = 0.1


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the waits be short; how often a call is tried stays."""
    for name in ("_READ_SECONDS", "_MESSAGE_READ_SECONDS"):
        monkeypatch.setattr(client_configs, name, SECONDS)
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", Mock(return_value=0))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    """Put a server in the place of AWS to which one can connect, and which never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listener:
        listener.setblocking(False)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        yield listener


def count_connections(listener: socket.socket) -> int:
    count = 0
    while True:
        try:
            listener.accept()[0].close()
        except BlockingIOError:
            return count
        count += 1


@pytest.mark.parametrize(
    ("call", "error", "tries"),
    [
        (lambda: Objects("b").open("k"), StorageUnavailableError, 3),
        (lambda: Objects("b").read("k", 0, 10), StorageUnavailableError, 3),
        (lambda: Objects("b").put("k", b"content", "text/plain"), StorageUnavailableError, 3),
        (lambda: Objects("b").list_page("k", "", 10), StorageUnavailableError, 3),
        (lambda: Objects("b").delete(["k", "l"]), StorageUnavailableError, 3),
        (lambda: Secrets().read_foreign("s"), SecretUnavailableError, 3),
        (lambda: Secrets().read("s"), ReadTimeoutError, 3),
        (lambda: SqsQueues().send(QUEUE_URL, ["one"] * 11), ReadTimeoutError, 2),
        (lambda: DeadLetters().count(QUEUE_URL), ReadTimeoutError, 2),
        (lambda: EventBus().put("dataset.published", {"id": "1"}, datetime.now(UTC)), EventNotTakenError, 2),
        (
            lambda: Functions().invoke("f", b"{}", timeout_seconds=SECONDS, max_bytes=100),
            CallFailedError,
            1,
        ),
        (lambda: LanguageModels().converse("m", {"messages": []}, timeout_seconds=SECONDS), CallFailedError, 1),
    ],
    ids=[
        "open",
        "read",
        "put",
        "list",
        "delete",
        "foreign_secret",
        "secret",
        "send",
        "count",
        "event",
        "invoke",
        "ask",
    ],
)
def test_silence_ends_a_call_after_its_tries(
    silent: socket.socket, call: Callable[[], Any], error: type[Exception], tries: int
) -> None:
    with pytest.raises(error):
        call()
    assert count_connections(silent) == tries


def test_object_that_stops_in_the_middle_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
            is_over.wait(10)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=serve)
        thread.start()
        stored = Objects("b").open("k")
        assert stored.bytes == 100
        with pytest.raises(StorageUnavailableError):
            stored.body.read()
        is_over.set()
        thread.join(5)
    assert not thread.is_alive()
