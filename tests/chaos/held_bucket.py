"""A proxy before the object store that holds a write until its sender is dead."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self
from urllib.parse import urlsplit

import httpx

type Moment = Literal["before", "after"]

_NOT_PASSED_ON = frozenset({"connection", "content-length", "date", "expect", "host", "server", "transfer-encoding"})


class HeldBucket:
    """Passes on what comes, and can hold one write before the store has it, or its answer after.

    Attributes
    ----------
    store_url
        The store behind it; to be set before the first call.
    url
        Its own.
    written
        Paths that were written, in order.
    """

    def __init__(self) -> None:
        self.store_url = ""
        self.written: list[str] = []
        self._held: tuple[str, Moment] | None = None
        self._arrived = threading.Semaphore(0)
        self._go = threading.Event()
        self._upstream = httpx.Client(trust_env=False, timeout=60)
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def relay(self) -> None:
                bucket.relay(self)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = relay  # noqa: N815 - the base class calls them so

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.let_go()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._upstream.close()

    def hold(self, ending: str, moment: Moment) -> None:
        """Hold the next write of a key that ends so."""
        self._go.clear()
        self._held = (ending, moment)

    def wait_for_write(self) -> None:
        """Return when a write is held."""
        assert self._arrived.acquire(timeout=60)

    def let_go(self) -> None:
        """Hold nothing more; what is held gets no answer."""
        self._held = None
        self._go.set()

    def relay(self, handler: BaseHTTPRequestHandler) -> None:
        """Pass a call on; runs in a thread of its connection."""
        path = urlsplit(handler.path).path
        held = self._held if handler.command == "PUT" and self._held and path.endswith(self._held[0]) else None
        content = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        if held and held[1] == "before":
            self._keep_waiting(handler)
            return
        headers = [(name, value) for name, value in handler.headers.items() if name.lower() not in _NOT_PASSED_ON]
        answer = self._upstream.request(
            handler.command, self.store_url + handler.path, headers=headers, content=content
        )
        if handler.command == "PUT" and answer.is_success:
            self.written.append(path)
        if held:
            self._keep_waiting(handler)
            return
        handler.send_response(answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in _NOT_PASSED_ON:
                handler.send_header(name, value)
        handler.send_header("content-length", str(len(answer.content)))
        handler.end_headers()
        handler.wfile.write(answer.content)

    def _keep_waiting(self, handler: BaseHTTPRequestHandler) -> None:
        self._held = None
        self._arrived.release()
        assert self._go.wait(60)
        handler.close_connection = True
