"""Idempotency keys of writes that have not ended: kept in files, so that an interrupted command can be repeated.

Before a write is sent its key is on the disk. When a definite answer has come the file is removed. A process that is
killed in between leaves the file, and the next process that is about to send the same request finds the key in it and
uses it again: whatever became of the first attempt, the write takes effect once.

A file is named after a digest of the request and where it goes; it holds no payload and no secret. The process at work
holds a lock on it (flock, released by the kernel when the process dies), so two processes that want the same write take
turns. Files are replaced whole, and flushed to the disk before they count.
"""

import contextlib
import json
import os
import re
import secrets
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from evalward.errors import ConfigurationError, StaleWriteError

try:
    import fcntl
except ImportError as error:  # pragma: no cover - not on this system
    raise ImportError("evalward runs on Linux and macOS; on Windows, in WSL.") from error

KEPT_HOURS = 23
"""How long a key is used again. The service keeps answers for 24 hours; the clocks may differ by the rest."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A write that is about to be sent.

    Attributes
    ----------
    operation
        Operation id.
    target
        In words, for a person: the path, or the file and the project.
    digest
        SHA-256 in hex over all that makes it this write: where it goes, as whom, what.
    is_harmless_twice
        Whether a second time under another key changes nothing: then a key that is too old is replaced.
    """

    operation: str
    target: str
    digest: str
    is_harmless_twice: bool = False


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """A write whose end is not known.

    Attributes
    ----------
    name
        Of its file.
    operation, target
        As of its intent.
    idempotency_key
        The key it was sent under.
    started_at
        When, RFC 3339 UTC, on this machine's clock.
    note
        What a write of several steps has to remember; empty for others.
    """

    name: str
    operation: str
    target: str
    idempotency_key: str
    started_at: str
    note: str = ""


class HeldKey(Protocol):
    """The key of one write, while the write is being made."""

    @property
    def value(self) -> str:
        """The Idempotency-Key."""
        ...

    @property
    def note(self) -> str:
        """What was remembered; empty at first."""
        ...

    @property
    def was_interrupted(self) -> bool:
        """Whether an earlier attempt under this key has no known outcome."""
        ...

    def remember(self, note: str) -> None:
        """Keep a note; when this returns it is on the disk."""
        ...

    def finish(self) -> None:
        """Say that the outcome is known: the key is not used again."""
        ...


class KeyKeeper(Protocol):
    """Where the keys of writes come from."""

    def hold(self, intent: Intent) -> contextlib.AbstractContextManager[HeldKey]:
        """Give the key for a write while the block runs."""
        ...


@dataclass(slots=True)
class GivenKey:
    """A key that somebody else keeps: the caller's own, or one for this process only."""

    value: str
    note: str = ""
    was_interrupted: bool = False

    def remember(self, note: str) -> None:
        """Keep a note for this process."""
        self.note = note

    def finish(self) -> None:
        """Do nothing: there is no file."""


def make_key() -> str:
    """Return a new Idempotency-Key of 128 random bits."""
    return f"evalward-{secrets.token_hex(16)}"


class FreshKeys:
    """Gives a new key to each write; nothing outlives the process."""

    @contextlib.contextmanager
    def hold(self, intent: Intent) -> Generator[HeldKey]:
        """Give a new key."""
        del intent
        yield GivenKey(make_key())


class PendingWrites:
    """Keys in files.

    Parameters
    ----------
    folder
        Where; made when needed, for its owner only.
    now
        Tells the time.
    say
        Receives one sentence when another process has to be waited for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._folder = folder
        self._now = now
        self._say = say

    @contextlib.contextmanager
    def hold(self, intent: Intent) -> Generator[HeldKey]:
        """Give the key for a write: the one of an interrupted attempt at the same write, else a new one.

        Waits while another process makes the same write.

        Raises
        ------
        StaleWriteError
            An interrupted attempt is too old for its key.
        ConfigurationError
            The file cannot be written or read.
        """
        path = self._folder / f"{intent.digest[:32]}.json"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = self._take(path, intent)
        except OSError as error:
            raise ConfigurationError(
                f"Keys of writes cannot be kept in {self._folder}: {error.strerror}. Set XDG_STATE_HOME to a folder "
                "that can be written, or give an --idempotency-key of your own."
            ) from error
        try:
            yield held
        finally:
            held.release()

    def entries(self) -> list[PendingWrite]:
        """Return the writes without a known outcome, oldest first."""
        found = [write for path in self._folder.glob("*.json") if (write := _read(path)) is not None]
        return sorted(found, key=lambda write: (write.started_at, write.name))

    def forget(self, name: str) -> bool:
        """Drop a key: the same request will be a new write. Returns whether there was one of that name."""
        if not re.fullmatch(r"[0-9a-f]{32}", name):
            return False
        path = self._folder / f"{name}.json"
        was_there = path.exists()
        path.unlink(missing_ok=True)
        return was_there

    def _take(self, path: Path, intent: Intent) -> "_FileKey":
        lock = self._lock(path)
        try:
            write = _read(path)
            if write is not None and self._is_stale(write):
                if not intent.is_harmless_twice:
                    raise StaleWriteError(write.name, intent.operation, write.started_at)
                write = None
            return _FileKey(path, write or self._begin(path.stem, intent), is_new=write is None, lock=lock)
        except BaseException:
            _remove_if_empty(path)
            os.close(lock)
            raise

    def _lock(self, path: Path) -> int:
        """Lock the file that stands under the path, which may be replaced while we wait."""
        is_told = False
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not is_told:
                    self._say("The same write is being made by another process; waiting for its end.")
                    is_told = True
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            os.close(descriptor)

    def _begin(self, name: str, intent: Intent) -> PendingWrite:
        started_at = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        return PendingWrite(name, intent.operation, intent.target, make_key(), started_at)

    def _is_stale(self, write: PendingWrite) -> bool:
        return self._now() - datetime.fromisoformat(write.started_at) > timedelta(hours=KEPT_HOURS)


class _FileKey:
    def __init__(self, path: Path, write: PendingWrite, *, is_new: bool, lock: int) -> None:
        self._path = path
        self._write = write
        self._descriptors = [lock]
        self._is_finished = False
        self.was_interrupted = not is_new
        if is_new:
            self._save()

    @property
    def value(self) -> str:
        return self._write.idempotency_key

    @property
    def note(self) -> str:
        return self._write.note

    def remember(self, note: str) -> None:
        self._write = replace(self._write, note=note)
        self._save()

    def finish(self) -> None:
        if not self._is_finished:
            self._path.unlink(missing_ok=True)
            self._is_finished = True

    def release(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _save(self) -> None:
        # The new file is locked before it takes the place of the old one: nobody finds it without an owner. Only the
        # owner of the old one comes here, so one left by a killed process is in nobody's hands.
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, json.dumps(asdict(self._write)).encode())
            os.fsync(descriptor)
            new.replace(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptors.append(descriptor)
        self._is_finished = False
        _flush_folder(self._path.parent)


def _read(path: Path) -> PendingWrite | None:
    """Return what a file says; None for an empty one, whose process died before it sent anything."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    if not text:
        return None
    try:
        return PendingWrite(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is damaged. It holds the key of a write that may have happened: look, then remove it."
        ) from error


def _remove_if_empty(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
