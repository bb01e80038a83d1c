"""What can go wrong between a caller and the API."""

from collections.abc import Mapping, Sequence
from typing import Any, cast


class EvalwardError(Exception):
    """Any error of this package; its text is a sentence for a person."""


class ConfigurationError(EvalwardError):
    """It is not known where the API is or with which key to call it, or a local file is not what it must be."""


class ProblemError(EvalwardError):
    """The API refused a request: an answer with a status of 400 or more.

    Attributes
    ----------
    status
        HTTP status.
    code
        Stable word for the situation, snake_case; `unknown` when the answer was no problem document.
    title, detail
        What happened, for a person; `detail` says what to do.
    errors
        The places that are wrong: each has `pointer` and `message`, or `row`, `field` and `message` for a dataset.
    request_id
        In the logs of the service too; empty when the answer had none.
    retry_after_seconds
        When a retry may help; None when the answer did not say.
    document
        The whole problem document.
    about
        Where the service explains the code; empty when it does not.
    """

    def __init__(self, document: Mapping[str, Any], retry_after_seconds: int | None = None, *, about: str = "") -> None:
        self.document = dict(document)
        self.status = int(document.get("status", 0))
        self.code = str(document.get("code", "unknown"))
        self.title = str(document.get("title", ""))
        self.detail = str(document.get("detail", ""))
        self.errors = cast("Sequence[dict[str, Any]]", document.get("errors", []))
        self.request_id = str(document.get("request_id", ""))
        self.retry_after_seconds = retry_after_seconds
        self.about = about
        super().__init__(": ".join(part for part in (self.title, self.detail) if part) or f"HTTP {self.status}")


class UnreachableError(EvalwardError):
    """The API did not answer; nothing was written."""


class OutcomeUnknownError(EvalwardError):
    """It is not known whether a write happened: no definite answer came.

    Sending the same request under the same Idempotency-Key makes it happen once, whatever became of this attempt.

    Attributes
    ----------
    operation
        Operation id.
    idempotency_key
        The key to repeat it with.
    """

    def __init__(self, operation: str, idempotency_key: str, reason: str) -> None:
        self.operation = operation
        self.idempotency_key = idempotency_key
        super().__init__(f"It is not known whether {operation} happened: {reason}")


class StaleWriteError(EvalwardError):
    """An interrupted write is too old for its key: the service has forgotten it, a repeat could happen twice.

    Attributes
    ----------
    name
        Of the pending write, as `PendingWrites.forget` takes it.
    """

    def __init__(self, name: str, operation: str, started_at: str) -> None:
        self.name = name
        super().__init__(
            f"The same {operation} was interrupted at {started_at}, and it is not known whether it happened. "
            "The service keeps answers for 24 hours, so repeating it now could make it happen twice."
        )


class UploadRefusedError(EvalwardError):
    """The object store did not take the file."""


class WaitedInVainError(EvalwardError):
    """What was waited for did not end in time; it goes on."""
