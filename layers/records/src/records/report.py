"""The report of a run, made from what its results add up to.

Pure: the same aggregates make the same report. Every key is always there; a zero is 0, what is not known is ``None``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from records.gates import Gate, evaluate_gates
from records.statistics import Moments, summarize_moments


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How the scores of a metric are spread: a histogram of bins of the same width.

    Parameters
    ----------
    low, high
        Lower end of the first bin and upper end of the last; the same when all scores are.
    counts
        Scores in each bin, from low to high. A score on a border counts in the bin above it, one at `high` in the last.
    """

    low: float
    high: float
    counts: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAggregate:
    """What the results of one evaluator of a run add up to.

    Parameters
    ----------
    id
        Of the evaluator in the run; gates name it.
    evaluator, version, kind, minimum, maximum, unit
        As in the catalogue.
    moments
        Of the scores; ``moments.n`` results are scored.
    skipped, errors
        Results that are skipped and in error.
    passed, failed
        Scored results that passed and that failed; both 0 when nothing of this metric passes or fails.
    distribution
        Of the scores; ``None`` without scores, and for pass/fail, whose mean says it all.
    """

    id: str
    evaluator: str
    version: int
    kind: Literal["pass_fail", "number"]
    moments: Moments
    skipped: int
    errors: int
    minimum: float | None = None
    maximum: float | None = None
    unit: str | None = None
    passed: int = 0
    failed: int = 0
    distribution: Distribution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a report says about the run itself.

    Parameters
    ----------
    run
        Id of the run.
    project, name
        Of the run; a run may have no name.
    dataset
        Name and version of the dataset, for people: ``questions@3``; for a source its name and window.
    dataset_sha256
        Digest of the records that were evaluated, in hex.
    config_sha256
        Digest of the run's configuration, in hex.
    records
        Records of the snapshot.
    created_at, started_at, finished_at
        RFC 3339, UTC.
    input_tokens, output_tokens, cost_usd
        Used by the outputs, summed over the records that say so; ``None`` when none does.
    latency_ms
        How long the run's target took for its outputs: ``n``, ``mean``, ``p50``, ``p95``, ``max``, in milliseconds;
        ``None`` when the records carried their outputs.
    redactions
        Replacements by kind.
    excluded_traces
        Ids of traces of a source's window that were passed over by request.
    """

    run: str
    project: str
    name: str | None
    dataset: str | None = None
    dataset_sha256: str
    config_sha256: str
    records: int
    created_at: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    latency_ms: Mapping[str, float | int] | None = None
    redactions: Mapping[str, int] = field(default_factory=dict[str, int])
    excluded_traces: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The part of the records that have one value of a metadata key.

    Parameters
    ----------
    key
        Metadata key.
    value
        The value, a JSON scalar.
    records
        That have it.
    aggregates
        Of the results of those records.
    """

    key: str
    value: Any
    records: int
    aggregates: Sequence[MetricAggregate]


def describe_metric(aggregate: MetricAggregate) -> dict[str, Any]:
    """Return a metric as a report shows it.

    Returns
    -------
    dict
        ``id``, ``evaluator``, ``kind``, ``n``, ``mean``, ``std``, ``ci_low``, ``ci_high``, ``scored``, ``skipped``,
        ``errors``, ``coverage``: the scored share of all results, ``None`` when there is no result; ``passed``,
        ``failed``, both ``None`` when nothing of this metric passes or fails; ``minimum``, ``maximum`` (of any score of
        this evaluator), ``unit``, ``distribution``.
    """
    summary = summarize_moments(aggregate.kind, aggregate.moments, minimum=aggregate.minimum, maximum=aggregate.maximum)
    total = summary.n + aggregate.skipped + aggregate.errors
    is_decided = aggregate.kind == "pass_fail" or aggregate.passed + aggregate.failed > 0
    return {
        "id": aggregate.id,
        "evaluator": aggregate.evaluator,
        "kind": aggregate.kind,
        "n": summary.n,
        "mean": summary.mean,
        "std": summary.std,
        "ci_low": summary.ci_low,
        "ci_high": summary.ci_high,
        "scored": summary.n,
        "skipped": aggregate.skipped,
        "errors": aggregate.errors,
        "coverage": summary.n / total if total else None,
        "passed": aggregate.passed if is_decided else None,
        "failed": aggregate.failed if is_decided else None,
        "minimum": aggregate.minimum,
        "maximum": aggregate.maximum,
        "unit": aggregate.unit,
        "distribution": _describe_distribution(aggregate.distribution),
    }


def _describe_distribution(distribution: Distribution | None) -> dict[str, Any] | None:
    if distribution is None:
        return None
    return {"low": distribution.low, "high": distribution.high, "counts": list(distribution.counts)}


def _round_sum(amount: float | None) -> float | None:
    """Return a sum without the noise of its last digits: 0.1 + 0.2 is 0.3. No price list has twelve digits."""
    return None if amount is None else float(f"{amount:.12g}")


def build_report(
    facts: RunFacts,
    aggregates: Sequence[MetricAggregate],
    gates: Sequence[Gate],
    *,
    slices: Sequence[Slice] = (),
    worst: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Build the report of a run.

    Parameters
    ----------
    facts
        About the run.
    aggregates
        One an evaluator of the run, in the run's order.
    gates
        In the run's order.
    slices
        Parts of the records by a metadata key.
    worst
        The worst results of each metric, as the caller selected them.

    Returns
    -------
    dict
        JSON values. ``passed`` is whether no gate failed, so also true without gates. A gate that failed carries
        a ``reason``.
    """
    metrics = [describe_metric(aggregate) for aggregate in aggregates]
    outcomes = evaluate_gates(gates, metrics)
    return {
        "run": facts.run,
        "project": facts.project,
        "name": facts.name,
        "passed": all(outcome.passed for outcome in outcomes),
        "metrics": metrics,
        "gates": [asdict(outcome) for outcome in outcomes],
        "records": facts.records,
        "usage": {
            "input_tokens": facts.input_tokens,
            "output_tokens": facts.output_tokens,
            "cost_usd": _round_sum(facts.cost_usd),
            "latency_ms": dict(facts.latency_ms) if facts.latency_ms is not None else None,
        },
        "redactions": dict(facts.redactions),
        "slices": [
            {
                "key": part.key,
                "value": part.value,
                "records": part.records,
                "metrics": [describe_metric(aggregate) for aggregate in part.aggregates],
            }
            for part in slices
        ],
        "worst": [dict(result) for result in worst],
        "dataset": facts.dataset,
        "dataset_sha256": facts.dataset_sha256,
        "config_sha256": facts.config_sha256,
        "evaluator_versions": {aggregate.evaluator: aggregate.version for aggregate in aggregates},
        "excluded_traces": list(facts.excluded_traces),
        "created_at": facts.created_at,
        "started_at": facts.started_at,
        "finished_at": facts.finished_at,
    }
