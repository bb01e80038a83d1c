"""What the records of a shard are asked and judged with: a target, pure scorers, judges, functions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from coordination.environment import Environment
from coordination.ports.remote_calls import CallFailedError
from coordination.remote_places import find_evaluator_faults
from coordination.runs import EvaluatorConfig, RunConfig
from records.evaluators import catalogue
from records.evaluators.contract import NO_OUTPUT, Score, Scorer, failed_to_score
from records.evaluators.json_values import find_flaw
from records.evaluators.llm_judge import LlmJudgeParams

from run_evaluation.function_scores import BatchScorer, open_batch_scorer
from run_evaluation.llm_judge import Judge, open_judge
from run_evaluation.patient_calls import PatientCalls
from run_evaluation.shard_scores import build_scorers
from run_evaluation.targets import PlaceUnusableError, Produced, Question, Target, open_target
from run_evaluation.trial_work import TrialWork


@dataclass(frozen=True, slots=True)
class ShardMeans:
    """All that one invocation needs for a shard that makes calls; shared by its threads.

    Attributes
    ----------
    run_id, calls
        Of the run; how calls are repeated.
    target
        None when the records carry their outputs.
    scorers, judges, batch_scorers
        By evaluator id: pure ones, models, functions.
    batch_size
        Records that a function is given at once at most.
    evaluators
        All ids, in the run's order.
    """

    run_id: UUID
    calls: PatientCalls
    target: Target | None
    scorers: Sequence[tuple[str, Scorer]]
    judges: Sequence[tuple[str, Judge]]
    batch_scorers: Sequence[tuple[str, BatchScorer]]
    batch_size: int
    evaluators: Sequence[str]

    def ask(self, work: TrialWork) -> None:
        """Get the output of a work, unless it has one, and what judges say of it. For a thread of its own.

        Raises
        ------
        UnfinishedError
            The time is over; an output that came is kept in the work.
        """
        if not work.is_answered and self.target is not None:
            self._produce(work, self.target)
        if work.failure is not None:
            return
        for evaluator_id, judge in self.judges:
            unjudgeable = _find_unjudgeable(work)
            if unjudgeable is not None:
                work.scores[evaluator_id] = unjudgeable
                continue
            record = work.judged_record
            try:
                work.scores[evaluator_id] = self.calls.make(partial(judge, record))
            except CallFailedError as error:
                work.scores[evaluator_id] = failed_to_score(str(error))

    def ask_functions(self, works: Sequence[TrialWork]) -> None:
        """Let functions score a batch of works that have their outputs. For a thread of its own.

        Raises
        ------
        UnfinishedError
            The time is over.
        """
        for evaluator_id, score in self.batch_scorers:
            judgeable: list[TrialWork] = []
            for work in works:
                unjudgeable = _find_unjudgeable(work)
                if unjudgeable is None:
                    judgeable.append(work)
                else:
                    work.scores[evaluator_id] = unjudgeable
            if not judgeable:
                continue
            batch = [(work.judged_record, work.trial) for work in judgeable]
            try:
                scores = self.calls.make(lambda _seconds, score=score, batch=batch: score(batch))
            except CallFailedError as error:
                scores = [failed_to_score(str(error))] * len(batch)
            for work, one in zip(judgeable, scores, strict=True):
                work.scores[evaluator_id] = one

    def score(self, work: TrialWork) -> None:
        """Add what the pure evaluators say of a work that has its output."""
        if work.failure is None:
            record = work.judged_record
            work.scores |= {evaluator_id: scorer(record) for evaluator_id, scorer in self.scorers}

    def _produce(self, work: TrialWork, target: Target) -> None:
        question = Question(work.record, work.trial, f"{self.run_id}:{work.record_no}:{work.trial}")

        def call(seconds: float) -> Produced:
            work.attempts += 1
            began = time.monotonic()
            produced = target(question, seconds)
            # What the target says of itself is nearer to the truth than what the network adds to it.
            taken = {"latency_ms": (time.monotonic() - began) * 1000}
            return replace(produced, usage=taken | dict(produced.usage))

        try:
            work.produced = self.calls.make(call)
        except CallFailedError as error:
            work.fail(str(error), self.evaluators)


def open_means(
    environment: Environment, project: str, run_id: UUID, config: RunConfig, calls: PatientCalls
) -> ShardMeans:
    """Make what a run's records are asked and judged with.

    Raises
    ------
    PlaceUnusableError
        The project may not call a place that the run names, or a secret cannot be had.
    OutgoingFailedError
        The name of a host does not resolve.
    """
    faults = find_evaluator_faults(environment.settings.outgoing, config.evaluators, project, "")
    if faults:
        raise PlaceUnusableError(f"evaluators{faults[0].pointer}: {faults[0].message}")
    outside = [one for one in config.evaluators if catalogue.get_evaluator(one.name).calls_out]
    functions = [one for one in outside if one.name == "lambda"]
    return ShardMeans(
        run_id=run_id,
        calls=calls,
        target=open_target(environment, project, config.target),
        scorers=build_scorers([one for one in config.evaluators if one not in outside]),
        judges=[(one.id, _open_judge(environment, project, one)) for one in outside if one.name == "llm_judge"],
        batch_scorers=[(one.id, open_batch_scorer(environment, one.id, one.params)) for one in functions],
        batch_size=min((int(one.params["batch_size"]) for one in functions), default=1),
        evaluators=[one.id for one in config.evaluators],
    )


def _open_judge(environment: Environment, project: str, evaluator: EvaluatorConfig) -> Judge:
    params: dict[str, Any] = evaluator.params
    return open_judge(environment, project, LlmJudgeParams.model_validate(params))


def _find_unjudgeable(work: TrialWork) -> Score | None:
    """Return what is said of an output that nobody needs to be asked about; None for one to be judged."""
    output = work.judged_record.output
    if output is None:
        return NO_OUTPUT
    flaw = find_flaw(output)
    return failed_to_score(f"the output cannot be kept: {flaw}") if flaw is not None else None
