"""A proxy before the API and the object store that loses what it is told to lose."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx

type Fault = Literal["hold before", "hold after", "drop after", "503 after"]

_HOP = frozenset({"connection", "content-length", "transfer-encoding", "host", "keep-alive", "date", "server"})


@dataclass
class FaultProxy:
    """What it does, and what it saw.

    Attributes
    ----------
    api_url
        Of the API behind it.
    url
        Its own.
    faults
        Beginning of `METHOD /path` -> what happens to the next such request: it never reaches the service, or its
        answer never comes, is cut off, or is a 503 instead.
    seen
        `METHOD /path` of all requests, with their Idempotency-Keys.
    held
        Set when a request is being held.
    """

    api_url: str
    url: str = ""
    faults: dict[str, Fault] = field(default_factory=dict[str, Fault])
    seen: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    held: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    store_url: str = ""

    def take_fault(self, request: str) -> Fault | None:
        for beginning in list(self.faults):
            if request.startswith(beginning):
                return self.faults.pop(beginning)
        return None

    def keys(self, operation: str) -> list[str | None]:
        """Return the Idempotency-Keys of the requests to `METHOD /path…` that ends so."""
        return [key for request, key in self.seen if request.endswith(operation)]


@contextmanager
def fault_proxy(api_url: str) -> Generator[FaultProxy]:
    """Run a proxy while the block runs. URLs of the store in reservations lead through it too."""
    proxy = FaultProxy(api_url)
    upstream = httpx.Client(trust_env=False, timeout=60)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (ConnectionError, TimeoutError):
                self.close_connection = True

        def relay(self) -> None:
            request = f"{self.command} {urlsplit(self.path).path}"
            proxy.seen.append((request, self.headers.get("idempotency-key")))
            fault = proxy.take_fault(request)
            if fault == "hold before":
                self.hold()
                return
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            is_store = "x-amz-checksum-sha256" in self.headers
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            if is_store:
                headers["content-length"] = str(len(content))
            base = proxy.store_url if is_store else proxy.api_url
            answer = upstream.request(self.command, base + self.path, headers=headers, content=content)
            match fault:
                case "hold after":
                    self.hold()
                    return
                case "drop after":
                    self.close_connection = True
                    return
                case "503 after":
                    self.reply(503, {"content-type": "application/json"}, b'{"message":"Service Unavailable"}')
                    return
                case _:
                    self.reply(answer.status_code, answer.headers, self.redirect_store(answer))

        def redirect_store(self, answer: httpx.Response) -> bytes:
            if not self.path.endswith("/uploads") or answer.status_code != 201:
                return answer.content
            reservation = answer.json()
            parts = urlsplit(reservation["url"])
            proxy.store_url = f"{parts.scheme}://{parts.netloc}"
            reservation["url"] = reservation["url"].replace(proxy.store_url, proxy.url, 1)
            return json.dumps(reservation).encode()

        def reply(self, status: int, headers: Any, content: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in (*_HOP, "content-encoding"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def hold(self) -> None:
            proxy.held.set()
            proxy.released.wait()
            self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = relay  # noqa: N815 - the base class calls them so

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.released.set()
        server.shutdown()
        server.server_close()
        upstream.close()
