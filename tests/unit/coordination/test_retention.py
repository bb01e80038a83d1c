import pytest
from coordination.retention import choose_retention_seconds, parse_retention_seconds
from coordination.settings import RunSettings, Settings
from pydantic import ValidationError

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("720h", 30 * DAY), ("30d", 30 * DAY), ("P30D", 30 * DAY), ("PT1H", 3600), ("PT60M", 3600),
     ("P1DT12H", DAY * 3 // 2), ("PT3600S", 3600), ("0", None)],
)  # fmt: skip
def test_periods_are_read_in_three_forms(text: str, seconds: int | None) -> None:
    assert parse_retention_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0h", "0d", "59m", "PT59M", "PT3599S", "P", "PT", "30", "30 d", "-1d", "P1M", "1w", "1.5d", "٣d"]
)
def test_other_forms_and_less_than_an_hour_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="retention period"):
        parse_retention_seconds(text)


@pytest.mark.parametrize(
    ("own", "by_project", "default", "seconds"),
    [
        (None, {}, None, None),
        (None, {}, "1d", DAY),
        (None, {"other": "2d"}, "1d", DAY),
        (None, {"demo": "2d"}, "1d", 2 * DAY),
        (None, {"demo": "2d"}, None, 2 * DAY),
        (None, {"demo": "0"}, "1d", None),
        ("3d", {"demo": "2d"}, "1d", 3 * DAY),
        ("0", {"demo": "2d"}, "1d", None),
        ("3d", {"demo": "0"}, None, 3 * DAY),
    ],
)
def test_own_field_wins_over_the_map_and_the_map_over_the_default(
    own: str | None, by_project: dict[str, str], default: str | None, seconds: int | None
) -> None:
    assert choose_retention_seconds("demo", own, by_project, default) == seconds


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_RUNS__RETENTION", "30d")
    monkeypatch.setenv("EVALWARD_RUNS__PROJECT_RETENTION", '{"demo": "0", "search": "720h"}')
    assert Settings().runs == RunSettings(retention="30d", project_retention={"demo": "0", "search": "720h"})


def test_empty_settings_keep_runs_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_RUNS__RETENTION", "")
    monkeypatch.setenv("EVALWARD_RUNS__PROJECT_RETENTION", "{}")
    assert Settings().runs.retention is None


@pytest.mark.parametrize(
    ("name", "value"), [("RETENTION", "5m"), ("PROJECT_RETENTION", '{"demo": "59m"}'), ("PROJECT_RETENTION", "[]")]
)
def test_a_setting_that_is_no_period_stops_the_function_at_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"EVALWARD_RUNS__{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        Settings()
