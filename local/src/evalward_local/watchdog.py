"""Ends everything a stack started when the stack is gone, however it went.

Run as a program of its own, standard library only: it reads lines from standard input, which the stack holds open. When
the input ends, because the stack closed it or was killed, it kills what the stack started and removes its folders.

Lines: `process PID` (kill its process group), `postmaster PID` (immediate shutdown, then kill), `gone PID` (forget it),
`remove PATH` (delete the file or folder at the end).
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_POSTMASTER_PATIENCE_SECONDS = 5.0


def _carriers(marker: bytes) -> Iterator[int]:
    """Yield the processes that inherited the stack's marker, where the system shows environments."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and marker in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _stop_postmaster(pid: int) -> None:
    """Shut the server down at once: SIGKILL alone would leave its backends and shared memory to themselves."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGQUIT)
        give_up_at = time.monotonic() + _POSTMASTER_PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            os.kill(pid, 0)
            # A zombie answers signals; when the stack is alive it reaps, else the system does.
            time.sleep(0.02)
    _kill(pid)


def watch(marker: str) -> None:
    """Wait for the end of standard input, then end and remove what its lines named.

    Parameters
    ----------
    marker
        `NAME=value` in the environment of everything the stack started: finds grandchildren as well.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    processes: set[int] = set()
    postmasters: set[int] = set()
    paths: list[Path] = []
    for line in sys.stdin:
        kind, _, value = line.rstrip("\n").partition(" ")
        if kind == "process":
            processes.add(int(value))
        elif kind == "gone":
            processes.discard(int(value))
            postmasters.discard(int(value))
        elif kind == "postmaster":
            postmasters.add(int(value))
        elif kind == "remove":
            paths.append(Path(value))
    for pid in processes:
        _kill_group(pid)
    for pid in postmasters:
        _stop_postmaster(pid)
    for pid in _carriers(marker.encode()):
        _kill(pid)
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    watch(sys.argv[1])
