"""Plan a run: cut its snapshot into shards and queue them."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from aws_lambda_powertools import Logger
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.leases import Lease, drop_lease, release_lease, require_lease, take_lease
from coordination.ports.objects import ObjectNotFoundError
from coordination.queries import load_queries
from coordination.run_endings import SNAPSHOT_MISSING, end_open_run
from coordination.runs import RunConfig
from coordination.snapshots import manifest_key_beside
from coordination.wake_ups import WakeUp
from records.manifest import Manifest, decode_manifest

logger = Logger(child=True)

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
_PAUSED_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A contiguous slice of a snapshot.

    Attributes
    ----------
    shard_no
        0, 1, 2 …
    first_record, records
        Where it begins and how many records it has.
    byte_start, byte_end
        Its bytes in the canonical object, [start, end).
    """

    shard_no: int
    first_record: int
    records: int
    byte_start: int
    byte_end: int


def cut_shards(manifest: Manifest) -> list[ShardPlan]:
    """Cut a snapshot at the row borders of its manifest: at most 1000 records or 8 MiB each."""
    starts = [(shard.record, shard.offset) for shard in manifest.shards]
    ends = [*starts[1:], (manifest.records, manifest.bytes)]
    return [
        ShardPlan(number, record, next_record - record, offset, next_offset)
        for number, ((record, offset), (next_record, next_offset)) in enumerate(zip(starts, ends, strict=True))
    ]


def plan_run(environment: Environment, project: str, run_id: str) -> None:
    """Cut a pending run into shards, queue them and set it running: one transaction under the run's lease.

    A run in another state has been planned: nothing is done. A paused project's run waits. Without its manifest a run
    ends in error. Of a resumed run only the shards without results are queued.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    """
    wake_up = WakeUp("evaluation", "run", project, run_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        return
    try:
        _plan(environment, wake_up, lease)
    finally:
        drop_lease(environment.database, lease)


def _plan(environment: Environment, wake_up: WakeUp, lease: Lease) -> None:
    run_id = UUID(wake_up.ref_id)
    params: dict[str, Any] = {"tenant": wake_up.project, "run_id": run_id}
    with environment.database.transaction(wake_up.project) as transaction:
        dispatch = transaction.fetch_one(_QUERIES["read_dispatch"], params)
        if dispatch is None or dispatch["state"] != "pending":
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            return
        if dispatch["paused"]:
            logger.info("the project is paused, its run waits", extra={"run": wake_up.ref_id})
            transaction.submit(_WAKE_UPS["delay_wake_up"], wake_up.row_key | {"delay_seconds": _PAUSED_SECONDS})
            return
    try:
        stored = environment.objects.read(manifest_key_beside(dispatch["path"]))
    except ObjectNotFoundError:
        with environment.database.transaction(wake_up.project) as transaction:
            end_open_run(transaction, run_id, "error", SNAPSHOT_MISSING)
        return
    shards = cut_shards(decode_manifest(stored))
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        missing = shards
        if dispatch["shards_total"] is not None:
            config = RunConfig.model_validate(dispatch["config"])
            missing = _drop_evaluated(transaction, run_id, shards, config.results_each)
        if transaction.fetch_one(_QUERIES["start_run"], params | {"shards_total": len(shards)}) is not None:
            _queue_shards(transaction, run_id, missing)
            transaction.submit(_QUERIES["acknowledge_dispatch"], params)
            if not missing:
                transaction.wake(WakeUp("evaluation", "finish", wake_up.project, wake_up.ref_id))
        transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
        release_lease(transaction, lease)


def _drop_evaluated(
    transaction: Transaction, run_id: UUID, shards: list[ShardPlan], results_each: int
) -> list[ShardPlan]:
    """Leave out the shards that a resumed run has all results of, and take away the rows of those it begins anew.

    The results tell, not the shards' rows, which may have been swept. New rows get new ids, so a worker that comes back
    to a shard of the time before cannot complete it.
    """
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    transaction.submit(_QUERIES["delete_unfinished_shards"], params)
    rows = transaction.fetch_all(
        _QUERIES["list_evaluated_shards"],
        params
        | {
            "first_records": [shard.first_record for shard in shards],
            "records": [shard.records for shard in shards],
            "results_each": results_each,
        },
    )
    evaluated = {row["first_record"] for row in rows}
    return [shard for shard in shards if shard.first_record not in evaluated]


def _queue_shards(transaction: Transaction, run_id: UUID, shards: list[ShardPlan]) -> None:
    if not shards:
        return
    ids = [uuid4() for _ in shards]
    transaction.submit(
        _QUERIES["insert_shards"],
        {
            "tenant": transaction.tenant,
            "run_id": run_id,
            "ids": ids,
            "shard_nos": [shard.shard_no for shard in shards],
            "first_records": [shard.first_record for shard in shards],
            "records": [shard.records for shard in shards],
            "byte_starts": [shard.byte_start for shard in shards],
            "byte_ends": [shard.byte_end for shard in shards],
        },
    )
    for shard_id in ids:
        transaction.wake(WakeUp("evaluation", "shard", transaction.tenant, str(shard_id)))
