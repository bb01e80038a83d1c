"""Wake-ups: the transactional outbox through which all asynchronous work is started.

A row in `coordination.wake_ups` is written in the transaction that makes work and deleted in the one that ends it. The
message on the queue, `{"kind", "project", "ref_id"}`, is only a nudge: rows decide. A message that is lost, doubled or
late changes nothing; the minute pulse sends what is due and was not sent, or was sent and not worked on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import orjson
from aws_lambda_powertools import Logger

from coordination.ports.queues import QueuePort

type QueueName = Literal["conversion", "evaluation", "delivery"]

logger = Logger(child=True)


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A nudge to work on one thing.

    Attributes
    ----------
    queue
        Which function's queue.
    kind
        What kind of work `ref_id` names: `import`, `run`, `shard`.
    project
        Project id.
    ref_id
        The row that holds the work.
    delay_seconds
        Not before this many seconds from now (>= 0). With a delay no message is sent: the pulse does, when it is due.
    """

    queue: QueueName
    kind: str
    project: str
    ref_id: str
    delay_seconds: int = 0

    @property
    def lease_name(self) -> str:
        """The name of the lease under which this work is done."""
        return f"{self.kind}:{self.project}:{self.ref_id}"

    def encode(self) -> str:
        """Return the message body."""
        return orjson.dumps({"kind": self.kind, "project": self.project, "ref_id": self.ref_id}).decode()


def send_wake_ups(
    queues: QueuePort, urls: Mapping[QueueName, str], wake_ups: Sequence[WakeUp], on_failure: Callable[[], None]
) -> int:
    """Send the messages of wake-ups whose rows are committed.

    Parameters
    ----------
    queues
        Where to send.
    urls
        Queue name -> queue URL.
    wake_ups
        What to send; those with a delay are left to the pulse.
    on_failure
        Called once when something could not be sent.

    Returns
    -------
    int
        How many were sent. A failure is logged, never raised: the rows stay and the pulse sends them.
    """
    sent = 0
    by_queue: dict[QueueName, list[str]] = {}
    for wake_up in wake_ups:
        if wake_up.delay_seconds == 0 and urls.get(wake_up.queue):
            by_queue.setdefault(wake_up.queue, []).append(wake_up.encode())
    for queue, bodies in by_queue.items():
        try:
            queues.send(urls[queue], bodies)
            sent += len(bodies)
        except Exception:  # noqa: BLE001 - whatever kept it from being sent, the row is still there and the pulse sends it
            logger.warning("wake-ups not sent, the pulse will", extra={"queue": queue, "count": len(bodies)})
            on_failure()
    return sent
