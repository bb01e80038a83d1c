"""Send the sources that are due, one message each, as the one leader of this minute."""

from collections.abc import Generator
from contextlib import contextmanager

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import INSTALLATION, Transaction
from coordination.environment import Environment
from coordination.leases import Lease, release_lease, take_lease
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp
from psycopg.rows import DictRow

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
    lease: Lease | None = None
    sent = 0
    try:
        while deadline.remaining_seconds() > _SPARE_SECONDS:
            with _unhurried(environment) as transaction:
                lease = lease or take_lease(transaction, LEADER, _LEADER_SECONDS)
                rows = _claim(transaction, lease, resend_after_seconds) if lease else []
            wake_ups = [WakeUp(row["queue"], row["kind"], row["project"], row["ref_id"]) for row in rows]
            sent += environment.outbox.send(wake_ups)
            if len(rows) < _BATCH_SIZE:
                break
    finally:
        if lease is not None:
            with _unhurried(environment) as transaction:
                release_lease(transaction, lease)
    if sent:
        logger.info("sources sent", extra={"count": sent})
    return sent


@contextmanager
def _unhurried(environment: Environment) -> Generator[Transaction]:
    # Marks and this lease need not be on disk when the messages go: a mark that a crash of the server loses is a
    # message sent twice, a lease that it loses is a second leader, and a pull minds neither.
    with environment.database.transaction(INSTALLATION) as transaction:
        transaction.submit(_QUERIES["commit_without_waiting"])
        yield transaction


def _claim(transaction: Transaction, lease: Lease, resend_after_seconds: int) -> list[DictRow]:
    return transaction.fetch_all(
        _QUERIES["claim_due_sources"],
        {
            "batch_size": _BATCH_SIZE,
            "resend_after_seconds": resend_after_seconds,
            "lease_name": lease.name,
            "lease_owner": lease.owner,
            "lease_epoch": lease.epoch,
        },
    )
