"""Time that decides nothing shared: for that, the database's `clock_timestamp()` is the one clock."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self


class LambdaContext(Protocol):
    """The part of Lambda's context object that is read here."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until Lambda ends the invocation."""
        ...


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which this invocation ends, on the monotonic clock.

    Attributes
    ----------
    at
        Seconds on `time.monotonic()`.
    """

    at: float

    @classmethod
    def of_invocation(cls, context: LambdaContext) -> Self:
        """Read the deadline out of Lambda's context."""
        return cls(time.monotonic() + context.get_remaining_time_in_millis() / 1000)

    def remaining_seconds(self) -> float:
        """Return the seconds left; negative when it has passed."""
        return self.at - time.monotonic()


def read_clock() -> datetime:
    """Return this machine's time in UTC."""
    return datetime.now(UTC)


def format_instant(instant: datetime) -> str:
    """Write an instant as RFC 3339 in UTC with `Z`, microseconds kept when there are any."""
    text = instant.astimezone(UTC).isoformat()
    return text.removesuffix("+00:00") + "Z"
