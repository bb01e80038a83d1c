"""What can go wrong for a caller, one class a situation.

Every error that may leave a use case derives from `ProblemError` and names its status, its stable code and its title:
this module is the one table that maps errors to HTTP. A detail says what happened and what to do about it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self


@dataclass(frozen=True, slots=True)
class Fault:
    """One place in a request that is wrong.

    Attributes
    ----------
    pointer
        JSON Pointer (RFC 6901) into the body; for a query parameter or a path parameter `/` and its name.
    message
        What is wrong there and what would be right.
    """

    pointer: str
    message: str


class ProblemError(Exception):
    """An answer other than success: becomes `application/problem+json` (RFC 9457).

    Parameters
    ----------
    detail
        What happened and what to do, for a person. Never a secret, never a payload.
    errors
        The places that are wrong, each a JSON object.
    retry_after_seconds
        When a retry may help, in whole seconds (>= 1).
    extra
        Further members of the problem object.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    title: ClassVar[str] = "Something went wrong here"

    def __init__(
        self,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after_seconds: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)
        self.retry_after_seconds = retry_after_seconds
        self.extra = dict(extra or {})


class InvalidRequestError(ProblemError):
    """The request is malformed or breaks a rule; `errors` point at the places."""

    status, code, title = 400, "invalid_request", "The request is not valid"

    @classmethod
    def at(cls, faults: Sequence[Fault]) -> Self:
        """Make the error from the places that are wrong (at least one)."""
        where = ", ".join(sorted({fault.pointer or "the body" for fault in faults}))
        return cls(
            f"{len(faults)} thing{'s' if len(faults) > 1 else ''} to correct at {where}.",
            errors=[{"pointer": fault.pointer, "message": fault.message} for fault in faults],
        )


class InvalidIdempotencyKeyError(ProblemError):
    """The Idempotency-Key header cannot be a key."""

    status, code, title = 400, "invalid_idempotency_key", "The Idempotency-Key header is not valid"


class InvalidCursorError(ProblemError):
    """The list cursor is none of ours."""

    status, code, title = 400, "invalid_cursor", "The cursor is not valid"


class UnauthenticatedError(ProblemError):
    """No key, an unknown one or an expired one."""

    status, code, title = 401, "unauthenticated", "A valid API key is needed"


class PermissionDeniedError(ProblemError):
    """The key is valid but lacks the permission."""

    status, code, title = 403, "permission_denied", "The key lacks a permission"


class NotFoundError(ProblemError):
    """Nothing there, or nothing that the caller may see."""

    status, code, title = 404, "not_found", "Not found"


class MethodNotAllowedError(ProblemError):
    """The path exists, the method does not."""

    status, code, title = 405, "method_not_allowed", "Method not allowed"


class ProjectExistsError(ProblemError):
    """A project of that id exists."""

    status, code, title = 409, "project_exists", "The project exists already"


class WebhookExistsError(ProblemError):
    """The project has a webhook of that id."""

    status, code, title = 409, "webhook_exists", "The webhook exists already"


class IdempotencyInProgressError(ProblemError):
    """The same key is being worked on by another call."""

    status, code, title = 409, "idempotency_in_progress", "The same write is in progress"


class IdempotencyUncertainError(ProblemError):
    """A claim without an outcome whose owner's deadline has passed."""

    status, code, title = 409, "idempotency_uncertain", "It is not known whether the write happened"


class OutcomeNotStoredError(ProblemError):
    """The write happened, its answer was too large to keep."""

    status, code, title = 409, "idempotency_outcome_not_stored", "The write happened; its answer was not kept"


class ClaimInProgressError(ProblemError):
    """The claim's owner may still be at it."""

    status, code, title = 409, "claim_in_progress", "The write may still be going on"


class ClaimResolvedError(ProblemError):
    """The claim has an outcome."""

    status, code, title = 409, "claim_resolved", "The write has an outcome already"


class UploadBusyError(ProblemError):
    """Another call is finalizing the same upload."""

    status, code, title = 409, "upload_busy", "The upload is being finalized"


class UploadMissingError(ProblemError):
    """The file of an upload is not there yet."""

    status, code, title = 409, "upload_missing", "The file was not uploaded"


class UploadMismatchError(ProblemError):
    """The uploaded file is another one than was announced."""

    status, code, title = 409, "upload_mismatch", "The uploaded file is not the one announced"


class UploadEndedError(ProblemError):
    """The upload was refused or released."""

    status, code, title = 409, "upload_ended", "The upload has ended"


class PayloadTooLargeError(ProblemError):
    """The body is over the limit of its route."""

    status, code, title = 413, "payload_too_large", "The body is too large"


class UnsupportedMediaTypeError(ProblemError):
    """A JSON route was given something else."""

    status, code, title = 415, "unsupported_media_type", "The content type must be application/json"


class IdempotencyKeyReusedError(ProblemError):
    """The key was used for another request."""

    status, code, title = 422, "idempotency_key_reused", "The Idempotency-Key was used for another request"


class DatasetRefusedError(ProblemError):
    """The file is no valid dataset; `errors` name rows and fields."""

    status, code, title = 422, "dataset_invalid", "The file is not a valid dataset"


class IdempotencyCapacityError(ProblemError):
    """The scope holds as many idempotency records as it may."""

    status, code, title = 429, "idempotency_capacity", "No room for another Idempotency-Key"


class RunQuotaExceededError(ProblemError):
    """The project stores as many runs as it may."""

    status, code, title = 429, "run_quota_exceeded", "The project stores as many runs as it may"


class DatasetQuotaExceededError(ProblemError):
    """The project's datasets and open uploads have as many bytes as they may."""

    status, code, title = 429, "dataset_quota_exceeded", "No room for another dataset"


class ContentBeingRemovedError(ProblemError):
    """The objects of the same content are being removed."""

    status, code, title = 503, "content_being_removed", "The same content is being removed"


class ConversionBusyError(ProblemError):
    """Both conversion slots are taken."""

    status, code, title = 503, "conversion_busy", "No conversion slot is free"


class DatabaseUnavailableError(ProblemError):
    """The database cannot be reached or did not answer in time."""

    status, code, title = 503, "database_unavailable", "The database cannot be reached"


class OutcomeUnknownError(ProblemError):
    """The connection was lost while the write was being committed."""

    status, code, title = 503, "outcome_unknown", "It is not known whether the write happened"


class AnswerTooLargeError(ProblemError):
    """The answer is larger than Lambda carries."""

    status, code, title = 500, "answer_too_large", "The answer is too large to be sent"


class TooLittleTimeError(ProblemError):
    """The invocation ends before the operation could."""

    status, code, title = 503, "too_little_time", "Too little time is left"


class StorageUnavailableError(ProblemError):
    """The object store cannot be reached or refused us."""

    status, code, title = 503, "storage_unavailable", "The object store cannot be reached"


class RunNotFinishedError(ProblemError):
    """The run has no report yet."""

    status, code, title = 409, "run_not_finished", "The run has not finished"


class RunWithoutReportError(ProblemError):
    """The run ended without a report."""

    status, code, title = 409, "run_without_report", "The run ended without a report"


class RunActiveError(ProblemError):
    """The run has not ended, or somebody is still at work on it."""

    status, code, title = 409, "run_active", "The run is active"


class RunAlreadyEndedError(ProblemError):
    """The run ended in another way before it could be cancelled."""

    status, code, title = 409, "run_ended", "The run has ended already"


class RunNotResumableError(ProblemError):
    """The run is in a state, or ended for a reason, that resuming does not mend."""

    status, code, title = 409, "run_not_resumable", "The run cannot be resumed"


class ObjectTooLargeError(ProblemError):
    """A file to import is over the limit of a dataset."""

    status, code, title = 413, "object_too_large", "The file is too large"


class ObjectMissingError(ProblemError):
    """A file to import, or the object of a dataset, is not there."""

    status, code, title = 404, "object_not_found", "The file is not there"


class ImportRefusedError(ProblemError):
    """An incoming object cannot become a dataset: its place or its name is not right."""

    status, code, title = 422, "import_refused", "The object cannot be imported from there"


class AttemptsExhaustedError(ProblemError):
    """Work was tried as often as it may be and never ended."""

    status, code, title = 500, "attempts_exhausted", "The work was tried too often"


class SourceExistsError(ProblemError):
    """A source of that id exists, or did."""

    status, code, title = 409, "source_exists", "The source exists already"


class WindowNotOpenError(ProblemError):
    """The window of a source is decided."""

    status, code, title = 409, "window_not_open", "The window is decided already"
