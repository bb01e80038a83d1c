"""Starts child processes that never outlive the stack."""

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from evalward_local import watchdog

_MARKER = "EVALWARD_LOCAL_STACK"


class Children:
    """Starts processes and tells a watchdog of each, so that a killed stack leaves none behind.

    A parent-death signal would be simpler, but it is lost by grandchildren and by a change of user, and setting it
    needs code between fork and exec, which is unsafe in a process with threads.
    """

    def __init__(self) -> None:
        # Processes are started and forgotten in threads as well.
        self._lock = threading.Lock()
        self._token = secrets.token_hex(8)
        self._watchdog = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(Path(watchdog.__file__)), f"{_MARKER}={self._token}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: IO[bytes] | int = subprocess.DEVNULL,
        kind: str = "process",
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a process in a session and process group of its own.

        Parameters
        ----------
        command
            Program and arguments.
        environment
            The whole environment; nothing is inherited.
        output
            Where standard output and standard error go.
        kind
            How the watchdog ends it: `process` or `postmaster`.
        options
            Passed to `subprocess.Popen`.

        Returns
        -------
        subprocess.Popen
            The running process.

        Raises
        ------
        OSError
            When the program cannot be started.
        """
        started: Any = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, _MARKER: self._token},
            start_new_session=True,
            **options,
        )
        process: subprocess.Popen[bytes] = started
        self._tell(f"{kind} {process.pid}")
        return process

    def forget(self, pid: int) -> None:
        """Tell the watchdog that a process is gone: its number may soon belong to somebody else."""
        self._tell(f"gone {pid}")

    def remove_at_end(self, path: Path) -> None:
        """Have the watchdog delete a file or folder when the stack is gone."""
        self._tell(f"remove {path}")

    def end_all(self) -> None:
        """Kill what still runs, remove what was named, and wait until that is done."""
        with self._lock:
            if self._watchdog.stdin is not None:
                self._watchdog.stdin.close()
        self._watchdog.wait()

    def _tell(self, line: str) -> None:
        stdin = self._watchdog.stdin
        with self._lock:
            if stdin is not None and not stdin.closed:
                stdin.write(f"{line}\n")
                stdin.flush()


def plain_environment() -> dict[str, str]:
    """Return the few variables a child needs whatever it is; none of the caller's credentials or settings."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
