"""Send the sources that are due, one message each, as the one leader of this minute."""

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.leases import drop_lease, take_lease
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("sources")
LEADER = "source-manager"
_LEADER_SECONDS = 55
_BATCH_SIZE = 500
_SPARE_SECONDS = 10.0


def send_due_sources(environment: Environment, deadline: Deadline) -> int:
    """Send due sources under the leader lease, batch after batch, until there are none or the time is over.

    Idle sources cost one statement that writes nothing, however many there are. A pulse that finds another leader does
    nothing; a leader whose lease has expired gets no rows.

    Returns
    -------
    int
        How many messages were sent.
    """
    resend_after_seconds = environment.settings.work.resend_after_seconds
    # A look before the lease: most minutes have nothing to lead.
    if not environment.database.fetch_all(_QUERIES["find_due_source"], {"resend_after_seconds": resend_after_seconds}):
        return 0
    lease = take_lease(environment.database, LEADER, _LEADER_SECONDS)
    if lease is None:
        return 0
    sent = 0
    try:
        while deadline.remaining_seconds() > _SPARE_SECONDS:
            rows = environment.database.fetch_all(
                _QUERIES["claim_due_sources"],
                {
                    "batch_size": _BATCH_SIZE,
                    "resend_after_seconds": resend_after_seconds,
                    "lease_name": lease.name,
                    "lease_owner": lease.owner,
                    "lease_epoch": lease.epoch,
                },
            )
            wake_ups = [WakeUp(row["queue"], row["kind"], row["project"], row["ref_id"]) for row in rows]
            sent += environment.outbox.send(wake_ups)
            if len(rows) < _BATCH_SIZE:
                break
    finally:
        drop_lease(environment.database, lease)
    if sent:
        logger.info("sources sent", extra={"count": sent})
    return sent
