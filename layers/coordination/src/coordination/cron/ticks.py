"""When a schedule ticks: next, previous, how many in between.

croniter computes next and previous from the normalized expression. How many ticks lie in a gap is computed from the
sets, month by month, so that a gap of years costs no more than one of a day.
"""

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from coordination.cron.grammar import CronSets

_MINUTE = timedelta(minutes=1)


class Ticks:
    """The ticks of a schedule; all instants are aware, ticks are whole minutes in UTC.

    Parameters
    ----------
    sets
        What the expression means.
    """

    def __init__(self, sets: CronSets) -> None:
        self.sets = sets
        self._expression = sets.to_expression()

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first tick strictly after an instant; None when the calendar ends before it."""
        return self._step(_floor_minute(instant), "get_next")

    def last_until(self, instant: datetime) -> datetime | None:
        """Return the last tick at or before an instant; None when the calendar begins after it."""
        minute = _floor_minute(instant)
        return minute if self.is_tick(minute) else self._step(minute, "get_prev")

    def is_tick(self, instant: datetime) -> bool:
        """Tell whether the schedule ticks exactly then."""
        minute = _floor_minute(instant)
        return (
            minute == instant
            and minute.minute in self.sets.minutes
            and minute.hour in self.sets.hours
            and self._has_day(minute.date())
        )

    def count(self, after: datetime, until: datetime) -> int:
        """Return how many ticks lie after an instant and at or before another; the cost does not grow with them."""
        first, last = _floor_minute(after), _floor_minute(until)
        if last <= first:
            return 0
        days = self._count_days(first.date(), last.date())
        return days * len(self.sets.hours) * len(self.sets.minutes) + self._count_on(last) - self._count_on(first)

    def list_newest(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """Return the last ticks, at most `limit`, after an instant and at or before another, oldest first."""
        found: list[datetime] = []
        tick = self.last_until(until)
        while tick is not None and tick > after and len(found) < limit:
            found.append(tick)
            tick = self._previous_on_same_day(tick) or self.last_until(tick - _MINUTE)
        return found[::-1]

    def _step(self, minute: datetime, method: str) -> datetime | None:
        from croniter import CroniterError, croniter

        try:
            found: Any = getattr(croniter(self._expression, minute.replace(tzinfo=None)), method)(datetime)
        except (CroniterError, OverflowError, ValueError):
            return None
        return found.replace(tzinfo=UTC)

    def _previous_on_same_day(self, tick: datetime) -> datetime | None:
        at = self.sets.minutes.index(tick.minute)
        if at:
            return tick.replace(minute=self.sets.minutes[at - 1])
        at = self.sets.hours.index(tick.hour)
        return tick.replace(hour=self.sets.hours[at - 1], minute=self.sets.minutes[-1]) if at else None

    def _has_day(self, day: date) -> bool:
        return (
            day.month in self.sets.months and day.day in self.sets.days and day.isoweekday() % 7 in self.sets.weekdays
        )

    def _count_on(self, minute: datetime) -> int:
        """Count the ticks of a day up to and including a minute."""
        if not self._has_day(minute.date()):
            return 0
        whole_hours = bisect_right(self.sets.hours, minute.hour - 1)
        count = whole_hours * len(self.sets.minutes)
        return count + bisect_right(self.sets.minutes, minute.minute) if minute.hour in self.sets.hours else count

    def _count_days(self, first: date, end: date) -> int:
        """Count the days with ticks in [first, end)."""
        count = 0
        for year, month in _months(first, end):
            if month in self.sets.months:
                low = first.day if (year, month) == (first.year, first.month) else 1
                high = end.day - 1 if (year, month) == (end.year, end.month) else monthrange(year, month)[1]
                count += self._count_in_month(date(year, month, 1), low, high)
        return count

    def _count_in_month(self, month: date, low: int, high: int) -> int:
        if high < low:
            return 0
        if self.sets.has_all_weekdays:
            return bisect_right(self.sets.days, high) - bisect_right(self.sets.days, low - 1)
        # Every day of the month will do here: the grammar takes one restriction or the other.
        weeks, rest = divmod(high - low + 1, 7)
        weekday = (month.isoweekday() + low - 1) % 7
        return weeks * len(self.sets.weekdays) + sum((weekday + day) % 7 in self.sets.weekdays for day in range(rest))


def _months(first: date, end: date) -> Iterator[tuple[int, int]]:
    for number in range(first.year * 12 + first.month - 1, end.year * 12 + end.month):
        yield number // 12, number % 12 + 1


def _floor_minute(instant: datetime) -> datetime:
    utc = instant.astimezone(UTC)
    return datetime.combine(utc.date(), time(utc.hour, utc.minute), UTC)
