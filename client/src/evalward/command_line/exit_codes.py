"""What the command's exit status says. A test holds docs/cli.md to it."""

from enum import IntEnum

from evalward.errors import (
    ConfigurationError,
    EvalwardError,
    OutcomeUnknownError,
    ProblemError,
    StaleWriteError,
    UnreachableError,
    WaitedInVainError,
)


class ExitCode(IntEnum):
    """Exit statuses."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    GATE_FAILED = 3
    UNHEALTHY = 4
    RUN_NOT_FINISHED = 5
    OUTCOME_UNKNOWN = 6
    UNREACHABLE = 7
    WAITED_IN_VAIN = 8
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


_OF_ERRORS: dict[type[EvalwardError], ExitCode] = {
    ConfigurationError: ExitCode.USAGE,
    OutcomeUnknownError: ExitCode.OUTCOME_UNKNOWN,
    StaleWriteError: ExitCode.OUTCOME_UNKNOWN,
    UnreachableError: ExitCode.UNREACHABLE,
    WaitedInVainError: ExitCode.WAITED_IN_VAIN,
}
_RUN_STATES = {
    "succeeded": ExitCode.DONE,
    "failed": ExitCode.GATE_FAILED,
    "error": ExitCode.RUN_NOT_FINISHED,
    "cancelled": ExitCode.RUN_NOT_FINISHED,
}


def of_error(error: EvalwardError) -> ExitCode:
    """Return the exit status of an error."""
    if isinstance(error, ProblemError) and error.code == "idempotency_uncertain":
        return ExitCode.OUTCOME_UNKNOWN
    return _OF_ERRORS.get(type(error), ExitCode.REFUSED)


def of_run(state: str) -> ExitCode:
    """Return the exit status of a run that ended in a state."""
    return _RUN_STATES[state]
