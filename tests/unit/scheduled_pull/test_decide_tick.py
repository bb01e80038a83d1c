from datetime import UTC, datetime, timedelta

import pytest
from coordination.cron import Ticks, parse_cron
from hypothesis import given
from hypothesis import strategies as st
from scheduled_pull.decide_tick import Decision, LastRun, Timing, decide_tick

HOUR, MINUTE, SECOND, MICROSECOND = (
    timedelta(hours=1),
    timedelta(minutes=1),
    timedelta(seconds=1),
    timedelta(microseconds=1),
)
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def decide(
    cron: str, cursor: datetime, now: datetime, *, settle: timedelta = 10 * MINUTE, deadline: timedelta = HOUR,
    last_run: LastRun | None = None,
) -> Decision:  # fmt: skip
    return decide_tick(Timing(Ticks(parse_cron(cron)), settle, deadline), cursor, now, last_run)


def counts(decision: Decision) -> dict[str, int]:
    return {reason: sum(missed.count for missed in decision.missed if missed.reason == reason)
            for reason in ("deadline", "overlap")}  # fmt: skip


@pytest.mark.parametrize(
    ("late", "is_due"),
    [(10 * MINUTE - MICROSECOND, False), (10 * MINUTE, True), (HOUR, True), (HOUR + MICROSECOND, False)],
)
def test_tick_is_due_from_its_settle_time_to_its_deadline_both_included(late: timedelta, is_due: bool) -> None:
    decision = decide("0 12 * * *", NOON - MINUTE, NOON + late)
    assert (decision.tick == NOON) == is_due
    if late < HOUR:
        assert decision.wake_at == (None if is_due else NOON + 10 * MINUTE)
    if late > HOUR:
        assert counts(decision) == {"deadline": 1, "overlap": 0}
        assert decision.cursor == NOON
        assert decision.wake_at == NOON + timedelta(days=1, minutes=10)


def test_ticks_inside_their_deadline_are_taken_in_order() -> None:
    now, cursor = NOON + 30 * MINUTE, NOON - 5 * HOUR
    taken: list[datetime] = []
    decision = decide("0 * * * *", cursor, now, deadline=3 * HOUR)
    assert counts(decision) == {"deadline": 2, "overlap": 0}
    while decision.tick is not None:
        taken.append(decision.tick)
        decision = decide("0 * * * *", decision.tick, now, deadline=3 * HOUR)
        assert decision.missed == []
    assert taken == [NOON - 2 * HOUR, NOON - HOUR, NOON]


def test_gap_of_400_days_is_one_step() -> None:
    decision = decide("* * * * *", NOON - timedelta(days=400), NOON, settle=timedelta(0), deadline=2 * MINUTE)
    assert counts(decision) == {"deadline": 400 * 1440 - 3, "overlap": 0}
    assert decision.tick == NOON - 2 * MINUTE


def test_edit_at_07_14_from_05_40_to_05_50_runs_next_on_the_next_day() -> None:
    edited = datetime(2026, 11, 30, 7, 14, tzinfo=UTC)
    decision = decide("50 5 * * *", edited, edited + SECOND, deadline=24 * HOUR)
    assert decision.tick is None
    assert decision.missed == []
    assert decision.wake_at == datetime(2026, 12, 1, 6, 0, tzinfo=UTC)


def test_open_run_holds_everything_back() -> None:
    decision = decide("0 * * * *", NOON - HOUR, NOON + 20 * MINUTE, last_run=LastRun(NOON - HOUR, None))
    assert decision.tick is None
    assert decision.wake_at == NOON + 21 * MINUTE
    assert decision.missed == []


def test_what_ran_out_while_the_run_was_open_is_told_from_what_ran_out_after_it() -> None:
    run = LastRun(NOON - 9 * HOUR, NOON - 4 * HOUR - 30 * MINUTE)
    decision = decide("0 * * * *", NOON - 10 * HOUR, NOON + 30 * MINUTE, last_run=run)
    # Ticks from 03:00 to 06:00 ran out until 07:00, the run ended at 07:30; those from 07:00 to 11:00 ran out after it.
    assert counts(decision) == {"overlap": 4, "deadline": 5}
    assert decision.tick == NOON


def test_schedule_without_further_ticks_asks_for_no_wake_up() -> None:
    end = datetime(9999, 12, 31, 23, 59, 30, tzinfo=UTC)
    assert decide("0 0 1 1 *", end, end) == Decision([], end, None, None)


@given(st.integers(0, 10**12), st.integers(0, 10**6), st.integers(120, 86_400), st.booleans())
def test_every_tick_is_decided_once(offset: int, gap: int, deadline: int, is_open: bool) -> None:
    cursor = NOON + offset * MICROSECOND
    now = cursor + gap * SECOND
    ticks = Ticks(parse_cron("*/7 * * * *"))
    run = LastRun(cursor - HOUR, None if is_open else cursor + gap * SECOND / 2)
    decision = decide_tick(Timing(ticks, timedelta(0), deadline * SECOND), cursor, now, run)
    assert sum(missed.count for missed in decision.missed) == ticks.count(cursor, decision.cursor)
    assert decision.cursor <= max(cursor, now - deadline * SECOND)
    if decision.tick is not None:
        assert decision.tick == ticks.next_after(decision.cursor)
        assert decision.tick <= now <= decision.tick + deadline * SECOND
