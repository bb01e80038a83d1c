"""Keys of writes survive their process, and no two processes make the same write at once."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from evalward.errors import ConfigurationError, StaleWriteError
from evalward.pending_writes import Intent, PendingWrites

INTENT = Intent("runs.create", "POST /v1/projects/demo/runs", "a" * 64)


def test_a_key_is_kept_until_its_write_is_finished(tmp_path: Path) -> None:
    with PendingWrites(tmp_path).hold(INTENT) as first:
        assert not first.was_interrupted
    with PendingWrites(tmp_path).hold(INTENT) as second:
        assert second.was_interrupted
        assert second.value == first.value
        second.finish()
    with PendingWrites(tmp_path).hold(INTENT) as third:
        assert not third.was_interrupted
        assert third.value != first.value


def test_the_key_is_on_the_disk_before_the_block_begins(tmp_path: Path) -> None:
    with PendingWrites(tmp_path).hold(INTENT) as held:
        (path,) = tmp_path.glob("*.json")
        assert json.loads(path.read_text())["idempotency_key"] == held.value
        assert path.stat().st_mode & 0o777 == 0o600


def test_a_note_is_kept_with_the_key(tmp_path: Path) -> None:
    with PendingWrites(tmp_path).hold(INTENT) as held:
        held.remember("half-way")
        key = held.value
    with PendingWrites(tmp_path).hold(INTENT) as held:
        assert (held.note, held.value) == ("half-way", key)


def test_an_error_leaves_the_key(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), PendingWrites(tmp_path).hold(INTENT):
        raise ZeroDivisionError
    assert len(PendingWrites(tmp_path).entries()) == 1


HOLDER = """
import json, sys
from pathlib import Path
from evalward.pending_writes import Intent, PendingWrites

def tell(what):
    print(json.dumps(what), flush=True)

intent = Intent("runs.create", "POST /v1/projects/demo/runs", "a" * 64)
with PendingWrites(Path(sys.argv[1]), say=lambda _text: tell("waits")).hold(intent) as held:
    tell([held.value, held.was_interrupted])
    sys.stdin.readline()
    held.finish()
"""


class Holder:
    """Another process that makes the same write."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", HOLDER, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self) -> int:
        self.process.communicate("go on\n", timeout=30)
        return self.process.returncode


def test_a_killed_process_leaves_its_key_to_the_next_one(tmp_path: Path) -> None:
    holder = Holder(tmp_path)
    key, _ = holder.hear()
    holder.process.kill()
    holder.process.communicate()

    with PendingWrites(tmp_path).hold(INTENT) as held:
        assert (held.value, held.was_interrupted) == (key, True)


def test_two_processes_with_the_same_write_take_turns(tmp_path: Path) -> None:
    with PendingWrites(tmp_path).hold(INTENT) as held:
        holder = Holder(tmp_path)
        assert holder.hear() == "waits"
        held.remember("the file is replaced while somebody waits for it")
        first = held.value
        held.finish()
    key, was_interrupted = holder.hear()
    assert holder.end() == 0
    assert not was_interrupted
    assert key != first
    assert PendingWrites(tmp_path).entries() == []


def test_a_process_that_waits_for_one_that_fails_goes_on_with_its_key(tmp_path: Path) -> None:
    with PendingWrites(tmp_path).hold(INTENT) as held:
        holder = Holder(tmp_path)
        assert holder.hear() == "waits"
    assert holder.hear() == [held.value, True]
    assert holder.end() == 0


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2027, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_key_that_the_service_may_have_forgotten_is_not_used_and_not_replaced(tmp_path: Path) -> None:
    clock = Clock()
    writes = PendingWrites(tmp_path, now=clock)
    with writes.hold(INTENT):
        pass
    clock.now += timedelta(hours=23)
    with writes.hold(INTENT) as held:
        assert held.was_interrupted
    clock.now += timedelta(seconds=1)
    with pytest.raises(StaleWriteError, match="could make it happen twice") as caught, writes.hold(INTENT):
        pass
    (left,) = writes.entries()
    assert caught.value.name == left.name
    assert left.idempotency_key == held.value

    assert writes.forget(left.name)
    with writes.hold(INTENT) as held:
        assert not held.was_interrupted


def test_a_write_that_is_harmless_twice_gets_a_new_key_then(tmp_path: Path) -> None:
    clock = Clock()
    writes = PendingWrites(tmp_path, now=clock)
    harmless = Intent("datasets.upload", "a file", "b" * 64, is_harmless_twice=True)
    with writes.hold(harmless) as old:
        old.remember("half-way")
    clock.now += timedelta(hours=24)
    with writes.hold(harmless) as new:
        assert new.value != old.value
        assert (new.note, new.was_interrupted) == ("", False)


def test_a_process_that_died_before_it_wrote_anything_leaves_nothing_in_doubt(tmp_path: Path) -> None:
    (tmp_path / f"{'a' * 32}.json").touch()
    assert PendingWrites(tmp_path).entries() == []
    with PendingWrites(tmp_path).hold(INTENT) as held:
        assert not held.was_interrupted


def test_a_process_that_died_while_it_wrote_leaves_no_litter(tmp_path: Path) -> None:
    (tmp_path / f"{'a' * 32}.new").write_text('{"name": "ha')
    with PendingWrites(tmp_path).hold(INTENT) as held:
        held.remember("more")
        held.finish()
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_told_and_left(tmp_path: Path) -> None:
    path = tmp_path / f"{'a' * 32}.json"
    path.write_text('{"name": ')
    with pytest.raises(ConfigurationError, match="damaged"), PendingWrites(tmp_path).hold(INTENT):
        pass
    assert path.exists()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be kept"), PendingWrites(tmp_path / "file").hold(INTENT):
        pass


@pytest.mark.parametrize("name", ["../secret", "", "a" * 31, "A" * 32])
def test_only_a_name_is_forgotten(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.json").touch()
    assert not PendingWrites(tmp_path / "pending").forget(name)
    assert (tmp_path / "secret.json").exists()
