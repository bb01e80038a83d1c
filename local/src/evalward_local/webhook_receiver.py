"""An endpoint for webhooks in the hands of a test: takes what comes, answers as it is told."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any, Self

_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class ReceivedCall:
    """A call as it came.

    Attributes
    ----------
    path
        With the query.
    headers
        Names in lower case.
    body
        The bytes that the signature covers.
    """

    path: str
    headers: dict[str, str]
    body: bytes


type Answer = Callable[[BaseHTTPRequestHandler], None]


def answer_with(status: int, body: bytes = b"", **headers: str) -> Answer:
    """Return an answer with a status, a body and headers."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


class WebhookReceiver:
    """Listens on a port of 127.0.0.1 as long as the block runs.

    Attributes
    ----------
    received
        Calls in the order in which they came.
    """

    def __init__(self) -> None:
        self.received: list[ReceivedCall] = []
        self._answers: list[Answer] = []
        self._changed = Condition()
        self._is_closing = Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                answer = receiver._take(
                    ReceivedCall(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                )
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    # Whoever called has hung up, or was killed.
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class has it
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def host(self) -> str:
        """Host and port, as a deployment lists them."""
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """Address to register."""
        return f"http://{self.host}/hook"

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        """Let go of whoever waits, and stop."""
        self._is_closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, *answers: Answer | int) -> None:
        """Answer the next calls with these, in their order; a number is a status. Then 204 again."""
        with self._changed:
            self._answers += [answer_with(one) if isinstance(one, int) else one for one in answers]

    def hold(self, _handler: BaseHTTPRequestHandler) -> None:
        """Be an answer that never comes."""
        self._is_closing.wait()

    def wait_for(self, count: int) -> list[ReceivedCall]:
        """Return all calls as soon as there are so many.

        Raises
        ------
        AssertionError
            Not within a minute.
        """
        until = time.monotonic() + _PATIENCE_SECONDS
        with self._changed:
            while len(self.received) < count:
                if not self._changed.wait(until - time.monotonic()):
                    raise AssertionError(f"{len(self.received)} calls instead of {count}")
            return list(self.received)

    def _take(self, call: ReceivedCall) -> Answer:
        with self._changed:
            self.received.append(call)
            self._changed.notify_all()
            return self._answers.pop(0) if self._answers else answer_with(204)
