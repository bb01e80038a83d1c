"""How often and how long an answer is asked for, on a clock that only calls and pauses move."""

import itertools
from collections.abc import Callable
from threading import Event

import pytest
from coordination.clock import Deadline
from coordination.ports.remote_calls import CallFailedError
from run_evaluation import patient_calls
from run_evaluation.patient_calls import MAX_CALLS, PATIENCE_SECONDS, PatientCalls, UnfinishedError


class Clock:
    """Time as calls and pauses spend it.

    Attributes
    ----------
    now
        Seconds.
    stop_at
        When the worker is told to stop, if ever.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self.stop_at = float("inf")


class Pauses(Event):
    """An event that is not waited for: the time passes at once, and ends at the stop."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.now = min(self._clock.now + timeout, max(self._clock.stop_at, self._clock.now))
        if self._clock.now >= self._clock.stop_at:
            self.set()
        return self.is_set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    return clock


def make_calls(clock: Clock, seconds: float = 120.0) -> PatientCalls:
    calls = PatientCalls(Deadline(clock.now + seconds))
    calls._is_stopped = Pauses(clock)
    return calls


def failing(clock: Clock, seconds: float, made: list[float], error: CallFailedError) -> Callable[[float], None]:
    def call(_most_seconds: float) -> None:
        made.append(clock.now)
        clock.now += seconds
        raise error

    return call


def test_quick_failures_are_repeated_so_often_with_growing_pauses(clock: Clock) -> None:
    made: list[float] = []
    with pytest.raises(CallFailedError, match="busy"):
        make_calls(clock).make(failing(clock, 0.0, made, CallFailedError("busy", may_pass=True)))
    assert len(made) == MAX_CALLS
    pauses = [after - before for before, after in itertools.pairwise(made)]
    assert all(low / 2 <= pause <= low for pause, low in zip(pauses, (0.5, 1, 2, 4), strict=True))


def test_failure_that_cannot_pass_is_not_repeated(clock: Clock) -> None:
    made: list[float] = []
    with pytest.raises(CallFailedError, match="not found"):
        make_calls(clock).make(failing(clock, 0.0, made, CallFailedError("not found")))
    assert len(made) == 1


def test_slow_failures_end_with_patience(clock: Clock) -> None:
    made: list[float] = []
    began = clock.now
    with pytest.raises(CallFailedError, match="slow"):
        make_calls(clock).make(failing(clock, 25.0, made, CallFailedError("slow", may_pass=True)))
    assert len(made) == 3
    assert made[-1] < began + PATIENCE_SECONDS <= clock.now


def test_what_the_other_side_asks_to_wait_holds_for_all_calls(clock: Clock) -> None:
    calls, made = make_calls(clock), [0.0]

    def call(_seconds: float) -> str:
        made.append(clock.now)
        if len(made) == 2:
            raise CallFailedError("slow down", may_pass=True, wait_seconds=30)
        return "answer"

    assert calls.make(call) == "answer"
    assert made[2] - made[1] == 30
    calls._close_until(clock.now + 7)
    before = clock.now
    assert calls.make(lambda _seconds: clock.now - before) == 7


def test_longer_wait_than_patience_is_a_failure_at_once(clock: Clock) -> None:
    made: list[float] = []
    with pytest.raises(CallFailedError, match="asked to wait 3600 s"):
        make_calls(clock).make(
            failing(clock, 0.0, made, CallFailedError("slow down", may_pass=True, wait_seconds=3600))
        )
    assert len(made) == 1


def test_stop_before_patience_is_over_leaves_the_answer_to_the_next_invocation(clock: Clock) -> None:
    clock.stop_at = clock.now + 50
    made: list[float] = []
    with pytest.raises(UnfinishedError):
        make_calls(clock).make(failing(clock, 49.9, made, CallFailedError("slow", may_pass=True)))
    assert len(made) == 1


def test_stop_after_patience_is_final_so_every_invocation_gets_further(clock: Clock) -> None:
    clock.stop_at = clock.now + 80
    made: list[float] = []
    with pytest.raises(CallFailedError, match="slow"):
        make_calls(clock).make(failing(clock, 79.9, made, CallFailedError("slow", may_pass=True)))
    assert len(made) == 1


def test_call_gets_what_is_left_of_the_invocation_and_none_is_made_with_nothing_left(clock: Clock) -> None:
    assert make_calls(clock, 45.0).make(lambda seconds: seconds) == 45.0 - patient_calls.SPARE_SECONDS
    with pytest.raises(UnfinishedError):
        make_calls(clock, patient_calls.SPARE_SECONDS).make(lambda seconds: seconds)


def test_nothing_is_called_after_the_stop(clock: Clock) -> None:
    calls = make_calls(clock)
    calls.stop()
    with pytest.raises(UnfinishedError):
        calls.make(lambda seconds: seconds)
