"""Time that decides nothing shared: for that, the database's `clock_timestamp()` is the one clock."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self

# RFC 3339 section 5.6, T and Z in either case. Leap seconds are not kept by datetime, nor more than six digits of a
# fraction by PostgreSQL.
_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
    r"([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)


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


def read_instant(text: str) -> datetime:
    """Read an instant that a caller wrote in RFC 3339, fraction of a second at most six digits; returned in UTC.

    Other forms of ISO 8601 (no seconds, a space for the T, dates of weeks) are refused: servers and databases differ in
    what they make of them.

    Raises
    ------
    ValueError
        It is none, or lies outside of the years 1 to 9999 in UTC; the message is for the caller.
    """
    try:
        if _RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except OverflowError:
        raise ValueError("lies outside of the years 1 to 9999 in UTC") from None
    except ValueError:
        # A day that no calendar has.
        pass
    raise ValueError("must be an instant in RFC 3339, such as 2026-11-30T02:00:00Z or 2026-11-30T02:00:00.25+01:00")
