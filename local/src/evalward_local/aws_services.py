"""S3, SQS and Secrets Manager for the stack: moto's server, in a process of its own.

Run as a program with the number of a listening socket that it inherits: the stack knows the port before the program has
loaded, and a request that comes early waits in the socket's queue.
"""

import itertools
import os
import sys
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3 import notifications
from werkzeug.serving import make_server

_sequence = itertools.count(1)


class _QuietHandler(MotoRequestHandler):
    # Boto3 keeps its connections: a new one for every call costs more than the call.
    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the functions' logs are what people look for."""


def add_sequencers() -> None:
    """Give S3 events the `sequencer` that S3 sends and moto leaves out; consumers tell repeats from rewrites by it."""
    make_event: Any = notifications._get_s3_event  # pyright: ignore[reportPrivateUsage]

    def make_event_with_sequencer(*arguments: Any) -> dict[str, Any]:
        event: dict[str, Any] = make_event(*arguments)
        for record in event["Records"]:
            record["s3"]["object"]["sequencer"] = f"{next(_sequence):018X}"
        return event

    notifications._get_s3_event = make_event_with_sequencer  # pyright: ignore[reportPrivateUsage]


def serve(descriptor: int) -> None:
    """Serve on an inherited listening socket until killed.

    Parameters
    ----------
    descriptor
        The socket's file descriptor.
    """
    # Objects beyond this size would go to files in a temporary folder nobody empties.
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(256 * 1024 * 1024))
    add_sequencers()
    app: Any = DomainDispatcherApplication(create_backend_app)
    make_server("127.0.0.1", 0, app, threaded=True, request_handler=_QuietHandler, fd=descriptor).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
