import calendar
import random
import time
import tracemalloc
from datetime import UTC, datetime, timedelta

import pytest
from coordination.cron import CronError, CronSets, Ticks, parse_cron
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

FIRST, LAST = datetime(2023, 1, 1), datetime(2026, 1, 1)  # noqa: DTZ001 - hypothesis takes naive bounds
MINUTE, MICROSECOND = timedelta(minutes=1), timedelta(microseconds=1)


def ticks_of(expression: str) -> Ticks:
    return Ticks(parse_cron(expression))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def matches(sets: CronSets, minute: datetime) -> bool:
    """Say from the definition alone whether a minute is a tick."""
    weekday = (calendar.weekday(minute.year, minute.month, minute.day) + 1) % 7
    return (
        minute.minute in sets.minutes
        and minute.hour in sets.hours
        and minute.day in sets.days
        and minute.month in sets.months
        and weekday in sets.weekdays
    )


def make_expression(chance: random.Random) -> str:
    """Make an expression that may or may not be taken."""

    def part(low: int, high: int) -> str:
        first, last = sorted(chance.sample(range(low, high + 1), 2))
        step = chance.randint(1, high - low)
        return chance.choice([str(first), f"{first}-{last}", f"{first}-{last}/{step}", f"{first},{last}", f"*/{step}"])

    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    return " ".join("*" if chance.random() < 0.5 else part(*bound) for bound in bounds)


def test_10000_expressions_tick_as_cronsim_says_over_five_years() -> None:
    chance = random.Random(20)
    compared = 0
    while compared < 10_000:
        expression = make_expression(chance)
        try:
            ticks = ticks_of(expression)
        except CronError:
            continue
        instant = at("2024-01-01") + timedelta(minutes=chance.randrange(5 * 365 * 1440))
        expected = next(CronSim(ticks.sets.to_expression(), instant))
        assert ticks.next_after(instant) == expected, (expression, instant)
        assert ticks.last_until(expected) == expected
        assert ticks.last_until(expected + MINUTE - MICROSECOND) == expected
        compared += 1


@st.composite
def schedules(draw: st.DrawFn) -> Ticks:
    expression = make_expression(draw(st.randoms(use_true_random=False)))
    try:
        return ticks_of(expression)
    except CronError:
        assume(False)
        raise


@given(schedules(), st.datetimes(FIRST, LAST), st.integers(0, 3 * 86400 * 10**6))
@settings(max_examples=60, deadline=None)
def test_ticks_and_their_number_are_those_of_a_brute_force_oracle(ticks: Ticks, start: datetime, gap: int) -> None:
    after = start.replace(tzinfo=UTC)
    until = after + gap * MICROSECOND
    minute = after.replace(second=0, microsecond=0)
    expected: list[datetime] = []
    while minute <= until:
        if minute > after and matches(ticks.sets, minute):
            expected.append(minute)
        minute += MINUTE
    assert ticks.count(after, until) == len(expected)
    assert ticks.list_newest(after, until, 10) == expected[-10:]
    if expected:
        assert ticks.next_after(after) == expected[0]
        assert ticks.last_until(until) == expected[-1]


@given(schedules(), st.lists(st.integers(0, 10**9), min_size=3, max_size=3))
@settings(deadline=None)
def test_numbers_of_ticks_add_up(ticks: Ticks, seconds: list[int]) -> None:
    first, middle, last = (at("2000-01-01") + timedelta(seconds=count) for count in sorted(seconds))
    assert ticks.count(first, last) == ticks.count(first, middle) + ticks.count(middle, last)


@pytest.mark.parametrize(
    ("expression", "days", "expected"),
    [
        ("* * * * *", 400, 400 * 1440),
        ("*/15 * * * *", 400, 400 * 96),
        ("0 0 * * MON", 400, 58),
        ("30 2 29 2 *", 4 * 366, 1),
        ("0 12 31 * *", 365, 7),
    ],
)
def test_a_gap_is_counted_at_once(expression: str, days: int, expected: int) -> None:
    ticks, until = ticks_of(expression), at("2026-11-30T16:00:00")
    ticks.next_after(until)
    began = time.perf_counter()
    assert ticks.count(until - timedelta(days=days), until) == expected
    # Generous against a busy machine: what matters is that half a million ticks are not walked one by one.
    assert time.perf_counter() - began < 0.05


def test_instant_of_a_tick_is_counted_once_to_the_microsecond() -> None:
    ticks, tick = ticks_of("0 * * * *"), at("2026-11-30T16:00:00")
    assert ticks.count(tick - MICROSECOND, tick) == 1
    assert ticks.count(tick, tick + MICROSECOND) == 0
    assert ticks.last_until(tick) == tick
    assert ticks.last_until(tick - MICROSECOND) == tick - timedelta(hours=1)
    assert ticks.next_after(tick - MICROSECOND) == tick
    assert ticks.next_after(tick) == tick + timedelta(hours=1)
    assert ticks.count(tick, tick) == ticks.count(tick + MINUTE, tick) == 0
    assert ticks.is_tick(tick)
    assert not ticks.is_tick(tick + MICROSECOND)


def test_leap_day_after_a_century_without_one() -> None:
    assert ticks_of("0 0 29 2 *").next_after(at("2097-01-01")) == at("2104-02-29")


def test_sunday_is_0_and_7_alike() -> None:
    zero, seven = ticks_of("0 10 * * 0"), ticks_of("0 10 * * 7")
    assert zero.sets == seven.sets
    assert zero.next_after(at("2026-11-28T12:00:00")) == at("2026-11-29T10:00:00")


def test_other_time_zones_are_read_as_the_instants_they_are() -> None:
    local = datetime.fromisoformat("2026-11-30T17:30:00+01:00")
    assert ticks_of("0 * * * *").next_after(local) == at("2026-11-30T17:00:00")


def test_the_calendar_ends_without_an_error() -> None:
    assert ticks_of("0 0 1 1 *").next_after(at("9999-12-31T23:59:59.999999")) is None
    assert ticks_of("0 0 31 12 *").last_until(at("0001-01-01T00:00:00")) is None


@pytest.mark.long
def test_ten_thousand_starts_leave_nothing_behind() -> None:
    ticks = ticks_of("*/7 3 * * MON")
    starts = [at("2024-01-01") + timedelta(minutes=37 * number) for number in range(10_000)]
    for start in starts[:200]:
        ticks.next_after(start)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for start in starts:
            ticks.next_after(start)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A cache by start would hold a datetime a start at least: half a megabyte.
    assert after - before < 100_000
