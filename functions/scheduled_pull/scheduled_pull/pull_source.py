"""Work on one source under its lease: decide what is due, read one window, turn it into a run.

Reading happens between two short transactions. The first notes missed ticks and the attempt; the second holds all that
a window becomes: the run, its snapshot, its dispatch and wake-up, and the cursor by compare-and-set, guarded by the
lease's owner, epoch and expiry. A kill at any point leaves the state before it, and the same window is tried again.
"""

import time
import traceback

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import RunQuotaExceededError, StorageUnavailableError
from coordination.leases import Lease, LeaseLostError, drop_lease, release_lease, require_lease, take_lease
from coordination.snapshots import manifest_key_beside, snapshot_key
from coordination.sources import source_wake_up

from scheduled_pull.begin_attempt import Attempt, begin_attempt
from scheduled_pull.collect_traces import collect_traces
from scheduled_pull.connectors.open_connector import open_connector
from scheduled_pull.end_attempt import CursorMovedError, complete_attempt, fail_attempt
from scheduled_pull.snapshot import Snapshot, build_snapshot
from scheduled_pull.traces import PullFailedError

logger = Logger(child=True)

LEASE_SECONDS = 120
PULL_SECONDS = 90.0
# What a bucket that is silent, the last transaction and the answer to Lambda may take.
_SPARE_SECONDS = 28.0


def pull_source(environment: Environment, project: str, source_id: str, deadline: Deadline) -> None:
    """Look at a source and work on the window that is due, if one is.

    A message that meets a live lease is done with: whoever holds it looks at the same rows. Nothing is written by a
    holder whose lease has expired, and no tick is decided twice: the cursor moves only from where it was seen.

    Raises
    ------
    DatabaseUnavailableError
        The database did not answer: the message goes back to its queue.
    """
    lease = take_lease(environment.database, source_wake_up(project, source_id).lease_name, LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this source", extra={"source": source_id})
        return
    try:
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            attempt = begin_attempt(transaction, source_id)
            if attempt is None:
                release_lease(transaction, lease)
        if attempt is not None:
            _work(environment, attempt, lease, deadline)
    except (CursorMovedError, LeaseLostError) as error:
        logger.warning("the pull is given up, nothing of it is written", extra={"reason": type(error).__name__})
    finally:
        drop_lease(environment.database, lease)


def _work(environment: Environment, attempt: Attempt, lease: Lease, deadline: Deadline) -> None:
    pull_deadline = Deadline(time.monotonic() + min(PULL_SECONDS, deadline.remaining_seconds() - _SPARE_SECONDS))
    try:
        snapshot = _read_guarded(environment, attempt, pull_deadline)
        with environment.database.transaction(attempt.project) as transaction:
            require_lease(transaction, lease)
            complete_attempt(transaction, attempt, snapshot)
            release_lease(transaction, lease)
    except RunQuotaExceededError as error:
        failure = PullFailedError("run_quota_exceeded", error.detail)
    except StorageUnavailableError:
        failure = PullFailedError("store_unavailable", "The bucket did not take the snapshot.")
    except PullFailedError as error:
        failure = error
    else:
        return
    logger.warning(
        "the attempt at a window failed",
        extra={"source": attempt.source_id, "code": failure.code, "trace": failure.trace_id},
    )
    with environment.database.transaction(attempt.project) as transaction:
        require_lease(transaction, lease)
        fail_attempt(transaction, attempt, failure)
        release_lease(transaction, lease)


def _read_guarded(environment: Environment, attempt: Attempt, deadline: Deadline) -> Snapshot | None:
    """Read a window; a fault of ours is a failed attempt too, and its message, which may quote a trace, stays here.

    Raises
    ------
    PullFailedError, StorageUnavailableError
        As `_read_window`.
    """
    try:
        return _read_window(environment, attempt, deadline)
    except (PullFailedError, StorageUnavailableError):
        raise
    except Exception as error:  # noqa: BLE001 - what a trace can break must not keep the reason out of the ledger
        place = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{place.name}, line {place.lineno}"
        logger.error("a window was not read for a reason of ours", extra={"error": type(error).__name__, "at": at})
    raise PullFailedError("internal_error", "The window was not read for a reason of ours; the function's log has it.")


def _read_window(environment: Environment, attempt: Attempt, deadline: Deadline) -> Snapshot | None:
    """Return the snapshot of a window, its objects stored; None when it is empty.

    Raises
    ------
    PullFailedError
        The window cannot be read whole.
    StorageUnavailableError
        The bucket did not take the snapshot.
    """
    config = attempt.config
    connector = open_connector(environment, attempt.project, config, deadline)
    traces = collect_traces(connector, attempt.window, attempt.excluded, config.max_traces, deadline)
    if not traces:
        return None
    snapshot = build_snapshot(
        traces, config.redaction, config.mapping, max_bytes=config.max_snapshot_bytes, uri=config.location
    )
    key = snapshot_key(attempt.project, attempt.run_id, snapshot.sha256)
    environment.objects.put(manifest_key_beside(key), snapshot.manifest, "application/json")
    environment.objects.put(key, snapshot.content, "application/x-ndjson")
    return snapshot
