"""Score the records of a shard: pure, no database, no AWS."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordination.array_literals import write_booleans, write_numbers, write_texts
from coordination.runs import EvaluatorConfig
from records.evaluators import catalogue
from records.evaluators.contract import Score, Scorer
from records.record import Record


@dataclass(slots=True)
class ShardScores:
    """Results of a shard as columns, in the order of records and evaluators, and what they add up to.

    Attributes
    ----------
    record_nos, trials, evaluators, records, statuses, scores, passed, errors
        One entry a result.
    counts
        Results by status.
    input_tokens, output_tokens, cost_usd
        Sums over the records that say so; None when none does.
    """

    record_nos: list[int] = field(default_factory=list[int])
    trials: list[int] = field(default_factory=list[int])
    evaluators: list[str] = field(default_factory=list[str])
    records: list[str] = field(default_factory=list[str])
    statuses: list[str] = field(default_factory=list[str])
    scores: list[float | None] = field(default_factory=list[float | None])
    passed: list[bool | None] = field(default_factory=list[bool | None])
    errors: list[str | None] = field(default_factory=list[str | None])
    counts: dict[str, int] = field(default_factory=lambda: {"scored": 0, "skipped": 0, "error": 0})
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    def columns(self, start: int, end: int) -> dict[str, str]:
        """Return the results [start, end) as the parameters of an insert, arrays in the database's writing."""
        return {
            "record_nos": write_numbers(self.record_nos[start:end]),
            "trials": write_numbers(self.trials[start:end]),
            "evaluators": write_texts(self.evaluators[start:end]),
            "records": write_texts(self.records[start:end]),
            "statuses": write_texts(self.statuses[start:end]),
            "scores": write_numbers(self.scores[start:end]),
            "passed": write_booleans(self.passed[start:end]),
            "errors": write_texts(self.errors[start:end]),
        }


def build_scorers(evaluators: Sequence[EvaluatorConfig]) -> list[tuple[str, Scorer]]:
    """Make the scorers of a run once: patterns and schemas are compiled here."""
    return [(evaluator.id, catalogue.build(evaluator.name, evaluator.params)) for evaluator in evaluators]


def score_records(
    scores: ShardScores, scorers: Sequence[tuple[str, Scorer]], records: Iterable[Record], first_record: int
) -> None:
    """Add the results of records to `scores`; `first_record` is the number of the first of them in the snapshot."""
    for record_no, record in enumerate(records, first_record):
        for evaluator_id, scorer in scorers:
            add_score(scores, record_no, 1, evaluator_id, record.id, scorer(record))
        if record.usage:
            add_usage(scores, record.usage)


def add_score(scores: ShardScores, record_no: int, trial: int, evaluator_id: str, record_id: str, score: Score) -> None:
    """Add one result."""
    scores.record_nos.append(record_no)
    scores.trials.append(trial)
    scores.evaluators.append(evaluator_id)
    scores.records.append(record_id)
    scores.statuses.append(score.status)
    scores.scores.append(score.score)
    scores.passed.append(score.passed)
    scores.errors.append(score.message)
    scores.counts[score.status] += 1


def add_usage(scores: ShardScores, usage: Mapping[str, Any]) -> None:
    """Add what one output used, as far as it says so."""
    input_tokens, output_tokens, cost = (usage.get(name) for name in ("input_tokens", "output_tokens", "cost_usd"))
    if input_tokens is not None:
        scores.input_tokens = (scores.input_tokens or 0) + int(input_tokens)
    if output_tokens is not None:
        scores.output_tokens = (scores.output_tokens or 0) + int(output_tokens)
    if cost is not None:
        scores.cost_usd = (scores.cost_usd or 0.0) + float(cost)
