"""An endpoint for webhooks in the hands of a test: takes what comes, answers as it is told."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from threading import Condition

from evalward_local.loopback_endpoint import LoopbackEndpoint, send_answer

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
        send_answer(handler, status, headers, body)

    return answer


class WebhookReceiver(LoopbackEndpoint):
    """Keeps what it is called with; listens as long as the block runs.

    Attributes
    ----------
    received
        Calls in the order in which they came.
    """

    def __init__(self) -> None:
        super().__init__()
        self.received: list[ReceivedCall] = []
        self._answers: list[Answer] = []
        self._changed = Condition()

    @property
    def url(self) -> str:
        """Address to register."""
        return f"http://{self.host}/hook"

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

    def serve(self, handler: BaseHTTPRequestHandler, headers: dict[str, str], content: bytes) -> None:
        """Keep the call and answer as told."""
        with self._changed:
            self.received.append(ReceivedCall(handler.path, headers, content))
            self._changed.notify_all()
            answer = self._answers.pop(0) if self._answers else answer_with(204)
        answer(handler)
