"""A running stack for tests and for the demonstration."""

import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from evalward_local.stack import StackStartError
from evalward_local.stack_file import StackFile, read_stack_file

_START_PATIENCE_SECONDS = 120.0
_STOP_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.02
# The repository: this package is installed from its source tree.
PROJECT_FOLDER = Path(__file__).resolve().parents[3]


@contextmanager
def running_stack(
    state_folder: Path,
    *,
    template: Path | None = None,
    environments: int = 8,
    api_port: int = 0,
    is_built: bool = False,
    is_ephemeral: bool = True,
    keeps_objects: bool = False,
    parameters: Mapping[str, str] | None = None,
) -> Generator[StackFile]:
    """Run a stack in a process of its own while the block runs.

    The stack ends with the block, and also when the program that opened it is killed.

    Parameters
    ----------
    state_folder
        Receives stack.json, the logs and what the stack prints (`stack.log`).
    template
        Default: the project's `template.yaml`.
    environments, api_port, is_built, is_ephemeral, keeps_objects, parameters
        As the options of `evalward-local up`.

    Yields
    ------
    StackFile
        The parsed stack.json.

    Raises
    ------
    StackStartError
        When it ends or takes two minutes before it is ready; the message is what it printed last.
    """
    state_folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "evalward_local", "up", "--state", str(state_folder), "--until-input-ends"]
    command += ["--template", str(template or PROJECT_FOLDER / "template.yaml")]
    command += ["--environments", str(environments), "--api-port", str(api_port)]
    command += ["--built"] if is_built else []
    command += ["--ephemeral"] if is_ephemeral else []
    command += ["--s3", "weed"] if keeps_objects else []
    for name, value in (parameters or {}).items():
        command += ["--parameter", f"{name}={value}"]
    output = state_folder / "stack.log"
    with output.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    with process:
        try:
            yield _wait_for_stack_file(state_folder, process, output)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for_stack_file(state_folder: Path, process: subprocess.Popen[bytes], output: Path) -> StackFile:
    give_up_at = time.monotonic() + _START_PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        stack = read_stack_file(state_folder)
        if stack is not None and stack.pid == process.pid:
            return stack
        time.sleep(_POLL_SECONDS)
    raise StackStartError(f"the stack did not start:\n{output.read_text(errors='replace')[-4000:]}")
