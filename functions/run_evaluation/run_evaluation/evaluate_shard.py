"""Evaluate one shard under its lease and write its results in one transaction."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import Database, Transaction
from coordination.environment import Environment
from coordination.leases import Lease, drop_lease, release_lease, renew_lease, require_lease, take_lease
from coordination.ports.http_calls import OutgoingFailedError
from coordination.ports.objects import ObjectNotFoundError
from coordination.queries import load_queries
from coordination.run_endings import SNAPSHOT_MISSING, end_open_run
from coordination.runs import RunConfig, RunFailure
from coordination.wake_ups import WakeUp
from records.record import Record, read_records

from run_evaluation.evaluate_in_batches import evaluate_in_batches
from run_evaluation.finish_run import finish_run
from run_evaluation.record_slices import write_slices
from run_evaluation.shard_progress import RunEndedError, add_to_run, write_results
from run_evaluation.shard_scores import ShardScores, build_scorers, score_records
from run_evaluation.targets import PlaceUnusableError

logger = Logger(child=True)

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
_RENEW_SECONDS = 20.0
_BATCH_RECORDS = 50
_MAX_LOOKUPS = 3
_LOOKUP_PAUSE_SECONDS = 15
# What writing a shard's results and answering Lambda may take.
_SPARE_SECONDS = 15.0


class ShardTimeoutError(Exception):
    """The invocation ends before the shard does; nothing was written."""


def evaluate_shard(environment: Environment, project: str, shard_id: str, deadline: Deadline) -> None:
    """Score the records of a shard and write the results with its completion.

    A shard whose run makes calls is written batch by batch instead (`run_evaluation.evaluate_in_batches`). State
    decides, not the message: a shard that is done, cancelled or in other hands is passed over. Between batches the
    lease is renewed; when it is lost nothing is written. Who completes the last shard finishes the run.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    ShardTimeoutError
        The shard takes longer than an invocation may: an attempt is used up.
    coordination.leases.LeaseLostError
        Somebody took over.
    """
    wake_up = WakeUp("evaluation", "shard", project, shard_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this shard", extra={"shard": shard_id})
        return
    try:
        finished_run = _evaluate(environment, wake_up, lease, deadline)
    except RunEndedError:
        logger.info("the run has ended, its shard is dropped", extra={"shard": shard_id})
        _drop_shard(environment.database, wake_up)
        return
    finally:
        drop_lease(environment.database, lease)
    if finished_run is not None:
        finish_run(environment, project, str(finished_run))


def _evaluate(environment: Environment, wake_up: WakeUp, lease: Lease, deadline: Deadline) -> UUID | None:
    """Return the run when this was its last shard."""
    params: dict[str, Any] = {"tenant": wake_up.project, "shard_id": UUID(wake_up.ref_id)}
    database = environment.database
    with database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        shard = transaction.fetch_one(_QUERIES["begin_shard"], params)
        if shard is None:
            transaction.submit(_QUERIES["cancel_shard_of_ended_run"], params)
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            release_lease(transaction, lease)
            return None
        if shard["attempts"] > environment.settings.work.max_attempts:
            _give_up(transaction, params, shard)
            return None
    try:
        content = environment.objects.read(shard["path"], shard["byte_start"], shard["byte_end"])
    except ObjectNotFoundError:
        with database.transaction(wake_up.project) as transaction:
            end_open_run(transaction, shard["run_id"], "error", SNAPSHOT_MISSING)
        return None
    config = RunConfig.model_validate(shard["config"])
    records = read_records(content)
    if shard["slices"]:
        with database.transaction(wake_up.project) as transaction:
            require_lease(transaction, lease)
            write_slices(transaction, shard["run_id"], shard["slices"], records, shard["first_record"])
    if config.makes_calls:
        return _evaluate_in_batches(environment, wake_up, lease, deadline, shard, config, records)
    scores = _score(database, lease, deadline, config, records, shard["first_record"])
    with database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        if transaction.fetch_one(_QUERIES["complete_shard"], params) is None:
            # Cancelled in the meantime.
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            release_lease(transaction, lease)
            return None
        write_results(transaction, shard["run_id"], scores)
        transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
        release_lease(transaction, lease)
        progress = add_to_run(transaction, shard["run_id"], config, scores, records=shard["records"], shards=1)
        return progress.finished_run


def _evaluate_in_batches(
    environment: Environment,
    wake_up: WakeUp,
    lease: Lease,
    deadline: Deadline,
    shard: dict[str, Any],
    config: RunConfig,
    records: Sequence[Record],
) -> UUID | None:
    """Evaluate a shard that makes calls; a run whose places cannot be called at all ends in error."""
    try:
        return evaluate_in_batches(environment, wake_up, lease, deadline, shard, config, records)
    except PlaceUnusableError as error:
        detail = f"Nobody can be called: {error}."
    except OutgoingFailedError as error:
        if shard["attempts"] < _MAX_LOOKUPS:
            # Names fail to resolve for moments; the next attempt has a moment's distance.
            with environment.database.transaction(wake_up.project) as transaction:
                require_lease(transaction, lease)
                params = {"tenant": wake_up.project, "shard_id": UUID(wake_up.ref_id), "has_progress": False}
                transaction.submit(_QUERIES["requeue_shard"], params)
                transaction.wake(replace(wake_up, delay_seconds=_LOOKUP_PAUSE_SECONDS, is_punctual=True))
                release_lease(transaction, lease)
            return None
        detail = f"Nobody can be called: {error}."
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        end_open_run(transaction, shard["run_id"], "error", RunFailure(code="place_unusable", detail=detail))
        release_lease(transaction, lease)
    return None


def _drop_shard(database: Database, wake_up: WakeUp) -> None:
    """Cancel a shard whose run ended while it was evaluated, and take back its wake-up."""
    with database.transaction(wake_up.project) as transaction:
        params = {"tenant": wake_up.project, "shard_id": UUID(wake_up.ref_id)}
        transaction.submit(_QUERIES["cancel_shard_of_ended_run"], params)
        transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)


def _score(
    database: Database,
    lease: Lease,
    deadline: Deadline,
    config: RunConfig,
    records: Sequence[Record],
    first_record: int,
) -> ShardScores:
    scorers = build_scorers(config.evaluators)
    scores = ShardScores()
    renewed_at = time.monotonic()
    for start in range(0, len(records), _BATCH_RECORDS):
        if deadline.remaining_seconds() < _SPARE_SECONDS:
            raise ShardTimeoutError(f"{start} of {len(records)} records were scored when the time was over")
        if time.monotonic() - renewed_at > _RENEW_SECONDS:
            renew_lease(database, lease, _LEASE_SECONDS)
            renewed_at = time.monotonic()
        score_records(scores, scorers, records[start : start + _BATCH_RECORDS], first_record + start)
    return scores


def _give_up(transaction: Transaction, params: dict[str, Any], shard: dict[str, Any]) -> None:
    attempts = shard["attempts"] - 1
    detail = f"Shard {shard['shard_no']} was tried {attempts} times and never ended; the function's log says why."
    transaction.submit(_QUERIES["fail_shard"], params | {"error": detail})
    end_open_run(transaction, shard["run_id"], "error", RunFailure(code="attempts_exhausted", detail=detail))
    transaction.submit(
        _WAKE_UPS["delete_wake_up"],
        {"project": transaction.tenant, "kind": "shard", "ref_id": str(params["shard_id"])},
    )
