"""Errors as sentences: what happened, where, and what to do."""

import json
from collections.abc import Mapping
from typing import Any

from evalward.command_line.exit_codes import of_error
from evalward.command_line.output import OUTPUT, say
from evalward.errors import EvalwardError, OutcomeUnknownError, ProblemError, StaleWriteError

_SHOWN_ERRORS = 20
_ADVICE = {
    "unauthenticated": "The key is unknown or has expired: `evalward login URL` with another one.",
    "permission_denied": "`evalward whoami` shows what this key may do.",
    "not_found": "`evalward whoami` shows which projects this key sees.",
    "run_not_finished": "`evalward runs wait RUN` waits for its end.",
    "run_active": "Wait for its end, or `evalward runs cancel RUN`.",
    "dataset_invalid": "Mend the file and publish it again; `--validate-only` checks it and publishes nothing.",
    "idempotency_outcome_not_stored": "It happened, once. Its answer was too large to keep: read what it made.",
    "idempotency_uncertain": (
        "Look whether it happened. `evalward claims list` has the claim; `evalward claims resolve CLAIM happened` or "
        "`… did_not_happen` settles it. After did_not_happen the same command makes it happen."
    ),
    "idempotency_capacity": "Too many keyed writes in a day; the oldest make room as they become 24 hours old.",
}


def print_error(error: EvalwardError) -> None:
    """Print an error on the standard error: as JSON if that was asked for, else as sentences."""
    if OUTPUT.is_json:
        say(json.dumps({"error": describe(error)}, ensure_ascii=False))
        return
    say(str(error))
    if isinstance(error, ProblemError):
        for fault in error.errors[:_SHOWN_ERRORS]:
            say(f"  {describe_place(fault)}: {fault.get('message', '')}")
        if len(error.errors) > _SHOWN_ERRORS:
            say(f"  … and {len(error.errors) - _SHOWN_ERRORS} more")
    if advice := _advise(error):
        say(advice)
    if isinstance(error, ProblemError) and error.request_id:
        say(f"request {error.request_id}")


def describe(error: EvalwardError) -> dict[str, Any]:
    """Return an error as an object: the problem document if there is one, and always `detail` and `exit_code`."""
    members: dict[str, Any] = {"detail": str(error), "exit_code": int(of_error(error))}
    if isinstance(error, ProblemError):
        # A gateway's own answer has no detail.
        return {**error.document, **members, "detail": error.detail or str(error)}
    if isinstance(error, OutcomeUnknownError):
        members |= {"operation": error.operation, "idempotency_key": error.idempotency_key}
    if isinstance(error, StaleWriteError):
        members |= {"pending": error.name}
    return {"code": _code(error), **members}


def describe_place(fault: Mapping[str, Any]) -> str:
    """Return where a fault is: the row and field of a file, or the place in the body of a request."""
    if "row" in fault:
        # A fault of the whole file has no row.
        row = "the file" if fault["row"] is None else f"row {fault['row']}"
        return " ".join(part for part in (row, fault.get("field")) if part)
    return str(fault.get("pointer") or "the body")


def _advise(error: EvalwardError) -> str:
    match error:
        case ProblemError():
            advice = _ADVICE.get(error.code, "")
            if error.retry_after_seconds is not None and error.status in (429, 503):
                advice = f"{advice} Try again in {error.retry_after_seconds} s.".strip()
            return advice
        case OutcomeUnknownError():
            return "Send the same command again: it goes on with the same key, and the write happens once."
        case StaleWriteError():
            return (
                "Look whether it happened. If it did, you are done: "
                f"`evalward pending forget {error.name}`. If not, forget it and send the command again."
            )
        case _:
            return ""


def _code(error: EvalwardError) -> str:
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
