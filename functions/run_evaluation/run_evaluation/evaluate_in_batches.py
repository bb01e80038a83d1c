"""Evaluate a shard that makes calls: many at once, written batch by batch, left to the next invocation in time.

What has been written is never asked for again, by whoever takes over: an output is stored in the transaction that makes
its batch known, and a worker that dies loses the batch it had not written. The last batch completes the shard, so a
shard has all its results exactly when it is completed.
"""

import time
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.leases import Lease, release_lease, renew_lease, require_lease
from coordination.queries import load_queries
from coordination.runs import RunConfig
from coordination.wake_ups import WakeUp
from records.record import Record

from run_evaluation.patient_calls import SPARE_SECONDS, PatientCalls, UnfinishedError
from run_evaluation.shard_means import ShardMeans, open_means
from run_evaluation.shard_progress import RunEndedError, RunProgress, add_to_run, write_results
from run_evaluation.shard_scores import ShardScores
from run_evaluation.trial_work import TrialWork, list_missing_work, store_outputs, to_scores

logger = Logger(child=True)

STOP_SECONDS = 30.0
"""With so much left of the invocation no call is begun any more."""

_QUERIES = load_queries("runs")
_WAKE_UPS = load_queries("wake_ups")
_LEASE_SECONDS = 60
_RENEW_SECONDS = 20.0
_BATCH_WORKS = 50
_BATCH_SECONDS = 10.0
_BATCH_BYTES = 8 * 1024 * 1024
# How long outputs wait for others to fill a function's batch with.
_GATHER_SECONDS = 5.0
_LOOK_SECONDS = 0.5


def evaluate_in_batches(
    environment: Environment,
    wake_up: WakeUp,
    lease: Lease,
    deadline: Deadline,
    shard: dict[str, Any],
    config: RunConfig,
    records: Sequence[Record],
) -> UUID | None:
    """Ask and judge what is missing of a shard, and complete it or queue the rest of it again.

    Parameters
    ----------
    environment, wake_up, lease, deadline
        Of this invocation.
    shard
        Row of `begin_shard`.
    config
        Of its run.
    records
        The shard's.

    Returns
    -------
    UUID or None
        The run, when this was the end of its last shard.

    Raises
    ------
    RunEndedError
        The run ended meanwhile; what was not written is dropped.
    coordination.leases.LeaseLostError
        Somebody took over.
    PlaceUnusableError, OutgoingFailedError
        Nobody can be called; nothing was.
    """
    calls = PatientCalls(deadline)
    means = open_means(environment, wake_up.project, shard["run_id"], config, calls)
    with environment.database.transaction(wake_up.project) as transaction:
        works = list_missing_work(transaction, shard, config, records)
    worker = _ShardWorker(environment, wake_up, lease, deadline, shard, config, means)
    return worker.work_through(works)


class _ShardWorker:
    """The invocation's main thread: hands out works, collects them, writes batches, keeps the lease."""

    def __init__(
        self,
        environment: Environment,
        wake_up: WakeUp,
        lease: Lease,
        deadline: Deadline,
        shard: dict[str, Any],
        config: RunConfig,
        means: ShardMeans,
    ) -> None:
        self._database = environment.database
        self._wake_up = wake_up
        self._lease = lease
        self._deadline = deadline
        self._shard = shard
        self._config = config
        self._means = means
        self._renewed_at = time.monotonic()
        self._asked: dict[Future[None], list[TrialWork]] = {}
        self._answered: list[TrialWork] = []
        self._answered_since = time.monotonic()
        self._ready: list[TrialWork] = []
        self._unfinished: list[TrialWork] = []
        self._batch_since = time.monotonic()
        self._is_over = False
        self._has_progress = False

    def work_through(self, works: Sequence[TrialWork]) -> UUID | None:
        """Work until all is done or the time is over; return the run when it is done with it."""
        waiting = deque(works)
        left = len(works)
        left_of_record = Counter(work.record_no for work in works)
        pool = ThreadPoolExecutor(self._config.concurrency)
        try:
            while self._hand_out(pool, waiting):
                self._collect()
                self._keep_lease()
                if self._is_batch_full() and len(self._ready) < left:
                    left -= len(self._ready)
                    if self._write_batch(left_of_record):
                        return None
                if self._deadline.remaining_seconds() < SPARE_SECONDS:
                    break
        finally:
            # Whoever is still out ends by its own time-out; nothing that it brings is looked at any more.
            self._means.calls.stop()
            pool.shutdown(wait=False, cancel_futures=True)
        if len(self._ready) == left:
            return self._complete(left_of_record)
        self._unfinished += [*self._answered, *(work for works in self._asked.values() for work in works)]
        self._queue_rest(left_of_record)
        return None

    def _hand_out(self, pool: ThreadPoolExecutor, waiting: deque[TrialWork]) -> bool:
        """Keep as many calls going as the run wants; return whether any is."""
        if not self._is_over and self._deadline.remaining_seconds() < STOP_SECONDS:
            self._is_over = True
            self._means.calls.stop()
        if self._is_over:
            waiting.clear()
            self._unfinished += self._answered
            self._answered = []
        while waiting and len(self._asked) < self._config.concurrency:
            work = waiting.popleft()
            self._asked[pool.submit(self._means.ask, work)] = [work]
        size = self._means.batch_size
        while len(self._answered) >= size or (self._answered and self._has_gathered(waiting)):
            batch, self._answered = self._answered[:size], self._answered[size:]
            self._asked[pool.submit(self._means.ask_functions, batch)] = batch
        return bool(self._asked)

    def _has_gathered(self, waiting: deque[TrialWork]) -> bool:
        """Return whether a function's batch need not be waited for to fill."""
        is_last = not waiting and not self._asked
        return is_last or time.monotonic() - self._answered_since >= _GATHER_SECONDS

    def _collect(self) -> None:
        done, _ = wait(self._asked, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            works = self._asked.pop(future)
            try:
                future.result()
            except UnfinishedError:
                self._unfinished += works
                continue
            for work in works:
                is_for_functions = work.failure is None and any(
                    evaluator not in work.scores for evaluator, _ in self._means.batch_scorers
                )
                if is_for_functions:
                    if not self._answered:
                        self._answered_since = time.monotonic()
                    self._answered.append(work)
                    continue
                self._means.score(work)
                self._ready.append(work)

    def _keep_lease(self) -> None:
        if time.monotonic() - self._renewed_at <= _RENEW_SECONDS:
            return
        renew_lease(self._database, self._lease, _LEASE_SECONDS)
        self._renewed_at = time.monotonic()
        # Nothing may be ready to be written for a long while, and nobody is to be called for a run that was cancelled.
        with self._database.transaction(self._wake_up.project) as transaction:
            run = transaction.fetch_one(_QUERIES["read_run_state"], {"tenant": transaction.tenant, "id": self._run_id})
        if run is None or run["state"] != "running":
            raise RunEndedError("the run was cancelled")

    def _is_batch_full(self) -> bool:
        if not self._ready:
            self._batch_since = time.monotonic()
            return False
        return (
            len(self._ready) >= _BATCH_WORKS
            or time.monotonic() - self._batch_since >= _BATCH_SECONDS
            or sum(_weigh(work) for work in self._ready) >= _BATCH_BYTES
        )

    def _write_batch(self, left_of_record: Counter[int]) -> bool:
        """Write what is ready; return whether that ended the run."""
        with self._database.transaction(self._wake_up.project) as transaction:
            require_lease(transaction, self._lease)
            if transaction.fetch_one(_QUERIES["note_shard_progress"], self._shard_key) is None:
                raise RunEndedError("the shard was cancelled")
            scores = self._write_ready(transaction)
            progress = self._add_ready(transaction, scores, left_of_record, shards=0)
            if progress.is_stopped:
                release_lease(transaction, self._lease)
        self._begin_batch()
        return progress.is_stopped

    def _complete(self, left_of_record: Counter[int]) -> UUID | None:
        """Write the last batch with the shard's completion."""
        with self._database.transaction(self._wake_up.project) as transaction:
            require_lease(transaction, self._lease)
            if transaction.fetch_one(_QUERIES["complete_shard"], self._shard_key) is None:
                raise RunEndedError("the shard was cancelled")
            scores = self._write_ready(transaction)
            transaction.submit(_WAKE_UPS["delete_wake_up"], self._wake_up.row_key)
            release_lease(transaction, self._lease)
            progress = self._add_ready(transaction, scores, left_of_record, shards=1)
        return progress.finished_run

    def _queue_rest(self, left_of_record: Counter[int]) -> None:
        """Write what there is, also outputs that nobody has judged yet, and wake somebody for the rest."""
        outputs = [work for work in self._unfinished if work.is_answered and not work.is_stored]
        self._has_progress = self._has_progress or bool(self._ready or outputs)
        with self._database.transaction(self._wake_up.project) as transaction:
            require_lease(transaction, self._lease)
            params = self._shard_key | {"has_progress": self._has_progress}
            if transaction.fetch_one(_QUERIES["requeue_shard"], params) is None:
                raise RunEndedError("the shard was cancelled")
            scores = self._write_ready(transaction, outputs)
            transaction.wake(self._wake_up)
            release_lease(transaction, self._lease)
            self._add_ready(transaction, scores, left_of_record, shards=0)
        logger.info("the rest of the shard is for the next invocation", extra={"shard": self._wake_up.ref_id})

    def _write_ready(self, transaction: Transaction, unjudged: Sequence[TrialWork] = ()) -> ShardScores:
        """Write the works that are ready, and outputs that are to be judged later; return the scores of the former."""
        store_outputs(transaction, self._run_id, [*self._ready, *unjudged])
        scores = to_scores(self._ready, self._means.evaluators)
        write_results(transaction, self._run_id, scores)
        return scores

    def _add_ready(
        self, transaction: Transaction, scores: ShardScores, left_of_record: Counter[int], *, shards: int
    ) -> RunProgress:
        """Add what was written to the run; last before the commit."""
        records = _count_done(left_of_record, self._ready)
        return add_to_run(transaction, self._run_id, self._config, scores, records=records, shards=shards)

    def _begin_batch(self) -> None:
        for work in self._ready:
            work.is_stored = True
        self._ready = []
        self._batch_since = time.monotonic()
        self._has_progress = True

    @property
    def _run_id(self) -> UUID:
        return self._shard["run_id"]

    @property
    def _shard_key(self) -> dict[str, Any]:
        return {"tenant": self._wake_up.project, "shard_id": UUID(self._wake_up.ref_id)}


def _count_done(left_of_record: Counter[int], works: Sequence[TrialWork]) -> int:
    """Return how many records have no trial left after these works."""
    left_of_record.subtract(work.record_no for work in works)
    return sum(1 for record_no in {work.record_no for work in works} if not left_of_record[record_no])


def _weigh(work: TrialWork) -> int:
    """Return about how many bytes an output takes; texts are the large ones."""
    output = work.produced.output if work.produced else None
    return len(output) if isinstance(output, str) else 1024
