"""Whether and when a request is sent again: a pure decision."""

from dataclasses import dataclass

_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 8.0
_RETRIED_CONFLICTS = frozenset({"idempotency_in_progress", "upload_busy"})
_RETRIED_STATUSES = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to.

    Attributes
    ----------
    status
        HTTP status; None when no answer came.
    code
        Of the problem document; empty without one.
    retry_after_seconds
        As the answer says; None when it does not.
    was_sent
        False when the connection could not be made, so that the service cannot have seen the request.
    """

    status: int | None
    code: str = ""
    retry_after_seconds: int | None = None
    was_sent: bool = True

    @property
    def is_definite(self) -> bool:
        """Whether the service has said what became of the request, and a repeat would say nothing else."""
        if self.status is None or self.status >= 500 or self.status in _RETRIED_STATUSES:
            return False
        return not (self.status == 409 and self.code in (*_RETRIED_CONFLICTS, "idempotency_uncertain"))

    @property
    def may_have_happened(self) -> bool:
        """Whether a write may have happened although no definite answer says so."""
        if self.status is None:
            return self.was_sent
        return self.status >= 500 or self.status == 408 or self.status == 409

    @property
    def is_worth_a_retry(self) -> bool:
        """Whether the same request may be answered in another way a little later."""
        return not self.is_definite and self.code != "idempotency_uncertain"


def next_delay(outcome: Outcome, attempt: int, jitter: float) -> float | None:
    """Say how long to wait before the same request is sent again.

    Parameters
    ----------
    outcome
        Of the last attempt.
    attempt
        How many were made, from 1.
    jitter
        A random number in [0, 1): many callers that failed together do not come back together.

    Returns
    -------
    float or None
        Seconds; what Retry-After says is the least. None when a retry cannot help.
    """
    if not outcome.is_worth_a_retry:
        return None
    ceiling = min(_LONGEST_DELAY_SECONDS, _FIRST_DELAY_SECONDS * 2 ** min(attempt - 1, 10))
    delay = ceiling * (0.5 + jitter / 2)
    return max(delay, float(outcome.retry_after_seconds or 0))
