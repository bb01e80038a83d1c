"""An endpoint for targets and judges in the hands of a test: keeps what it is asked, answers as it is told."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Self


@dataclass(frozen=True)
class Asked:
    """A request as it came.

    Attributes
    ----------
    path
        With the query.
    headers
        Names in lower case.
    body
        As JSON.
    times
        How often this body has come by now, this time included.
    """

    path: str
    headers: Mapping[str, str]
    body: Any
    times: int


@dataclass(frozen=True)
class Reply:
    """What to answer.

    Attributes
    ----------
    body
        JSON values, or bytes to be sent as they are.
    status, headers
        Of the answer.
    """

    body: Any = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def echo(asked: Asked) -> Reply:
    """Answer a question with its input and a usage."""
    output = f"answer to {asked.body['input']}"
    return Reply({"output": output, "usage": {"input_tokens": 10, "output_tokens": 5, "cost_usd": 0.25}})


class TargetServer:
    """Listens on a port of 127.0.0.1 as long as the block runs.

    Attributes
    ----------
    asked
        Requests in the order in which they came.
    most_at_once
        Most requests that were being answered at the same time.
    answer
        Makes the reply; None hangs until the server ends.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.answer: Callable[[Asked], Reply | None] = echo
        self._at_once = 0
        self._times: Counter[bytes] = Counter()
        self._lock = Lock()
        self._ended = Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop listening; whoever hangs is let go."""
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def host(self) -> str:
        """Host and port, as an allow-list names them."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """An address to POST to."""
        return f"http://{self.host}/answer"

    def forget(self) -> None:
        """Begin anew: nothing was asked yet."""
        with self._lock:
            self.asked.clear()
            self._times.clear()

    def times_asked(self) -> Counter[str]:
        """Return how often each record was asked for, by `<record>` and, where there is one, `/<trial>`."""
        with self._lock:
            bodies = [one.body for one in self.asked]
        return Counter(f"{body['record']}/{body['trial']}" if "trial" in body else body["record"] for body in bodies)

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        content = handler.rfile.read(int(handler.headers["content-length"]))
        with self._lock:
            self._times[content] += 1
            headers = {name.lower(): value for name, value in handler.headers.items()}
            asked = Asked(handler.path, headers, json.loads(content), self._times[content])
            self.asked.append(asked)
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            reply = self.answer(asked)
        finally:
            with self._lock:
                self._at_once -= 1
        if reply is None:
            self._ended.wait()
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        try:
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except ConnectionError:
            # Whoever asked has been killed, or has had enough.
            return
