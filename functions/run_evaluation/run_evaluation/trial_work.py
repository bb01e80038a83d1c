"""What is left to do in a shard that makes calls: one piece of work a record and trial."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
from coordination.database import Transaction
from coordination.queries import load_queries
from coordination.runs import RunConfig
from records.evaluators.contract import Score, failed_to_score
from records.record import Record

from run_evaluation.shard_scores import ShardScores, add_usage
from run_evaluation.targets import Produced

_QUERIES = load_queries("runs")
_INSERT_ROWS = 1000


@dataclass(slots=True, kw_only=True)
class TrialWork:
    """One trial of one record.

    Attributes
    ----------
    record_no, record, trial
        Which.
    needs_output
        Whether its output is a target's to make.
    produced
        The output, when there is one that the record does not carry.
    failure
        Why there is none.
    is_stored
        Whether output or failure are in the database.
    attempts
        Calls of the target in this invocation.
    scores
        By evaluator id.
    """

    record_no: int
    record: Record
    trial: int
    needs_output: bool
    produced: Produced | None = None
    failure: str | None = None
    is_stored: bool = False
    attempts: int = 0
    scores: dict[str, Score] = field(default_factory=dict[str, Score])

    @property
    def is_answered(self) -> bool:
        """Whether nothing is to be asked of its target any more."""
        return not self.needs_output or self.produced is not None or self.failure is not None

    @property
    def judged_record(self) -> Record:
        """The record with what was produced in the place of what it carried."""
        if not self.needs_output:
            return self.record
        assert self.produced is not None  # noqa: S101 - asked of works with an output only
        usage = dict(self.produced.usage)
        return msgspec.structs.replace(self.record, output=self.produced.output, usage=usage or None)

    def fail(self, failure: str, evaluators: Sequence[str]) -> None:
        """Say why there is no output, which is an error for every evaluator."""
        self.failure = failure
        self.scores = dict.fromkeys(evaluators, failed_to_score(failure))


def list_missing_work(
    transaction: Transaction, shard: Mapping[str, Any], config: RunConfig, records: Sequence[Record]
) -> list[TrialWork]:
    """Return the works of a shard that have no results yet, in the order of records and trials.

    What has an output already keeps it: its target is not asked again. No lock.

    Parameters
    ----------
    transaction
        Of the run's project.
    shard
        Row of `begin_shard`.
    config
        Of the run.
    records
        Of the shard.
    """
    first: int = shard["first_record"]
    params = {
        "tenant": transaction.tenant,
        "run_id": shard["run_id"],
        "first_record": first,
        "records": len(records),
        "evaluator": config.evaluators[0].id,
    }
    judged = {(row["record_no"], row["trial"]) for row in transaction.fetch_all(_QUERIES["list_judged_trials"], params)}
    needs_output = config.target.kind != "recorded"
    works = {
        (record_no, trial): TrialWork(record_no=record_no, record=record, trial=trial, needs_output=needs_output)
        for record_no, record in enumerate(records, first)
        for trial in range(1, config.trials + 1)
        if (record_no, trial) not in judged
    }
    for row in transaction.fetch_all(_QUERIES["list_unjudged_outputs"], params):
        work = works[row["record_no"], row["trial"]]
        work.is_stored = True
        if row["error"] is not None:
            work.fail(row["error"], [evaluator.id for evaluator in config.evaluators])
            continue
        usage = {
            name: row[name]
            for name in ("latency_ms", "input_tokens", "output_tokens", "cost_usd")
            if row[name] is not None
        }
        work.produced = Produced(orjson.loads(row["output"]), usage)
    return list(works.values())


def store_outputs(transaction: Transaction, run_id: Any, works: Sequence[TrialWork]) -> None:
    """Insert the outputs of works that are not stored yet, in the caller's transaction. No round trip, no lock."""
    rows = [work for work in works if work.needs_output and work.is_answered and not work.is_stored]
    for start in range(0, len(rows), _INSERT_ROWS):
        part = rows[start : start + _INSERT_ROWS]
        usages: list[Mapping[str, Any]] = [work.produced.usage if work.produced else {} for work in part]
        transaction.submit(
            _QUERIES["insert_outputs"],
            {
                "tenant": transaction.tenant,
                "run_id": run_id,
                "record_nos": [work.record_no for work in part],
                "trials": [work.trial for work in part],
                "records": [work.record.id for work in part],
                "outputs": [orjson.dumps(work.produced.output).decode() if work.produced else None for work in part],
                "latencies": [usage.get("latency_ms") for usage in usages],
                "input_tokens": [usage.get("input_tokens") for usage in usages],
                "output_tokens": [usage.get("output_tokens") for usage in usages],
                "costs": [usage.get("cost_usd") for usage in usages],
                "errors": [work.failure for work in part],
                "attempts": [work.attempts for work in part],
            },
        )


def to_scores(works: Sequence[TrialWork], evaluators: Sequence[str]) -> ShardScores:
    """Return the results of works whose scores are complete, and what their outputs used."""
    scores = ShardScores()
    for work in works:
        for evaluator_id in evaluators:
            scores.results.append((work.record_no, work.trial, evaluator_id, work.record.id, work.scores[evaluator_id]))
        usage = work.produced.usage if work.produced else None if work.needs_output else work.record.usage
        if usage:
            add_usage(scores, usage)
    return scores
