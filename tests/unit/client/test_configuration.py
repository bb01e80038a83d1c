"""The environment wins, and a stored key goes to its own URL only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from evalward.configuration import (
    Login,
    find_login,
    login_file,
    pending_folder,
    read_login,
    read_patience,
    write_login,
)
from evalward.errors import ConfigurationError
from evalward.transport import PATIENCE_SECONDS

STORED = Login("https://stored.example.com", "ew_stored", "demo")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_what_was_stored_is_found_and_is_the_owners_only(environment: dict[str, str]) -> None:
    path = login_file(environment)
    write_login(path, STORED)
    assert find_login(environment) == STORED
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["login.json"]


def test_the_environment_wins(environment: dict[str, str]) -> None:
    write_login(login_file(environment), STORED)
    both = {"EVALWARD_API_URL": "https://env.example.com", "EVALWARD_API_KEY": "ew_env"}
    assert find_login(environment | both) == Login("https://env.example.com", "ew_env")
    assert find_login(environment | {"EVALWARD_API_KEY": "ew_env"}).api_key == "ew_env"
    assert find_login(environment | {"EVALWARD_PROJECT": "other"}).project == "other"
    assert find_login(environment | {"EVALWARD_API_URL": f"{STORED.api_url}/"}).api_key == STORED.api_key


def test_the_stored_key_is_for_the_stored_url_only(environment: dict[str, str]) -> None:
    write_login(login_file(environment), STORED)
    with pytest.raises(ConfigurationError, match="set EVALWARD_API_KEY too"):
        find_login(environment | {"EVALWARD_API_URL": "https://elsewhere.example.com"})


def test_nothing_known_says_what_to_do(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="evalward login URL"):
        find_login(environment)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_not_used(environment: dict[str, str], mode: int) -> None:
    path = login_file(environment)
    write_login(path, STORED)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        find_login(environment)


@pytest.mark.parametrize("text", ["", "[]", '{"api_url": 1}', '{"api_url": "a", "api_key": "b", "more": 1}'])
def test_a_damaged_file_is_told(environment: dict[str, str], text: str) -> None:
    path = login_file(environment)
    write_login(path, STORED)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="damaged"):
        read_login(path)


def test_a_failed_login_leaves_the_old_one(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = login_file(environment)
    write_login(path, STORED)

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ConfigurationError, match="No space left"):
        write_login(path, Login("https://new.example.com", "ew_new"))
    assert read_login(path) == STORED
    assert [entry.name for entry in path.parent.iterdir()] == ["login.json"]


def test_state_is_kept_apart(environment: dict[str, str], tmp_path: Path) -> None:
    assert pending_folder(environment) == tmp_path / "state" / "evalward" / "pending"


def test_patience_is_a_number_of_seconds() -> None:
    assert read_patience({}) == PATIENCE_SECONDS
    assert read_patience({"EVALWARD_PATIENCE_SECONDS": "5"}) == 5.0
    with pytest.raises(ConfigurationError, match="no number"):
        read_patience({"EVALWARD_PATIENCE_SECONDS": "-1"})


@pytest.mark.parametrize("find", [login_file, pending_folder])
def test_a_machine_without_a_home_is_told(monkeypatch: pytest.MonkeyPatch, find: Callable[..., Path]) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ConfigurationError, match="set HOME, or XDG_"):
        find({})
    assert find({"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s"}).parts[1] in ("c", "s")
