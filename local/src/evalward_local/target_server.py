"""An endpoint for targets and judges in the hands of a test: keeps what it is asked, answers as it is told."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Any

from evalward_local.loopback_endpoint import LoopbackEndpoint, send_answer


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


class TargetServer(LoopbackEndpoint):
    """Keeps what it is asked; listens as long as the block runs.

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
        super().__init__()
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.answer: Callable[[Asked], Reply | None] = echo
        self._at_once = 0
        self._times: Counter[bytes] = Counter()
        self._lock = Lock()

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

    def serve(self, handler: BaseHTTPRequestHandler, headers: dict[str, str], content: bytes) -> None:
        """Keep the question and answer it, or hold it until the end."""
        with self._lock:
            self._times[content] += 1
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
            self._is_closing.wait()
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        send_answer(handler, reply.status, dict(reply.headers), body)
