from datetime import UTC, datetime, timedelta

import pytest
from evalward_local.schedule_expressions import Rate, ScheduleExpressionError, parse_schedule_expression


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "period"),
    [
        ("rate(1 minute)", timedelta(minutes=1)),
        ("rate(5 minutes)", timedelta(minutes=5)),
        ("rate(12 hours)", timedelta(hours=12)),
        ("rate(1 day)", timedelta(days=1)),
    ],
)
def test_rates_have_a_period(expression: str, period: timedelta) -> None:
    assert parse_schedule_expression(expression) == Rate(period)


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("cron(* * * * ? *)", "2026-01-31T23:59:30", "2026-02-01T00:00"),
        ("cron(0 10 * * ? *)", "2026-03-01T10:00", "2026-03-02T10:00"),
        ("cron(15 12 * * ? *)", "2026-03-01T12:14:59", "2026-03-01T12:15"),
        ("cron(0 18 ? * MON-FRI *)", "2026-11-27T18:00", "2026-11-30T18:00"),
        ("cron(0/15 8-9 * * ? *)", "2026-05-05T09:45", "2026-05-06T08:00"),
        ("cron(0 0 L * ? *)", "2026-02-01T00:00", "2026-02-28T00:00"),
        ("cron(0 0 L * ? *)", "2028-02-01T00:00", "2028-02-29T00:00"),
        ("cron(0 0 15W * ? *)", "2026-08-01T00:00", "2026-08-14T00:00"),
        ("cron(0 0 1W * ? *)", "2026-07-31T12:00", "2026-08-03T00:00"),
        ("cron(0 0 LW * ? *)", "2026-05-01T00:00", "2026-05-29T00:00"),
        ("cron(0 0 ? * 6L *)", "2026-05-01T00:00", "2026-05-29T00:00"),
        ("cron(0 0 ? * MON#2 *)", "2026-05-01T00:00", "2026-05-11T00:00"),
        ("cron(0 0 31 * ? *)", "2026-02-01T00:00", "2026-03-31T00:00"),
        ("cron(0 0 29 FEB ? *)", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("cron(30 6 1,15 JAN,JUL ? 2027-2028)", "2026-01-01T00:00", "2027-01-01T06:30"),
    ],
)
def test_cron_fires_next(expression: str, after: str, expected: str) -> None:
    assert parse_schedule_expression(expression).next_after(at(after)) == at(expected)


def test_cron_of_a_past_year_never_fires() -> None:
    assert parse_schedule_expression("cron(0 0 1 1 ? 2020)").next_after(at("2026-01-01T00:00")) is None


@pytest.mark.parametrize(
    "expression",
    [
        "rate(0 minutes)",
        "rate(5 seconds)",
        "cron(0 10 * * *)",
        "cron(0 10 * * * *)",
        "cron(0 10 ? * ? *)",
        "cron(60 * * * ? *)",
        "cron(0 24 * * ? *)",
        "cron(0 0 0 * ? *)",
        "cron(0 0 ? * 8 *)",
        "cron(30-10 * * * ? *)",
        "cron(0/0 * * * ? *)",
        "at(2026-01-01T00:00:00)",
        "",
    ],
)
def test_other_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ScheduleExpressionError):
        parse_schedule_expression(expression)
