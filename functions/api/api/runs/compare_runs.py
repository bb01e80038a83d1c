"""Compare two runs: what changed between the same records, and whether that is more than chance."""

from typing import Any, Literal
from uuid import UUID

from coordination.database import Transaction
from coordination.errors import NotFoundError, RunNotFinishedError, RunWithoutReportError
from coordination.queries import load_queries
from coordination.runs import TERMINAL_STATES, EvaluatorConfig, RunConfig, to_run_dataset
from records.evaluators import catalogue
from records.evaluators.contract import AnyEvaluator
from records.statistics import Moments, interval_of_paired_difference, summarize_moments

from api.runs.models import ChangedRecord, ComparedMetric, ComparedRun, Comparison, NotCompared

_QUERIES = load_queries("runs")
_LISTED = 100
_SIGNS = {"higher": 1, "lower": -1, None: 0}


def compare_runs(transaction: Transaction, baseline: UUID, candidate: UUID) -> Comparison:
    """Pair the results of two runs by record and compare the evaluators that both have under the same id.

    The rows stay in the database: one statement pairs, counts and lists. No lock.

    Raises
    ------
    NotFoundError
        There is no such run.
    RunNotFinishedError, RunWithoutReportError
        One of them has not ended, or ended without a report.
    """
    rows = transaction.fetch_all(
        _QUERIES["read_runs_to_compare"], {"tenant": transaction.tenant, "ids": [baseline, candidate]}
    )
    by_id = {row["id"]: row for row in rows}
    before, after = _require(by_id, baseline, "baseline"), _require(by_id, candidate, "candidate")
    pairs, not_compared = _match(before, after)
    totals = _compare(transaction, before, after, list(pairs))
    return Comparison(
        baseline=_describe(before),
        candidate=_describe(after),
        same_dataset=before["sha256"] == after["sha256"],
        same_config=before["config_sha256"] == after["config_sha256"],
        metrics=[
            _to_metric(old, catalogue.get_evaluator(old.name), totals.get(old.id), same_params=old.params == new.params)
            for old, new in pairs.values()
        ],
        not_compared=not_compared,
    )


def compare_with(transaction: Transaction, baseline: UUID | Literal["previous"], candidate: UUID) -> Comparison | None:
    """Compare a run with a named one, or with the newest earlier run of its name that has a report.

    Returns
    -------
    Comparison or None
        None when there is no previous run.

    Raises
    ------
    NotFoundError, RunNotFinishedError, RunWithoutReportError
        As `compare_runs`.
    """
    if baseline != "previous":
        return compare_runs(transaction, baseline, candidate)
    row = transaction.fetch_one(_QUERIES["find_previous_run"], {"tenant": transaction.tenant, "id": candidate})
    return compare_runs(transaction, row["id"], candidate) if row else None


def _require(rows: dict[UUID, dict[str, Any]], run_id: UUID, name: str) -> dict[str, Any]:
    row = rows.get(run_id)
    if row is None:
        raise NotFoundError(f"There is no such run to be the {name}: it never was, or it was deleted.")
    if row["evaluator_versions"] is None:
        if row["state"] not in TERMINAL_STATES:
            raise RunNotFinishedError(f"The {name} is {row['state']}. Wait for its end.", retry_after_seconds=5)
        raise RunWithoutReportError(f"The {name} ended as {row['state']} and has no report to compare.")
    return row


def _match(
    before: dict[str, Any], after: dict[str, Any]
) -> tuple[dict[str, tuple[EvaluatorConfig, EvaluatorConfig]], list[NotCompared]]:
    """Find the evaluators whose scores mean the same in both runs, and say why others are left out."""
    old = {one.id: one for one in RunConfig.model_validate(before["config"]).evaluators}
    new = {one.id: one for one in RunConfig.model_validate(after["config"]).evaluators}
    pairs: dict[str, tuple[EvaluatorConfig, EvaluatorConfig]] = {}
    left_out: list[NotCompared] = []
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            reason = f"only the {'baseline' if name in old else 'candidate'} has it"
        elif old[name].name != new[name].name:
            reason = f"{old[name].name} in the baseline, {new[name].name} in the candidate"
        else:
            evaluator = old[name].name
            versions = before["evaluator_versions"].get(evaluator), after["evaluator_versions"].get(evaluator)
            if versions[0] == versions[1]:
                pairs[name] = (old[name], new[name])
                continue
            reason = f"{evaluator} had version {versions[0]}, then {versions[1]}: its scores do not mean the same"
        left_out.append(NotCompared(id=name, reason=reason))
    return pairs, left_out


def _compare(
    transaction: Transaction, before: dict[str, Any], after: dict[str, Any], evaluators: list[str]
) -> dict[str, dict[str, Any]]:
    names = {one.id: one.name for one in RunConfig.model_validate(before["config"]).evaluators}
    rows = transaction.fetch_all(
        _QUERIES["compare_results"],
        {
            "tenant": transaction.tenant,
            "baseline": before["id"],
            "candidate": after["id"],
            "evaluators": evaluators,
            "signs": [_SIGNS[catalogue.get_evaluator(names[evaluator]).better] for evaluator in evaluators],
            "limit": _LISTED,
        },
    )
    return {row["evaluator"]: row for row in rows}


def _describe(row: dict[str, Any]) -> ComparedRun:
    return ComparedRun(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        dataset=to_run_dataset(row),
        config_sha256=row["config_sha256"],
        finished_at=row["finished_at"],
    )


def _to_metric(
    config: EvaluatorConfig, entry: AnyEvaluator, row: dict[str, Any] | None, *, same_params: bool
) -> ComparedMetric:
    n = row["pairs"] if row else 0
    interval = _find_interval(entry, row) if row and n else None
    return ComparedMetric(
        id=config.id,
        evaluator=config.name,
        kind=entry.kind,
        better=entry.better,
        unit=entry.unit,
        same_params=same_params,
        n=n,
        baseline_mean=row["baseline_mean"] if row else None,
        candidate_mean=row["candidate_mean"] if row else None,
        difference=row["difference"] if row else None,
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        regressions_count=row["regressions_count"] if row else 0,
        fixes_count=row["fixes_count"] if row else 0,
        regressions=[ChangedRecord.model_validate(one) for one in row["regressions"]] if row else [],
        fixes=[ChangedRecord.model_validate(one) for one in row["fixes"]] if row else [],
        baseline_only=row["baseline_only"] if row else 0,
        candidate_only=row["candidate_only"] if row else 0,
    )


def _find_interval(entry: AnyEvaluator, row: dict[str, Any]) -> tuple[float, float] | None:
    if entry.kind == "pass_fail":
        return interval_of_paired_difference(row["both"], row["fixed"], row["regressed"], row["neither"])
    span = None if entry.minimum is None or entry.maximum is None else entry.maximum - entry.minimum
    moments = Moments(row["pairs"], row["difference"], row["deviations"] or 0.0)
    summary = summarize_moments("number", moments, minimum=None if span is None else -span, maximum=span)
    return None if summary.ci_low is None or summary.ci_high is None else (summary.ci_low, summary.ci_high)
