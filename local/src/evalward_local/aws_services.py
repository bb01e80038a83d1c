"""S3, SQS and Secrets Manager for the stack: moto's server, in a process of its own.

Run as a program with the number of a listening socket that it inherits: the stack knows the port before the program has
loaded, and a request that comes early waits in the socket's queue.
"""

import itertools
import os
import sys
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3 import notifications
from moto.sqs.models import Queue
from werkzeug.serving import make_server

_sequence = itertools.count(1)


class _QuietHandler(MotoRequestHandler):
    # Boto3 keeps its connections: a new one for every call costs more than the call.
    protocol_version = "HTTP/1.1"

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing: the functions' logs are what people look for."""


def complete_s3_events() -> None:
    """Make moto's S3 events those of S3.

    S3 sends a `sequencer`, by which consumers tell repeats from rewrites, and leaves slashes in encoded keys alone.
    """
    make_event: Any = notifications._get_s3_event  # pyright: ignore[reportPrivateUsage]

    def make_complete_event(*arguments: Any) -> dict[str, Any]:
        event: dict[str, Any] = make_event(*arguments)
        for record in event["Records"]:
            item = record["s3"]["object"]
            item["key"] = quote_plus(unquote_plus(item["key"]), safe="/")
            item["sequencer"] = f"{next(_sequence):018X}"
        return event

    notifications._get_s3_event = make_complete_event  # pyright: ignore[reportPrivateUsage]


def guard_queues() -> None:
    """Let a queue lose no message that is sent while another is deleted.

    Deleting replaces the list of messages by a copy without the deleted one; what is added to the old list meanwhile is
    gone. Sending holds the queue's lock, deleting has to as well.
    """
    delete_message: Any = Queue.delete_message

    def delete_message_under_lock(queue: Any, receipt_handle: str) -> None:
        with queue._messages_lock:
            delete_message(queue, receipt_handle)

    setattr(Queue, "delete_message", delete_message_under_lock)  # noqa: B010


def serve(descriptor: int) -> None:
    """Serve on an inherited listening socket until killed.

    Parameters
    ----------
    descriptor
        The socket's file descriptor.
    """
    # Objects beyond this size would go to files in a temporary folder nobody empties.
    os.environ.setdefault("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(256 * 1024 * 1024))
    complete_s3_events()
    guard_queues()
    app: Any = DomainDispatcherApplication(create_backend_app)
    make_server("127.0.0.1", 0, app, threaded=True, request_handler=_QuietHandler, fd=descriptor).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
