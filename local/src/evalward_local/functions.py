"""What the stack knows of a Lambda function before it runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REQUEST_LIMIT_BYTES = 6 * 1024 * 1024
# Lambda lets a response be a little larger than a request.
RESPONSE_LIMIT_BYTES = 6_291_556


@dataclass(frozen=True)
class CodeLocation:
    """How a function's code is run.

    Attributes
    ----------
    folder
        The working folder, Lambda's task root.
    interpreter
        The Python command, options included.
    python_path
        Folders before the interpreter's own, in order: task root, layers, the runtime's packages.
    """

    folder: Path
    interpreter: tuple[str, ...]
    python_path: tuple[Path, ...]


@dataclass(frozen=True)
class FunctionSettings:
    """A function as the template has it.

    Attributes
    ----------
    logical_id, name, arn
        How the template, Lambda and everyone else call it.
    handler
        `module.function`.
    timeout_seconds
        An invocation that takes longer is killed.
    memory_megabytes
        Told to the function, not enforced.
    variables
        Its environment variables.
    code
        Where its code is.
    concurrency
        How many invocations run at the same time, each in an environment of its own.
    """

    logical_id: str
    name: str
    arn: str
    handler: str
    timeout_seconds: float
    memory_megabytes: int
    variables: Mapping[str, str]
    code: CodeLocation
    concurrency: int


class TooManyRequestsError(Exception):
    """Every environment the function may have is busy."""


class RequestTooLargeError(Exception):
    """The event is larger than Lambda accepts."""
