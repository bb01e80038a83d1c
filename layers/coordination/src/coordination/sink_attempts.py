"""One attempt at a sink of a run: the same for every function that brings outcomes somewhere.

The sink's own row says whether it is done, under a lease. What an attempt does must be harmless twice: who dies between
doing and noting does it again, under the same id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger

from coordination.database import Transaction
from coordination.environment import Environment
from coordination.errors import StorageUnavailableError
from coordination.failures import record_failure, resolve_failures
from coordination.leases import Lease, drop_lease, end_lease, release_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.sinks import name_destination
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("sinks")
_WAKE_UPS = load_queries("wake_ups")
RETRY_SECONDS = (5, 30, 180, 900, 3600)
MAX_ATTEMPTS = len(RETRY_SECONDS) + 1


class SinkRefusedError(Exception):
    """Trying again does not help; the message is for people and holds no secret."""


class SinkFailedError(Exception):
    """Trying again may help; the message is for people and holds no secret."""


class RunGoneError(Exception):
    """The run was deleted while its sink was at work: what was read is not whole."""


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What is to be brought where.

    Attributes
    ----------
    environment
        The means.
    wake_up
        Of the sink: its project, and its id as text.
    run_id, state, report, finished_at
        Of the run.
    config
        Of the sink.
    attempts
        Made so far, this one included.
    external_id
        What the destination called it in an attempt before; None when nobody noted it.
    """

    environment: Environment
    wake_up: WakeUp
    run_id: UUID
    config: Mapping[str, Any]
    attempts: int
    state: str
    report: Mapping[str, Any]
    finished_at: datetime
    external_id: str | None

    @property
    def project(self) -> str:
        """The run's project."""
        return self.wake_up.project

    def require_run(self) -> None:
        """Make sure that the run, and so every result that was read of it, is still there.

        Raises
        ------
        RunGoneError
            It is not.
        """
        with self.environment.database.transaction(self.project) as transaction:
            row = transaction.fetch_one(_QUERIES["is_sink_queued"], _params(self.wake_up))
        if row is None or not row["is_queued"]:
            raise RunGoneError

    def note_external_id(self, external_id: str) -> None:
        """Keep what the destination calls it, for the attempts that may follow."""
        with self.environment.database.transaction(self.project) as transaction:
            transaction.submit(_QUERIES["note_external_id"], _params(self.wake_up) | {"external_id": external_id})


def attempt_sink(
    environment: Environment, wake_up: WakeUp, lease_seconds: int, act: Callable[[SinkOrder], None]
) -> None:
    """Make an attempt at a queued sink; one that has ended, is gone or is in other hands is passed over.

    Parameters
    ----------
    environment
        The means.
    wake_up
        Of the sink.
    lease_seconds
        More than an invocation lasts.
    act
        Brings the outcome there, without a transaction around it; raises `SinkRefusedError`, `SinkFailedError`,
        `RunGoneError` or `StorageUnavailableError`.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """
    lease = take_lease(environment.database, wake_up.lease_name, lease_seconds)
    if lease is None:
        logger.info("someone is at this sink", extra={"sink": wake_up.ref_id})
        return
    try:
        with environment.database.transaction(wake_up.project) as transaction:
            require_lease(transaction, lease)
            row = transaction.fetch_one(_QUERIES["begin_sink"], _params(wake_up))
            if row is None:
                _forget(transaction, wake_up, lease)
        if row is not None:
            _attempt(SinkOrder(environment, wake_up, **row), lease, act)
    finally:
        drop_lease(environment.database, lease)


def _attempt(order: SinkOrder, lease: Lease, act: Callable[[SinkOrder], None]) -> None:
    if order.attempts > MAX_ATTEMPTS:
        _end(order, lease, "the last attempt was interrupted")
        return
    try:
        act(order)
    except RunGoneError:
        logger.info("the run was deleted while it was exported", extra={"run": str(order.run_id)})
        with order.environment.database.transaction(order.project) as transaction:
            _forget(transaction, order.wake_up, lease)
    except SinkRefusedError as error:
        _end(order, lease, str(error))
    except (SinkFailedError, StorageUnavailableError) as error:
        if order.attempts >= MAX_ATTEMPTS:
            _end(order, lease, str(error))
        else:
            _postpone(order, lease, str(error))
    else:
        _end(order, lease, None)


def _end(order: SinkOrder, lease: Lease, error: str | None) -> None:
    state = "succeeded" if error is None else "failed"
    logger.info("sink ended", extra={"sink": order.wake_up.ref_id, "state": state})
    with order.environment.database.transaction(order.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(_QUERIES["end_sink"], _params(order.wake_up) | {"state": state, "error": error})
        if error is None:
            resolve_failures(transaction, ["sink"], name_destination(order.config))
        else:
            record_failure(transaction, "sink", name_destination(order.config), error)
        _forget(transaction, order.wake_up, lease)


def _postpone(order: SinkOrder, lease: Lease, error: str) -> None:
    delay_seconds = RETRY_SECONDS[order.attempts - 1]
    wake_up = order.wake_up
    with order.environment.database.transaction(order.project) as transaction:
        require_lease(transaction, lease)
        transaction.submit(_QUERIES["note_sink_error"], _params(wake_up) | {"error": error})
        record_failure(transaction, "sink", name_destination(order.config), error)
        transaction.submit(_WAKE_UPS["delay_wake_up"], wake_up.row_key | {"delay_seconds": delay_seconds})
        release_lease(transaction, lease)


def _forget(transaction: Transaction, wake_up: WakeUp, lease: Lease) -> None:
    transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
    end_lease(transaction, lease)


def _params(wake_up: WakeUp) -> dict[str, Any]:
    return {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
