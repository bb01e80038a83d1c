"""Wake-ups: the transactional outbox through which all asynchronous work is started.

A row in `coordination.wake_ups` is written in the transaction that makes work and deleted in the one that ends it. The
message on the queue, `{"kind", "project", "ref_id", "request_id"?}`, is only a nudge: rows decide. A message that is
lost, doubled or late changes nothing; the minute pulse sends what is due and was not sent, or was sent and not worked
on.
"""

from dataclasses import dataclass
from typing import Literal

import orjson

type QueueName = Literal["conversion", "evaluation", "delivery", "pull"]


@dataclass(frozen=True, slots=True)
class WakeUp:
    """A nudge to work on one thing.

    Attributes
    ----------
    queue
        Which function's queue.
    kind
        What kind of work `ref_id` names: `import`, `run`, `shard`, `finish`, `webhook`, `storage_event`, `sink`,
        `source_tick`.
    project
        Project id.
    ref_id
        The row that holds the work.
    delay_seconds
        Not before this many seconds from now (>= 0). With a delay no message is sent: the pulse does, when it is due.
    is_punctual
        Whether a delay (of at most 900 s) is too short to be rounded up to the pulse's minute: the message is sent at
        once all the same and the queue holds it back.
    """

    queue: QueueName
    kind: str
    project: str
    ref_id: str
    delay_seconds: int = 0
    is_punctual: bool = False

    @property
    def is_sent_at_once(self) -> bool:
        """Whether its message follows the commit instead of the pulse."""
        return self.delay_seconds == 0 or self.is_punctual

    @property
    def lease_name(self) -> str:
        """The name of the lease under which this work is done."""
        return f"{self.kind}:{self.project}:{self.ref_id}"

    @property
    def row_key(self) -> dict[str, str]:
        """Parameters that find its row."""
        return {"project": self.project, "kind": self.kind, "ref_id": self.ref_id}

    def encode(self, request_id: str | None = None) -> str:
        """Return the message body; with the id of the request it follows from, for its reader's log lines."""
        message = {"kind": self.kind, "project": self.project, "ref_id": self.ref_id}
        return orjson.dumps(message | ({"request_id": request_id} if request_id else {})).decode()
