"""JobEngine's settings: their defaults, their spellings, and what is refused by name."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordination.settings import CapacitySettings, RetentionSettings, Settings
from pydantic import ValidationError

PREFIX = "EVALWARD_JOBENGINE__RETENTION__"


def test_defaults_are_those_of_the_contract() -> None:
    settings = RetentionSettings()
    assert settings.model_dump() == {
        "enabled": True,
        "tenants": ("default",),
        "terminal_retention_days": 90,
        "failure_signature_retention_days": 90,
        "job_history_retention_days": 365,
        "maximum_terminal_rows_per_scope": 10_000,
        "batch_size": 1_000,
        "max_batches_per_sweep": 10,
        "sweep_interval": timedelta(days=1),
        "start_delay": timedelta(minutes=5),
        "doctor_grace": timedelta(0),
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.00:00:00", timedelta(days=1)),
        ("00:05:00", timedelta(minutes=5)),
        ("3600", timedelta(hours=1)),
        ("PT90M", timedelta(minutes=90)),
    ],
)
def test_interval_is_read_in_the_spellings_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, text: str, expected: timedelta
) -> None:
    monkeypatch.setenv(f"{PREFIX}SWEEP_INTERVAL", text)
    assert Settings().jobengine.retention.sweep_interval == expected


def test_section_is_read_as_one_json_object_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_JOBENGINE__RETENTION", '{"batch_size": 7, "start_delay": 0}')
    retention = Settings().jobengine.retention
    assert (retention.batch_size, retention.start_delay) == (7, timedelta(0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TERMINAL_RETENTION_DAYS", "0"),
        ("FAILURE_SIGNATURE_RETENTION_DAYS", "-1"),
        ("JOB_HISTORY_RETENTION_DAYS", "0"),
        ("JOB_HISTORY_RETENTION_DAYS", "89"),
        ("MAXIMUM_TERMINAL_ROWS_PER_SCOPE", "0"),
        ("BATCH_SIZE", "0"),
        ("BATCH_SIZE", "many"),
        ("MAX_BATCHES_PER_SWEEP", "0"),
        ("SWEEP_INTERVAL", "0"),
        ("SWEEP_INTERVAL", "a day"),
        ("START_DELAY", "-1"),
        ("DOCTOR_GRACE", "2.00:00:00"),
        ("ENABLED", "maybe"),
        ("NO_SUCH_SETTING", "1"),
    ],
)
def test_bad_value_stops_the_start_with_the_name_of_the_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert name.lower() in str(refused.value)


def test_delay_of_zero_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{PREFIX}START_DELAY", "0")
    assert Settings().jobengine.retention.start_delay == timedelta(0)


def test_envelope_names_measured_tables_only() -> None:
    limit = {"budget_bytes": 10, "stop_line_bytes": 9}
    capacity = CapacitySettings.model_validate({"entries": {"packs.packs": limit}})
    assert capacity.limit("packs.packs").stop_line_bytes == 9
    assert capacity.limit("scheduler.jobs") == capacity.entry
    with pytest.raises(ValidationError, match=r"not measured: packs\.pack"):
        CapacitySettings.model_validate({"entries": {"packs.pack": limit}})
    with pytest.raises(ValidationError, match="stop_line_bytes must not be above budget_bytes"):
        CapacitySettings.model_validate({"entry": {"budget_bytes": 1, "stop_line_bytes": 2}})
