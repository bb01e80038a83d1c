"""ASGI applications on listening sockets of one event loop."""

import asyncio
import socket
from contextlib import ExitStack
from typing import Any

import uvicorn

LOOPBACK = "127.0.0.1"
# Nobody but this machine's own clients connects, and they keep their connections.
_KEEP_ALIVE_SECONDS = 600


def open_socket(port: int = 0) -> socket.socket:
    """Return a socket that listens on the loopback interface.

    Parameters
    ----------
    port
        0 takes any free one.

    Raises
    ------
    OSError
        When the port is taken.
    """
    # The protocol is named because asyncio turns Nagle's algorithm off only for sockets that say they are TCP.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((LOOPBACK, port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"{error.strerror}: {LOOPBACK}:{port}; choose another port or none") from error
    return listening


def find_free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on, for programs that take no socket."""
    with ExitStack() as stack:
        # All are held until the last one is found, so that no port comes twice.
        sockets = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


class Listener:
    """Serves one ASGI application on one socket, without the signal handlers and ticks of a whole uvicorn server."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        self.port: int = listening.getsockname()[1]
        self._socket = listening
        config = uvicorn.Config(
            app,
            access_log=False,
            date_header=False,
            http="httptools",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            ws="none",
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)

    async def start(self) -> None:
        """Begin to accept connections."""
        await self._server.startup(sockets=[self._socket])

    def close(self) -> None:
        """Stop accepting and drop every connection."""
        for server in getattr(self._server, "servers", ()):
            server.close()
        for connection in list(self._server.server_state.connections):
            transport: asyncio.Transport | None = getattr(connection, "transport", None)
            if transport is not None:
                transport.close()
        self._socket.close()
