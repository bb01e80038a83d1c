"""Send the sources that are due, one message each, as the one leader of this minute."""

import psycopg
from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from coordination.clock import Deadline
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.metrics import emit_metrics
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("sources")
LEADER = "source-manager"
_BATCH_SIZE = 500
_SPARE_SECONDS = 10.0
_ANOTHER_LEADS = "EW201"


def send_due_sources(environment: Environment, deadline: Deadline) -> int:
    """Send due sources as the leader, batch after batch, until there are none or the time is over.

    Idle sources cost one statement that writes nothing, however many there are. The leader lease covers the choice of a
    batch, which is one transaction: a pulse that dies leaves no lease behind. One that meets another leaves the rest to
    it, also when it is stuck: the server ends a transaction that is silent for two statement time-outs. Messages go
    after the commit, so that none goes twice.

    Returns
    -------
    int
        How many messages were sent.

    Raises
    ------
    DatabaseUnavailableError
        No connection, or a statement that takes too long; the next minute tries again.
    """
    params = {
        "batch_size": _BATCH_SIZE,
        "resend_after_seconds": environment.settings.work.resend_after_seconds,
        "lease_name": LEADER,
    }
    # A look before the lease: most minutes have nothing to lead.
    if not environment.database.fetch_all(_QUERIES["find_due_source"], params):
        return 0
    sent = 0
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        try:
            with environment.database.transaction(INSTALLATION) as transaction:
                claimed = transaction.submit(_QUERIES["claim_due_sources"], params)
        except psycopg.Error as error:
            if error.sqlstate != _ANOTHER_LEADS:
                raise
            logger.info("another pulse is at work")
            emit_metrics(environment.settings, {"PulsesBehindAnother": (1, MetricUnit.Count)})
            break
        wake_ups = [WakeUp(**row) for row in claimed]
        sent += environment.outbox.send(wake_ups)
        if len(wake_ups) < _BATCH_SIZE:
            break
    if sent:
        logger.info("sources sent", extra={"count": sent})
    return sent
