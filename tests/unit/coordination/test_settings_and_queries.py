from typing import Any

import pytest
from coordination.database import connection_string
from coordination.errors import DatabaseUnavailableError
from coordination.imports import format_of, split_incoming_key
from coordination.queries import DuplicateQueryError, load_queries, parse_queries
from coordination.settings import Settings, list_allowed
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr, ValidationError


def test_settings_are_read_from_the_environment_by_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_IDEMPOTENCY__MAX_RECORDS", "7")
    monkeypatch.setenv("EVALWARD_STORAGE__BUCKET", "b")
    settings = Settings()
    assert (settings.idempotency.max_records, settings.storage.bucket) == (7, "b")
    assert settings.idempotency.retention_seconds == 86_400


def test_project_is_allowed_what_is_listed_for_it_and_for_all() -> None:
    allowed = {"*": ["a"], "demo": ["a", "b"], "other": ["c"]}
    assert (list_allowed(allowed, "demo"), list_allowed(allowed, "none"), list_allowed({}, "demo")) == (
        {"a", "b"},
        {"a"},
        set[str](),
    )


def test_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_DATABASE_URL", "")
    assert Settings().database_url is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("IDEMPOTENCY__MAX_RECORDS", "0"), ("IDEMPOTENCY__MAX_RECORD", "7"), ("TRANSACTIONS__LOCK_TIMEOUT_MS", "soon")],
)
def test_setting_out_of_range_or_misspelt_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"EVALWARD_{name}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_settings_cannot_be_changed_and_do_not_show_the_password() -> None:
    settings = Settings(database_url=SecretStr("postgresql://user:s3cret@host/db"))
    assert "s3cret" not in repr(settings)
    with pytest.raises(ValidationError):
        settings.database_url = None  # pyright: ignore[reportAttributeAccessIssue]


def read_secret(arn: str, is_fresh: bool) -> dict[str, Any]:
    return {"host": "h", "port": 5432, "dbname": "d", "username": "u", "password": f"it's {arn} {is_fresh}"}


def test_url_wins_over_the_secret() -> None:
    settings = Settings(database_url=SecretStr("postgresql:///x"), database_secret_arn="arn")
    assert connection_string(settings, read_secret, is_fresh=False) == "postgresql:///x"


def test_secret_becomes_a_connection_string_with_its_quotes() -> None:
    text = connection_string(Settings(database_secret_arn="arn"), read_secret, is_fresh=True)
    parts = conninfo_to_dict(text)
    assert (parts["host"], parts["user"], parts["password"]) == ("h", "u", "it's arn True")


def test_missing_database_settings_are_named() -> None:
    with pytest.raises(DatabaseUnavailableError, match="EVALWARD_DATABASE_SECRET_ARN"):
        connection_string(Settings(), read_secret, is_fresh=False)


def test_queries_are_split_by_their_names() -> None:
    queries = parse_queries("-- name: first\n-- What for.\nSELECT 1;\n\n-- name: second\nSELECT 2;\n")
    assert queries == {"first": "-- What for.\nSELECT 1", "second": "SELECT 2"}


def test_name_that_stands_twice_is_an_error() -> None:
    with pytest.raises(DuplicateQueryError):
        parse_queries("-- name: same\nSELECT 1;\n-- name: same\nSELECT 2;\n")


def test_queries_are_loaded_once_and_cannot_be_changed() -> None:
    queries = load_queries("leases")
    assert load_queries("leases") is queries
    with pytest.raises(TypeError):
        queries["take_lease"] = queries["renew_lease"]  # pyright: ignore[reportIndexIssue]


def test_unknown_file_of_queries_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        load_queries("no_such")


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("datasets/incoming/demo/a.jsonl", ("demo", "a.jsonl")),
        ("datasets/incoming/demo/a/b c.parquet", ("demo", "a/b c.parquet")),
        ("datasets/incoming/demo/", None),
        ("datasets/incoming/demo", None),
        ("datasets/incoming/Demo/a", None),
        ("datasets/incoming//a", None),
        ("datasets/incoming/demo/../a", None),
        ("datasets/incoming/demo/./a", None),
        ("datasets/incoming/demo//a", None),
        ("datasets/incoming/demo/a%2Fb", None),
        ("datasets/incoming/demo/a\\b", None),
        ("other/incoming/demo/a", None),
        ("/datasets/incoming/demo/a", None),
    ],
)
def test_incoming_key_names_its_project_or_is_none_of_ours(key: str, place: tuple[str, str] | None) -> None:
    assert split_incoming_key(key) == place


@pytest.mark.parametrize(
    ("name", "file_format"), [("a.jsonl", "jsonl"), ("a.parquet", "parquet"), ("a.JSONL", None), ("a.csv", None)]
)
def test_format_follows_from_the_ending(name: str, file_format: str | None) -> None:
    assert format_of(name) == file_format
