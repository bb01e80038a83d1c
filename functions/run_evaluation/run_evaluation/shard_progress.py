"""Write what a shard got done, and add it to its run: the end of every transaction of a shard."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from coordination.database import Transaction
from coordination.queries import load_queries
from coordination.run_endings import end_open_run
from coordination.runs import RunConfig, RunFailure
from coordination.wake_ups import WakeUp

from run_evaluation.shard_scores import ShardScores

_QUERIES = load_queries("runs")
_INSERT_ROWS = 1000
# The run is finished right after its last shard; this wakes somebody up when that did not happen.
_FINISH_DELAY_SECONDS = 30


class RunEndedError(Exception):
    """The run ended while one of its shards was evaluated: the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How a run stands after some work was added to it.

    Attributes
    ----------
    is_stopped
        Whether that work ended the run: it has more errors than it may.
    finished_run
        The run, when that work completed its last shard.
    """

    is_stopped: bool = False
    finished_run: UUID | None = None


def write_results(transaction: Transaction, run_id: UUID, scores: ShardScores) -> None:
    """Insert results, at most 1000 a statement, in the caller's transaction. No round trip, no lock."""
    for start in range(0, len(scores.results), _INSERT_ROWS):
        transaction.submit(
            _QUERIES["insert_results"],
            {"tenant": transaction.tenant, "run_id": run_id} | scores.columns(start, start + _INSERT_ROWS),
        )


def add_to_run(
    transaction: Transaction, run_id: UUID, config: RunConfig, scores: ShardScores, *, records: int, shards: int
) -> RunProgress:
    """Add work to its run, end the run when it has more errors than it may, and see whether all of it is done.

    Last before the commit: the shards of a run wait for each other here. Locks the run's row.

    Parameters
    ----------
    transaction
        Of the run's project.
    run_id, config
        Of the run.
    scores
        What was scored.
    records
        How many records are done by it (>= 0).
    shards
        1 when it completes the shard, else 0.

    Raises
    ------
    RunEndedError
        The run is not running any more: nothing of this transaction may be kept.
    """
    run: dict[str, Any] | None = transaction.fetch_one(
        _QUERIES["count_shard"],
        {
            "tenant": transaction.tenant,
            "run_id": run_id,
            "shards": shards,
            "records": records,
            "scored": scores.counts["scored"],
            "skipped": scores.counts["skipped"],
            "errors": scores.counts["error"],
            "input_tokens": scores.input_tokens,
            "output_tokens": scores.output_tokens,
            "cost_usd": scores.cost_usd,
        },
    )
    if run is None:
        raise RunEndedError(f"run {run_id} has ended; its shard's results are dropped")
    if config.max_errors is not None and run["results_errors"] > config.max_errors:
        failure = RunFailure(
            code="too_many_errors",
            detail=f"{run['results_errors']} results are errors, max_errors allows {config.max_errors}. "
            "GET …/results?status=error shows them.",
        )
        end_open_run(transaction, run_id, "error", failure)
        return RunProgress(is_stopped=True)
    if not shards or run["shards_done"] < run["shards_total"]:
        return RunProgress()
    transaction.wake(
        WakeUp("evaluation", "finish", transaction.tenant, str(run_id), delay_seconds=_FINISH_DELAY_SECONDS)
    )
    return RunProgress(finished_run=run_id)
