"""Calls that are made again when they may succeed later, within the time of an invocation."""

import random
import threading
import time
from collections.abc import Callable

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.ports.remote_calls import CallFailedError

logger = Logger(child=True)

MAX_CALLS = 5
"""Calls for one answer in one invocation."""
PATIENCE_SECONDS = 60.0
"""How long after its first call an answer is still asked for again."""
SPARE_SECONDS = 10.0
"""No call goes on when an invocation has this much left: what came is to be written."""

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0
_LEAST_SECONDS = 0.5


class UnfinishedError(Exception):
    """The invocation has no time left for this answer: the next one asks for it."""


class PatientCalls:
    """Repeats the calls of one shard; for many threads at once.

    A call that is told to wait makes all others wait as well: they go to the same place. What has been tried for
    `PATIENCE_SECONDS` fails for good even when the invocation ends, so every invocation gets further.

    Parameters
    ----------
    deadline
        Of the invocation.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._is_stopped = threading.Event()
        self._lock = threading.Lock()
        self._open_at = 0.0

    def stop(self) -> None:
        """Begin no further call; those that wait end at once."""
        self._is_stopped.set()

    def make[Result](self, call: Callable[[float], Result]) -> Result:
        """Call until there is an answer; `call` is given the seconds it may take.

        Raises
        ------
        CallFailedError
            It failed for good: it cannot pass, has failed `MAX_CALLS` times, or too long.
        UnfinishedError
            The time was over before that.
        """
        began = time.monotonic()
        failure: CallFailedError | None = None
        for number in range(1, MAX_CALLS + 1):
            if not self._wait_for_turn(began):
                break
            left = self._deadline.remaining_seconds() - SPARE_SECONDS
            if left < _LEAST_SECONDS:
                break
            try:
                return _call(call, left)
            except CallFailedError as error:
                failure = error
                if not error.may_pass or number == MAX_CALLS:
                    raise
                pause = error.wait_seconds
                if pause is not None:
                    if time.monotonic() + pause > began + PATIENCE_SECONDS:
                        raise CallFailedError(f"{error}, and asked to wait {pause:g} s") from error
                    self._close_until(time.monotonic() + pause)
                else:
                    longest = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (number - 1))
                    self._is_stopped.wait(random.uniform(longest / 2, longest))  # noqa: S311 - spreads calls, no secret
        if failure is not None and time.monotonic() - began >= PATIENCE_SECONDS:
            raise failure
        raise UnfinishedError

    def _close_until(self, moment: float) -> None:
        with self._lock:
            self._open_at = max(self._open_at, moment)

    def _wait_for_turn(self, began: float) -> bool:
        """Return whether a call may be made now: not after the stop, nor when patience is over."""
        while not self._is_stopped.is_set():
            now = time.monotonic()
            with self._lock:
                left = self._open_at - now
            if left <= 0:
                return now < began + PATIENCE_SECONDS
            self._is_stopped.wait(left)
        return False


def _call[Result](call: Callable[[float], Result], seconds: float) -> Result:
    """Call, and take whatever nobody has thought of for a failure of this call alone: the run goes on."""
    try:
        return call(seconds)
    except CallFailedError:
        raise
    except Exception as error:
        # Neither its message nor its traceback: they may quote what was sent or answered.
        logger.error("a call failed in an unforeseen way", extra={"kind": type(error).__name__})
        raise CallFailedError(f"the call failed ({type(error).__name__})") from error
