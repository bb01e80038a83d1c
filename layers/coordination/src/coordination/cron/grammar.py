"""The grammar: what an expression may say, and the sets it stands for.

Libraries disagree about cron, and change their minds between releases, so an expression is read here and nowhere else:
`*`, numbers, names (`MON`, `JAN`), lists, ranges `a-b` with a < b, steps `*/n` and `a-b/n`; weekdays 0-7, where 0 and 7
are Sunday. What libraries read in different ways is refused, each thing with a message of its own. A source stores the
sets and the version of this grammar, so that no upgrade changes when it runs.
"""

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

GRAMMAR_VERSION = 1
MAX_CHARACTERS = 200
_LEAP_YEAR = 2024

_NUMBER = re.compile(r"[0-9]{1,2}", re.ASCII)
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FOREIGN = {
    "?": "`?` of Quartz is not taken; write `*`",
    "#": "`#` (the n-th weekday of a month) is not taken; list the days of the month",
    "L": "`L` (the last day) is not taken; choose a day that every month has",
    "W": "`W` (the nearest working day) is not taken; list the weekdays",
    "H": "`H` of Jenkins is not taken; choose a number",
    "R": "`R` (a random value) is not taken; choose a number",
}


class CronError(ValueError):
    """An expression that is not taken; the message says what is wrong with it and what to write instead."""


@dataclass(frozen=True, slots=True)
class _Field:
    """One of the five fields.

    Attributes
    ----------
    name
        For messages.
    low, high
        Numbers that may be written.
    names
        Names that may be written, for `low`, `low` + 1 …
    size
        How many different values there are.
    """

    name: str
    low: int
    high: int
    size: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59, 60),
    _Field("hour", 0, 23, 24),
    _Field("day of the month", 1, 31, 31),
    _Field("month", 1, 12, 12, _MONTHS),
    _Field("weekday", 0, 7, 7, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronSets:
    """What an expression means: the values of each field, sorted, each once.

    Attributes
    ----------
    minutes, hours, days, months
        0-59, 0-23, 1-31, 1-12.
    weekdays
        0-6, 0 is Sunday.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    @property
    def has_all_days(self) -> bool:
        """Whether every day of the month will do."""
        return len(self.days) == 31

    @property
    def has_all_weekdays(self) -> bool:
        """Whether every weekday will do."""
        return len(self.weekdays) == 7

    def to_expression(self) -> str:
        """Write the sets as an expression that every library reads alike: `*` or a list, in each field."""
        fields = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(
            "*" if len(values) == field.size else ",".join(map(str, values))
            for values, field in zip(fields, _FIELDS, strict=True)
        )

    def to_json(self) -> dict[str, list[int]]:
        """Return what is stored."""
        return {
            "minutes": list(self.minutes),
            "hours": list(self.hours),
            "days": list(self.days),
            "months": list(self.months),
            "weekdays": list(self.weekdays),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `to_json` made."""
        return cls(**{name: tuple(values) for name, values in stored.items()})


def parse_cron(expression: Any) -> CronSets:
    """Read an expression.

    Raises
    ------
    CronError
        It is none that this grammar takes, or it never fires. Nothing else leaves, whatever is given.
    """
    if not isinstance(expression, str):
        raise CronError("a cron expression is a text of five fields")
    if len(expression) > MAX_CHARACTERS:
        raise CronError(f"the expression has {len(expression)} characters; at most {MAX_CHARACTERS} are taken")
    if any(character in expression for character in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"):
        raise CronError("the expression holds a newline; write its five fields in one line")
    texts = [text for text in expression.split(" ") if text]
    if not texts:
        raise CronError("the expression is empty; write five fields: minute hour day month weekday")
    if len(texts) != len(_FIELDS):
        advice = " (`@daily` and the like are not taken)" if texts[0].startswith("@") else ""
        raise CronError(
            f"an expression has five fields, minute hour day month weekday; this one has {len(texts)}{advice}"
        )
    sets = CronSets(*(_parse_field(text, field) for text, field in zip(texts, _FIELDS, strict=True)))
    if not sets.has_all_days and not sets.has_all_weekdays:
        raise CronError(
            "day of the month and weekday are both restricted, which cron programs read in three different ways; "
            "leave one of the two at `*`"
        )
    longest = max(monthrange(_LEAP_YEAR, month)[1] for month in sets.months)
    if sets.days[0] > longest:
        raise CronError(f"the expression never fires: none of its months has a day {sets.days[0]}")
    return sets


def _parse_field(text: str, field: _Field) -> tuple[int, ...]:
    values: set[int] = set()
    parts = text.split(",")
    for part in parts:
        if not part:
            raise CronError(f"{field.name}: a list has nothing between two commas in {text!r}")
        if part.startswith("*") and len(parts) > 1:
            raise CronError(f"{field.name}: `*` stands in a list ({text!r}); write `*` alone, or the values you mean")
        values.update(_parse_part(part, field))
    return tuple(sorted({value % 7 for value in values} if field.names is _WEEKDAYS else values))


def _parse_part(part: str, field: _Field) -> range:
    body, slash, step_text = part.partition("/")
    step = _parse_step(step_text, part, field) if slash else 1
    if body == "*":
        high = field.low + field.size - 1
        return range(field.low, high + 1, step)
    first, dash, last = body.partition("-")
    if dash and first and last:
        low, high = _parse_value(first, part, field), _parse_value(last, part, field)
        if low == high:
            raise CronError(f"{field.name}: the range {body!r} has one value; write {first}")
        if low > high:
            raise CronError(f"{field.name}: the range {body!r} runs backwards; write it as two ranges or as a list")
        return range(low, high + 1, step)
    if dash:
        raise CronError(f"{field.name}: {part!r} is neither a number nor a range a-b")
    value = _parse_value(body, part, field)
    if slash:
        raise CronError(
            f"{field.name}: {part!r} means different things to different programs; write {body}-{field.high}/{step}"
        )
    return range(value, value + 1)


def _parse_step(text: str, part: str, field: _Field) -> int:
    if not _NUMBER.fullmatch(text):
        if text.isascii() and text.isdigit():
            raise CronError(
                f"{field.name}: the step {text} of {part!r} is larger than the field, which has {field.size} values"
            )
        raise CronError(f"{field.name}: {part!r} has no step; write a number of 1 to {field.size} after the `/`")
    step = int(text)
    if step == 0:
        raise CronError(f"{field.name}: the step of {part!r} is 0; write 1 to {field.size}")
    if step > field.size:
        raise CronError(
            f"{field.name}: the step {step} of {part!r} is larger than the field, which has {field.size} values"
        )
    return step


def _parse_value(text: str, part: str, field: _Field) -> int:
    name = text.upper()
    if name in field.names:
        return field.names.index(name) + field.low
    if _NUMBER.fullmatch(text):
        value = int(text)
        if not field.low <= value <= field.high:
            raise CronError(f"{field.name}: {text} is not between {field.low} and {field.high}")
        return value
    if text.isascii() and text.isdigit():
        raise CronError(f"{field.name}: {text} is not between {field.low} and {field.high}")
    for letter, advice in _FOREIGN.items():
        if letter in name and not any(known in name for known in field.names):
            raise CronError(f"{field.name}: {part!r}: {advice}")
    names = f" or a name such as {field.names[1]}" if field.names else ""
    raise CronError(f"{field.name}: {part!r} is not taken; write a number of {field.low} to {field.high}{names}")
