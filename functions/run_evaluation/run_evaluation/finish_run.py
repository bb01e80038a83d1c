"""Finish a run whose shards are all done: aggregate, decide the gates, write the report."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import orjson
from aws_lambda_powertools import Logger
from coordination.clock import format_instant
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.errors import DatabaseUnavailableError
from coordination.events import emit_run_finished
from coordination.failures import resolve_run_failures
from coordination.leases import drop_lease, release_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.runs import EvaluatorConfig, RunConfig
from coordination.sinks import open_sinks
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.evaluators import catalogue
from records.evaluators.contract import AnyEvaluator
from records.report import Distribution, MetricAggregate, RunFacts, Slice, build_report
from records.statistics import Moments

logger = Logger(child=True)

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
_BINS = 20
_WORST_OF_EACH = 10
_SLICES_OF_EACH = 20
_SIGNS = {"higher": 1, "lower": -1, None: 0}


def finish_run(environment: Environment, project: str, run_id: str) -> None:
    """Write the report and end the run as succeeded, or failed when a gate fails: one transaction under a lease.

    A run with open shards, or one that has ended, is left alone. Worst results and slices are looked for before, in
    transactions of their own: nobody writes results any more, and a run too large for that ends without them.
    """
    wake_up = WakeUp("evaluation", "finish", project, run_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        return
    try:
        worst = _list_worst(environment, project, UUID(run_id))
        slices = _list_slices(environment, project, UUID(run_id))
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            _finish(transaction, UUID(run_id), worst, slices)
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            # With the end of the run: whoever sees it ended may delete it at once.
            release_lease(transaction, lease)
    finally:
        drop_lease(environment.database, lease)


def _list_worst(environment: Environment, project: str, run_id: UUID) -> list[dict[str, Any]]:
    """Return the worst results of each metric; none when the run is not to be finished, or that takes too long."""
    params: dict[str, Any] = {"tenant": project, "run_id": run_id}
    try:
        with environment.database.transaction(project) as transaction:
            run = transaction.fetch_one(_QUERIES["read_finished_run"], params)
            if run is None:
                return []
            evaluators = RunConfig.model_validate(run["config"]).evaluators
            return transaction.fetch_all(_QUERIES["list_worst_results"], params | _rank(evaluators))
    except DatabaseUnavailableError as error:
        logger.warning("report without its worst results", extra={"run": str(run_id), "detail": error.detail})
        return []


def _list_slices(environment: Environment, project: str, run_id: UUID) -> list[Slice]:
    """Return the slices of a run's report; none when it has none, is not to be finished, or that takes too long."""
    params: dict[str, Any] = {"tenant": project, "run_id": run_id}
    try:
        with environment.database.transaction(project) as transaction:
            run = transaction.fetch_one(_QUERIES["read_finished_run"], params)
            if run is None or not run["slices"]:
                return []
            rows = transaction.fetch_all(_QUERIES["aggregate_slices"], params | {"limit": _SLICES_OF_EACH})
    except DatabaseUnavailableError as error:
        logger.warning("report without its slices", extra={"run": str(run_id), "detail": error.detail})
        return []
    evaluators = RunConfig.model_validate(run["config"]).evaluators
    slices: list[Slice] = []
    for (key, value), group in groupby(rows, key=lambda row: (row["key"], row["value"])):
        of_evaluator = {row["evaluator"]: row for row in group}
        aggregates = [
            _aggregate(evaluator, of_evaluator[evaluator.id], None)
            for evaluator in evaluators
            if evaluator.id in of_evaluator
        ]
        records: int = next(iter(of_evaluator.values()))["records"]
        slices.append(Slice(key=key, value=orjson.loads(value), records=records, aggregates=aggregates))
    # In the order in which they were asked for.
    return sorted(slices, key=lambda part: run["slices"].index(part.key))


def _finish(transaction: Transaction, run_id: UUID, worst: list[dict[str, Any]], slices: Sequence[Slice]) -> None:
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    run = transaction.fetch_one(_QUERIES["read_finished_run"], params)
    if run is None:
        return
    config = RunConfig.model_validate(run["config"])
    rows = {row["evaluator"]: row for row in transaction.fetch_all(_QUERIES["aggregate_results"], params)}
    distributions = _count_by_bin(transaction, params, config.evaluators, rows)
    facts = RunFacts(
        run=str(run_id),
        project=transaction.tenant,
        name=run["name"],
        dataset=_name_records(run),
        dataset_sha256=run["sha256"],
        config_sha256=run["config_sha256"],
        records=run["records_total"],
        created_at=format_instant(run["created_at"]),
        started_at=format_instant(run["started_at"]),
        finished_at=format_instant(run["finished_at"]),
        input_tokens=run["input_tokens"],
        output_tokens=run["output_tokens"],
        cost_usd=run["cost_usd"],
        latency_ms=_summarize_latencies(transaction, params, config),
        redactions=run["redactions"],
        excluded_traces=run["excluded_trace_ids"],
    )
    aggregates = [
        _aggregate(evaluator, rows[evaluator.id], distributions.get(evaluator.id)) for evaluator in config.evaluators
    ]
    report = build_report(facts, aggregates, config.gates, slices=slices, worst=worst)
    state = "succeeded" if report["passed"] else "failed"
    transaction.submit(
        _QUERIES["finish_run"],
        params | {"state": state, "report": Jsonb(report), "finished_at": run["finished_at"]},
    )
    transaction.submit(_QUERIES["complete_dispatch"], params | {"outcome": state})
    open_sinks(transaction, run_id)
    resolve_run_failures(transaction, run_id)
    emit_run_finished(transaction, run_id, state, gates=report["gates"])
    logger.info("run finished", extra={"run": str(run_id), "state": state})


def _summarize_latencies(
    transaction: Transaction, params: dict[str, Any], config: RunConfig
) -> dict[str, float | int] | None:
    """Return how long the run's target took, as a report shows it; None without a target or an output of it."""
    if config.target.kind == "recorded":
        return None
    row = transaction.fetch_one(_QUERIES["summarize_latencies"], params)
    if row is None or not row["outputs"]:
        return None
    return {"n": row["outputs"], **{name: row[name] for name in ("mean", "p50", "p95", "max")}}


def _name_records(run: dict[str, Any]) -> str:
    """Name what was evaluated, for people: a dataset's version, or a source and its window."""
    if run["source_id"] is None:
        return f"{run['dataset_name']}@{run['dataset_version']}"
    return f"{run['source_id']} {format_instant(run['window_start'])}/{format_instant(run['window_end'])}"


def _rank(evaluators: Sequence[EvaluatorConfig]) -> dict[str, Any]:
    """Return what tells bad results of each evaluator from good ones."""
    entries = [catalogue.get_evaluator(evaluator.name) for evaluator in evaluators]
    return {
        "evaluators": [evaluator.id for evaluator in evaluators],
        "signs": [_SIGNS[entry.better] for entry in entries],
        "bests": [entry.maximum if entry.better == "higher" else entry.minimum for entry in entries],
        "limit": _WORST_OF_EACH,
    }


def _count_by_bin(
    transaction: Transaction,
    params: dict[str, Any],
    evaluators: Sequence[EvaluatorConfig],
    rows: dict[str, dict[str, Any]],
) -> dict[str, Distribution]:
    """Make the histograms of the evaluators whose scores are numbers and not all the same."""
    ranges: dict[str, tuple[float, float]] = {}
    distributions: dict[str, Distribution] = {}
    for evaluator in evaluators:
        entry, row = catalogue.get_evaluator(evaluator.name), rows[evaluator.id]
        if entry.kind == "number" and row["scored"]:
            low, high = _choose_range(entry, row)
            if low < high:
                ranges[evaluator.id] = (low, high)
            else:
                distributions[evaluator.id] = Distribution(low=low, high=high, counts=[row["scored"]])
    if not ranges:
        return distributions
    counts = {evaluator: [0] * _BINS for evaluator in ranges}
    binned = transaction.fetch_all(
        _QUERIES["count_scores_by_bin"],
        params
        | {
            "evaluators": list(ranges),
            "lows": [low for low, _ in ranges.values()],
            "highs": [high for _, high in ranges.values()],
            "bins": _BINS,
        },
    )
    for row in binned:
        counts[row["evaluator"]][row["bin"] - 1] = row["scores"]
    return distributions | {
        evaluator: Distribution(low=low, high=high, counts=counts[evaluator])
        for evaluator, (low, high) in ranges.items()
    }


def _choose_range(entry: AnyEvaluator, row: dict[str, Any]) -> tuple[float, float]:
    """Return the whole scale where there is one, so that runs can be compared by eye; else what the scores span."""
    if entry.minimum is not None and entry.maximum is not None:
        return entry.minimum, entry.maximum
    return row["lowest"], row["highest"]


def _aggregate(evaluator: EvaluatorConfig, row: dict[str, Any], distribution: Distribution | None) -> MetricAggregate:
    entry = catalogue.get_evaluator(evaluator.name)
    return MetricAggregate(
        id=evaluator.id,
        evaluator=evaluator.name,
        version=entry.version,
        kind=entry.kind,
        moments=Moments(row["scored"], row["mean"] or 0.0, row["deviations"] or 0.0),
        skipped=row["skipped"],
        errors=row["errors"],
        minimum=entry.minimum,
        maximum=entry.maximum,
        unit=entry.unit,
        passed=row["passed"],
        failed=row["failed"],
        distribution=distribution,
    )
