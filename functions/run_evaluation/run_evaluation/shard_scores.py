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
    """Results of a shard in the order of records and evaluators, and what they add up to.

    Attributes
    ----------
    results
        Number of the record, trial, evaluator's id, record's id, score.
    input_tokens, output_tokens, cost_usd
        Sums over the records that say so; None when none does.
    """

    results: list[tuple[int, int, str, str, Score]] = field(default_factory=list[tuple[int, int, str, str, Score]])
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Results by status."""
        counts = {"scored": 0, "skipped": 0, "error": 0}
        for result in self.results:
            counts[result[4].status] += 1
        return counts

    def columns(self, start: int, end: int) -> dict[str, str]:
        """Return the results [start, end) as the parameters of an insert, arrays in the database's writing."""
        part = self.results[start:end]
        scores = [result[4] for result in part]
        return {
            "record_nos": write_numbers([result[0] for result in part]),
            "trials": write_numbers([result[1] for result in part]),
            "evaluators": write_texts([result[2] for result in part]),
            "records": write_texts([result[3] for result in part]),
            "statuses": write_texts([score.status for score in scores]),
            "scores": write_numbers([score.score for score in scores]),
            "passed": write_booleans([score.passed for score in scores]),
            "errors": write_texts([score.message for score in scores]),
        }


def build_scorers(evaluators: Sequence[EvaluatorConfig]) -> list[tuple[str, Scorer]]:
    """Make the scorers of a run once: patterns and schemas are compiled here."""
    return [(evaluator.id, catalogue.build(evaluator.name, evaluator.params)) for evaluator in evaluators]


def score_records(
    scores: ShardScores, scorers: Sequence[tuple[str, Scorer]], records: Iterable[Record], first_record: int
) -> None:
    """Add the results of records to `scores`; `first_record` is the number of the first of them in the snapshot."""
    add = scores.results.append
    for record_no, record in enumerate(records, first_record):
        for evaluator_id, scorer in scorers:
            add((record_no, 1, evaluator_id, record.id, scorer(record)))
        if record.usage:
            add_usage(scores, record.usage)


def add_usage(scores: ShardScores, usage: Mapping[str, Any]) -> None:
    """Add what one output used, as far as it says so."""
    input_tokens, output_tokens, cost = (usage.get(name) for name in ("input_tokens", "output_tokens", "cost_usd"))
    if input_tokens is not None:
        scores.input_tokens = (scores.input_tokens or 0) + int(input_tokens)
    if output_tokens is not None:
        scores.output_tokens = (scores.output_tokens or 0) + int(output_tokens)
    if cost is not None:
        scores.cost_usd = (scores.cost_usd or 0.0) + float(cost)
