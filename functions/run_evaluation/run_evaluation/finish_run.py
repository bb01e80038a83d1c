"""Finish a run whose shards are all done: aggregate, decide the gates, write the report."""

from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import format_instant
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.leases import drop_lease, release_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.runs import EvaluatorConfig, RunConfig
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.evaluators import catalogue
from records.report import MetricAggregate, RunFacts, build_report
from records.statistics import Moments

logger = Logger(child=True)

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60


def finish_run(environment: Environment, project: str, run_id: str) -> None:
    """Write the report and end the run as succeeded, or failed when a gate fails: one transaction under a lease.

    A run with open shards, or one that has ended, is left alone.
    """
    wake_up = WakeUp("evaluation", "finish", project, run_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        return
    try:
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            _finish(transaction, UUID(run_id))
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            # With the end of the run: whoever sees it ended may delete it at once.
            release_lease(transaction, lease)
    finally:
        drop_lease(environment.database, lease)


def _finish(transaction: Transaction, run_id: UUID) -> None:
    params: dict[str, Any] = {"tenant": transaction.tenant, "run_id": run_id}
    run = transaction.fetch_one(_QUERIES["read_finished_run"], params)
    if run is None:
        return
    rows = {row["evaluator"]: row for row in transaction.fetch_all(_QUERIES["aggregate_results"], params)}
    config = RunConfig.model_validate(run["config"])
    facts = RunFacts(
        run=str(run_id),
        project=transaction.tenant,
        name=run["name"],
        dataset_sha256=run["sha256"],
        config_sha256=run["config_sha256"],
        records=run["records_total"],
        created_at=format_instant(run["created_at"]),
        started_at=format_instant(run["started_at"]),
        finished_at=format_instant(run["finished_at"]),
        input_tokens=run["input_tokens"],
        output_tokens=run["output_tokens"],
        cost_usd=run["cost_usd"],
    )
    aggregates = [_aggregate(evaluator, rows[evaluator.id]) for evaluator in config.evaluators]
    report = build_report(facts, aggregates, config.gates)
    state = "succeeded" if report["passed"] else "failed"
    transaction.submit(
        _QUERIES["finish_run"],
        params | {"state": state, "report": Jsonb(report), "finished_at": run["finished_at"]},
    )
    transaction.submit(_QUERIES["complete_dispatch"], params | {"outcome": state})
    logger.info("run finished", extra={"run": str(run_id), "state": state})


def _aggregate(evaluator: EvaluatorConfig, row: dict[str, Any]) -> MetricAggregate:
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
    )
