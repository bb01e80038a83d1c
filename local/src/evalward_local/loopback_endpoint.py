"""An HTTP endpoint on this machine in the hands of a test; what it does with a call is its subclass's."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, Self


class LoopbackEndpoint:
    """Listens on a port of 127.0.0.1 as long as the block runs. A caller who hangs up is no error."""

    def __init__(self) -> None:
        # Set at the end, to let go of calls that are held.
        self._is_closing = Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                try:
                    endpoint.serve(self, headers, content)
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

    def serve(self, handler: BaseHTTPRequestHandler, headers: dict[str, str], content: bytes) -> None:
        """Answer a call; names of headers come in lower case. Runs in a thread of the call."""
        raise NotImplementedError


def send_answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    """Answer a call with a status, headers and a body of which the length is told."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
