"""Schedule expressions of EventBridge: `rate(...)` and the six-field `cron(...)`."""

import calendar
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_RATE = re.compile(r"rate\(\s*([1-9]\d*)\s+(minute|hour|day)s?\s*\)")
_CRON = re.compile(r"cron\((.+)\)")
_MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_WEEKDAYS = {"SUN": 1, "MON": 2, "TUE": 3, "WED": 4, "THU": 5, "FRI": 6, "SAT": 7}
_NO_NAMES: dict[str, int] = {}
_FIRST_YEAR, _LAST_YEAR = 1970, 2199


class ScheduleExpressionError(ValueError):
    """The expression is not one EventBridge accepts; the message says which part."""


@dataclass(frozen=True)
class Rate:
    """`rate(value unit)`: fires each time the period has passed."""

    period: timedelta

    def next_after(self, moment: datetime) -> datetime:
        """Return the firing that follows one at `moment`."""
        return moment + self.period


@dataclass(frozen=True)
class Cron:
    """`cron(minutes hours day-of-month month day-of-week year)`, in UTC.

    Attributes
    ----------
    minutes, hours, months, years
        The values each field allows.
    day_of_month, day_of_week
        The fields as written; exactly one of them is `?`.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    years: frozenset[int]
    day_of_month: str
    day_of_week: str

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first firing strictly after `moment`, or None when there is none.

        Parameters
        ----------
        moment
            Aware; the answer is in UTC.
        """
        start = (moment.astimezone(UTC) + timedelta(minutes=1)).replace(second=0, microsecond=0)
        for year in sorted(year for year in self.years if year >= start.year):
            for month in sorted(self.months):
                if (year, month) < (start.year, start.month):
                    continue
                for day in sorted(self._days(year, month)):
                    if date(year, month, day) < start.date():
                        continue
                    for hour in sorted(self.hours):
                        for minute in sorted(self.minutes):
                            candidate = datetime(year, month, day, hour, minute, tzinfo=UTC)
                            if candidate >= start:
                                return candidate
        return None

    def _days(self, year: int, month: int) -> set[int]:
        if self.day_of_week == "?":
            return _days_of_month(self.day_of_month, year, month)
        return _days_of_week(self.day_of_week, year, month)


def parse_schedule_expression(expression: str) -> Rate | Cron:
    """Parse a schedule expression.

    Parameters
    ----------
    expression
        `rate(5 minutes)` or `cron(0 18 ? * MON-FRI *)`.

    Returns
    -------
    Rate or Cron

    Raises
    ------
    ScheduleExpressionError
        When EventBridge would refuse it, or for `at(...)`, which fires once and so is of no use in a template.
    """
    if match := _RATE.fullmatch(expression.strip()):
        return Rate(timedelta(**{f"{match[2]}s": int(match[1])}))
    match = _CRON.fullmatch(expression.strip())
    fields = match[1].upper().split() if match else []
    if len(fields) != 6:
        raise ScheduleExpressionError(f"{expression!r} is neither rate(value unit) nor cron with six fields")
    minutes, hours, day_of_month, months, day_of_week, years = fields
    if (day_of_month == "?") == (day_of_week == "?"):
        raise ScheduleExpressionError(f"{expression!r}: exactly one of day-of-month and day-of-week must be ?")
    cron = Cron(
        minutes=_values(minutes, 0, 59),
        hours=_values(hours, 0, 23),
        months=_values(months, 1, 12, _MONTHS),
        years=_values(years, _FIRST_YEAR, _LAST_YEAR),
        day_of_month=day_of_month,
        day_of_week=day_of_week,
    )
    # Any month serves to find a malformed day field now rather than at its first use.
    if day_of_week == "?":
        _days_of_month(day_of_month, 2024, 1)
    else:
        _days_of_week(day_of_week, 2024, 1)
    return cron


def _values(field: str, low: int, high: int, names: dict[str, int] = _NO_NAMES) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span == "*":
            start, stop = low, high
        else:
            start = _number(first, low, high, names)
            # `5/15` means from 5 to the end; a bare `5` means 5.
            stop = _number(last, low, high, names) if dash else (high if step else start)
        if start > stop:
            raise ScheduleExpressionError(f"{part!r}: a range goes upwards")
        found.update(range(start, stop + 1, _number(step, 1, high, _NO_NAMES) if step else 1))
    return frozenset(found)


def _number(text: str, low: int, high: int, names: dict[str, int]) -> int:
    value = names.get(text, int(text) if text.isdecimal() else None)
    if value is None or not low <= value <= high:
        raise ScheduleExpressionError(f"{text!r} is not between {low} and {high}")
    return value


def _days_of_month(field: str, year: int, month: int) -> set[int]:
    last = calendar.monthrange(year, month)[1]
    if field == "L":
        return {last}
    if field == "LW":
        return {_nearest_weekday(last, year, month)}
    if field.endswith("W"):
        day = _number(field[:-1], 1, 31, _NO_NAMES)
        return {_nearest_weekday(day, year, month)} if day <= last else set()
    return {day for day in _values(field, 1, 31) if day <= last}


def _nearest_weekday(day: int, year: int, month: int) -> int:
    last = calendar.monthrange(year, month)[1]
    weekday = calendar.weekday(year, month, day)
    # Never into another month: the 1st on a Saturday gives the 3rd, the last on a Sunday the Friday before.
    if weekday == calendar.SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == calendar.SUNDAY:
        return day + 1 if day < last else day - 2
    return day


def _days_of_week(field: str, year: int, month: int) -> set[int]:
    last = calendar.monthrange(year, month)[1]

    def days(weekday: int) -> list[int]:
        # EventBridge counts from Sunday = 1, the calendar module from Monday = 0.
        return [day for day in range(1, last + 1) if (calendar.weekday(year, month, day) + 1) % 7 + 1 == weekday]

    if "#" in field:
        name, _, ordinal = field.partition("#")
        matching = days(_number(name, 1, 7, _WEEKDAYS))
        return set(matching[_number(ordinal, 1, 5, _NO_NAMES) - 1 :][:1])
    if field == "L":
        return set(days(7))
    if field.endswith("L"):
        return {days(_number(field[:-1], 1, 7, _WEEKDAYS))[-1]}
    return {day for weekday in _values(field, 1, 7, _WEEKDAYS) for day in days(weekday)}
