"""Errors as sentences: what happened, where, and what to do next."""

import json
from collections.abc import Mapping
from typing import Any

from evalward.command_line.exit_codes import of_error
from evalward.command_line.output import OUTPUT, say
from evalward.errors import (
    EvalwardError,
    OutcomeUnknownError,
    ProblemError,
    StaleWriteError,
    UnreachableError,
    UploadRefusedError,
    WaitedInVainError,
)

_SHOWN_ERRORS = 20
_ADVICE = {
    "unauthenticated": "The key is unknown or has expired: `evalward login URL` with another one.",
    "permission_denied": "`evalward whoami` shows what this key may do; who manages keys can make one that may.",
    "not_found": "`evalward projects list` shows which projects this key sees, other lists what else there is.",
    "run_not_finished": "`evalward runs wait RUN` waits for its end.",
    "run_active": "Wait for its end, or `evalward runs cancel RUN`.",
    "dataset_invalid": "Mend the file and publish it again; `--validate-only` checks it and publishes nothing.",
    "idempotency_outcome_not_stored": "It happened, once. Its answer was too large to keep: read what it made.",
    "idempotency_uncertain": (
        "Look whether it happened. `evalward claims list` has the claim; `evalward claims resolve CLAIM happened` or "
        "`… did_not_happen` settles it. After did_not_happen the same command makes it happen."
    ),
    "idempotency_capacity": "Too many keyed writes in a day; the oldest make room as they become 24 hours old.",
    "idempotency_key_reused": "Give this write another --idempotency-key: this one belongs to another write.",
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
    if advice := advise(error):
        say(advice)
    if isinstance(error, ProblemError) and error.request_id:
        say(f"request {error.request_id}")


def describe(error: EvalwardError) -> dict[str, Any]:
    """Return an error as an object: the problem document if there is one, always `detail`, `exit_code`, `advice`."""
    members: dict[str, Any] = {"detail": str(error), "exit_code": int(of_error(error)), "advice": advise(error)}
    if isinstance(error, ProblemError):
        # A gateway's own answer has no detail.
        return {**error.document, **members, "detail": error.detail or str(error)}
    if isinstance(error, OutcomeUnknownError):
        members |= {"operation": error.operation, "idempotency_key": error.idempotency_key}
    if isinstance(error, StaleWriteError):
        members |= {"pending": error.name}
    return {"code": _code(error), **members}


def describe_place(fault: Mapping[str, Any]) -> str:
    """Return where a fault is: in a file, or the place in the body of a request."""
    if "row" in fault:
        # A fault of the whole file has no row.
        row = "the file" if fault["row"] is None else f"row {fault['row']}"
        return " ".join(part for part in (row, fault.get("field")) if part)
    if "line" in fault:
        # Settings that were given as options stand in no line.
        line = "the settings" if fault["line"] is None else f"line {fault['line']}"
        return " ".join(part for part in (line, fault.get("pointer")) if part)
    return str(fault.get("pointer") or "the body")


def advise(error: EvalwardError) -> str:
    """Return what to do next; empty when the error's own sentence says it."""
    if notes := getattr(error, "__notes__", None):
        return " ".join(notes)
    match error:
        case ProblemError():
            return _advise_on_problem(error)
        case OutcomeUnknownError():
            return "Send the same command again: it goes on with the same key, and the write happens once."
        case StaleWriteError():
            return (
                "Look whether it happened. If it did, you are done: "
                f"`evalward pending forget {error.name}`. If not, forget it and send the command again."
            )
        case UnreachableError():
            return (
                "Nothing was written. Look at the address ($EVALWARD_API_URL, else that of `evalward login`), the "
                "network, the proxy ($HTTPS_PROXY, $NO_PROXY) and the certificates ($SSL_CERT_FILE), then send the "
                "same command again."
            )
        case UploadRefusedError():
            return "Nothing was published. Send the same command again; refused again, show this to who runs the store."
        case WaitedInVainError():
            return "`evalward runs wait RUN` goes on waiting, with --wait-seconds longer."
        case _:
            return ""


def _advise_on_problem(error: ProblemError) -> str:
    advice = _ADVICE.get(error.code, "")
    if error.retry_after_seconds is not None and error.status in (429, 503):
        return f"{advice} Try again in {error.retry_after_seconds} s.".strip()
    if advice:
        return advice
    if error.status >= 500 or error.status == 429:
        return "Send the same command again a little later; `evalward doctor` looks at the service."
    if error.errors:
        return "Mend what is named, then send the command again."
    return f"{error.about} says what it means." if error.about else "Look whether the address is that of the API."


def _code(error: EvalwardError) -> str:
    name = type(error).__name__.removesuffix("Error")
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
