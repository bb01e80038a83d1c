"""Create a run: validate all that can be known, pin its records, queue it. O(1) in the dataset's size."""

import hashlib
from uuid import uuid4

from coordination.access import Principal
from coordination.database import Transaction
from coordination.datasets import Dataset, find_dataset_by_name, find_dataset_by_sha256, submit_share_version
from coordination.errors import Fault, InvalidRequestError, NotFoundError
from coordination.evaluator_requests import check_evaluators, list_metric_ids
from coordination.queries import load_queries
from coordination.remote_places import find_sink_faults
from coordination.run_quota import require_room_for_run
from coordination.runs import Progress, Run, RunConfig, RunDataset
from coordination.sinks import insert_sinks
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.canonical_json import canonical_json
from records.gates import find_unknown_metrics

from api.runs.models import CreateRun, DatasetReference

_QUERIES = load_queries("runs")


def create_run(transaction: Transaction, new: CreateRun, principal: Principal) -> Run:
    """Insert a run, its snapshot, its dispatch and its wake-up in the caller's transaction.

    Locks: the dataset version's row and the project's row, shared; with a quota the advisory lock (`stored-runs`,
    project) until the commit, so that concurrent creations cannot pass the limit.

    Raises
    ------
    InvalidRequestError
        An evaluator, a parameter, a gate or a sink is not right; every place is named.
    NotFoundError
        There is no such dataset.
    RunQuotaExceededError
        The project stores as many runs as it may.
    """
    config = _make_config(new, transaction.tenant)
    dataset = _find_dataset(transaction, new.dataset)
    kept = submit_share_version(transaction, dataset)
    require_room_for_run(transaction)
    if kept.fetchone() is None:
        raise _no_dataset()
    run_id = uuid4()
    params = {"tenant": transaction.tenant, "run_id": run_id}
    config_json = config.model_dump(mode="json")
    inserted = transaction.submit(
        _QUERIES["insert_run"],
        {
            "tenant": transaction.tenant,
            "id": run_id,
            "name": new.name,
            "dataset_name": dataset.name,
            "dataset_version": dataset.version,
            "config": Jsonb(config_json),
            "config_sha256": hashlib.sha256(canonical_json(config_json)).hexdigest(),
            "records_total": dataset.records,
            "created_by": principal.id,
            "slices": new.slices,
        },
    )
    if new.labels:
        transaction.submit(
            _QUERIES["insert_run_labels"], params | {"keys": list(new.labels), "values": list(new.labels.values())}
        )
    transaction.submit(
        _QUERIES["insert_run_snapshot"],
        params | {"sha256": dataset.sha256, "path": dataset.path, "records": dataset.records, "bytes": dataset.bytes},
    )
    sinks = insert_sinks(transaction, run_id, new.sinks)
    transaction.submit(_QUERIES["insert_dispatch"], params)
    transaction.wake(WakeUp("evaluation", "run", transaction.tenant, str(run_id)))
    row = inserted.fetchone()
    assert row is not None  # noqa: S101 - INSERT … RETURNING returns its row
    return Run(
        id=run_id,
        project=transaction.tenant,
        name=new.name,
        state="pending",
        dataset=RunDataset(name=dataset.name, version=dataset.version, sha256=dataset.sha256),
        config=config,
        labels=dict(new.labels),
        progress=Progress(total=dataset.records, done=0, scored=0, skipped=0, errors=0),
        gates=None,
        sinks=sinks,
        slices=new.slices,
        created_at=row["created_at"],
        started_at=None,
        finished_at=None,
        error=None,
        created_by=principal.id,
    )


def _make_config(new: CreateRun, project: str) -> RunConfig:
    evaluators, faults = check_evaluators(new.evaluators, "/evaluators")
    ids = list_metric_ids(new.evaluators)
    faults += [Fault(problem.pointer, problem.message) for problem in find_unknown_metrics(new.gates, ids, at="/gates")]
    if new.trials != 1 and new.target.kind == "recorded":
        faults.append(Fault("/trials", "must be 1 for a recorded target: its outputs are there once"))
    faults += find_sink_faults(new.sinks, project, "/sinks")
    faults += [
        Fault(f"/slices/{position}", "is there twice")
        for position, key in enumerate(new.slices)
        if key in new.slices[:position]
    ]
    if faults:
        raise InvalidRequestError.at(faults)
    return RunConfig(
        target=new.target,
        evaluators=evaluators,
        gates=new.gates,
        trials=new.trials,
        concurrency=new.concurrency,
        max_errors=new.max_errors,
    )


def _find_dataset(transaction: Transaction, reference: DatasetReference) -> Dataset:
    if (reference.sha256 is None) == (reference.name is None):
        raise InvalidRequestError.at([Fault("/dataset", "give either sha256 or name (with or without version)")])
    if reference.sha256 is not None:
        if reference.version is not None:
            raise InvalidRequestError.at([Fault("/dataset/version", "goes with name, not with sha256")])
        dataset = find_dataset_by_sha256(transaction, reference.sha256)
    else:
        assert reference.name is not None  # noqa: S101 - checked above
        dataset = find_dataset_by_name(transaction, reference.name, reference.version)
    if dataset is None:
        raise _no_dataset()
    return dataset


def _no_dataset() -> NotFoundError:
    return NotFoundError("The project has no such dataset; GET …/datasets lists what it has.")
