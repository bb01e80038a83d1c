"""Border of the sweeps: each schedule names its pass in its input."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline
from coordination.environment import load_environment

from retention_sweep.collect_orphans import collect_orphans
from retention_sweep.keep_tables import keep_tables
from retention_sweep.prune_idempotency import prune_idempotency
from retention_sweep.recover_uploads import recover_uploads
from retention_sweep.sweep_runs import sweep_runs

logger = Logger()


class UnknownSweepError(Exception):
    """The event names no pass of this function."""


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, int]:
    """Run the pass that the event names; a pass that comes late, twice or at once with another changes nothing."""
    deadline = Deadline.of_invocation(context)
    match event.get("sweep"):
        case "idempotency":
            return prune_idempotency(load_environment(), deadline)
        case "keeper":
            return keep_tables(load_environment(), deadline)
        case "orphans":
            return collect_orphans(load_environment(), deadline)
        case "uploads":
            return recover_uploads(load_environment(), deadline)
        case "runs":
            return sweep_runs(load_environment(), deadline)
        case sweep:
            raise UnknownSweepError(f"sweep {sweep!r}: the schedule's input must name one")
