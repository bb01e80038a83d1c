"""Send what is due: wake-ups that were never sent, and those whose worker died."""

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.metrics import emit_metrics
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("wake_ups")
_BATCH_SIZE = 500
# What four queues that are silent may take, and the answer to Lambda.
_SPARE_SECONDS = 30.0
# Beyond it the figure says no more than "far too much", and counting would cost the more the worse it is.
_COUNTED_AT_MOST = 10_000


def send_due_wake_ups(environment: Environment, deadline: Deadline) -> int:
    """Send due wake-ups, batch after batch, until there are none or the time is over.

    A batch is marked as sent in a statement of its own before its messages go out: of two pulses at once each takes
    other rows. What could not be sent is given back. What was due before is told to CloudWatch.

    Returns
    -------
    int
        How many messages were sent.
    """
    _tell_backlog(environment)
    sent = 0
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        rows = environment.database.fetch_all(
            _QUERIES["claim_due_wake_ups"],
            {"batch_size": _BATCH_SIZE, "resend_after_seconds": environment.settings.work.resend_after_seconds},
        )
        wake_ups = [WakeUp(row["queue"], row["kind"], row["project"], row["ref_id"]) for row in rows]
        sent += environment.outbox.send(wake_ups)
        if len(rows) < _BATCH_SIZE:
            break
    if sent:
        logger.info("wake-ups sent", extra={"count": sent})
    return sent


def _tell_backlog(environment: Environment) -> None:
    row = environment.database.fetch_one(_QUERIES["measure_backlog"], {"limit": _COUNTED_AT_MOST})
    assert row is not None  # noqa: S101 - an aggregate has one row
    figures = {
        "DueWork": (row["due_count"], MetricUnit.Count),
        "OldestDueSeconds": (row["oldest_seconds"], MetricUnit.Seconds),
    }
    emit_metrics(environment.settings, figures)
