"""Imports: files under `datasets/incoming/<project>/` on their way to a dataset. One job row each."""

import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ConfigDict, Field

from coordination.database import Transaction
from coordination.datasets import Dataset, Validation
from coordination.events import emit_import_failed
from coordination.failures import record_failure
from coordination.models import Instant, ResponseModel
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

_QUERIES = load_queries("imports")

INCOMING_PREFIX = "datasets/incoming/"
_PROJECT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
# Longer than any sequencer met so far (16 or 18 hexadecimal digits).
_SEQUENCER_CHARACTERS = 32
type FileFormat = Literal["jsonl", "parquet"]
type NulRule = Literal["refuse", "replace"]

type FieldMapping = Annotated[
    dict[str, str],
    Field(
        max_length=8,
        description="canonical field -> JSON Pointer or column, e.g. {'input': '/request/text'}; wins over aliases",
    ),
]


class ImportOrder(BaseModel):
    """What to import, as the job's payload holds it.

    Attributes
    ----------
    bucket, key, version_id
        The object; with a version id exactly that version.
    name, format
        What it becomes and how it is read.
    mapping, nul
        As in an upload.
    validate_only
        Whether to check and count only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    bucket: str
    key: str
    version_id: str | None = None
    name: str
    format: FileFormat
    mapping: dict[str, str] | None = None
    nul: NulRule = "refuse"
    validate_only: bool = False

    @property
    def uri(self) -> str:
        """The object's address."""
        return f"s3://{self.bucket}/{self.key}"


class ImportFailure(ResponseModel):
    """Why an import failed."""

    code: Annotated[str, Field(description="stable, as in a problem document")]
    detail: str
    errors: Annotated[list[dict[str, Any]], Field(description="rows and fields, as an upload would answer")]


class Import(ResponseModel):
    """One import."""

    id: UUID
    project: str
    state: Annotated[str, Field(description="queued, running, succeeded or failed")]
    name: str
    format: str
    uri: str
    attempts: int
    dataset: Dataset | None
    validation: Annotated[Validation | None, Field(description="what the file would become, with validate_only")]
    error: ImportFailure | None
    created_at: Instant
    created_by: str
    started_at: Instant | None
    completed_at: Instant | None


def insert_import(
    transaction: Transaction,
    *,
    order: ImportOrder,
    dedupe_key: str,
    principal: str,
    cause: tuple[Literal["route", "incoming_prefix"], str],
    failure: ImportFailure | None = None,
) -> Import | None:
    """Write the job of an import and its wake-up, and note it as the latest job of its trigger.

    Parameters
    ----------
    transaction
        Of the project.
    order
        What to import.
    dedupe_key
        Tells the same cause delivered twice.
    cause
        Kind and name of the trigger: the route's operation id, or the prefix in the bucket.
    failure
        Why it cannot be imported, when that is known already: the job is written as failed, and that is an event.

    Returns
    -------
    Import or None
        None when the cause was seen before.
    """
    row = transaction.fetch_one(
        _QUERIES["insert_import"],
        {
            "tenant": transaction.tenant,
            "dedupe_key": dedupe_key,
            "payload": Jsonb(order.model_dump(mode="json")),
            "created_by": principal,
            "cause_kind": cause[0],
            "cause_name": cause[1],
            "error": Jsonb(failure.model_dump(mode="json")) if failure else None,
        },
    )
    if row is None:
        return None
    if failure is None:
        transaction.wake(WakeUp("conversion", "import", transaction.tenant, str(row["id"])))
    else:
        record_failure(transaction, "import", order.name, f"{failure.code}: {failure.detail}")
        emit_import_failed(transaction, row["id"], name=order.name, uri=order.uri, error_code=failure.code)
    return to_import(row)


def to_import(row: Mapping[str, Any]) -> Import:
    """Make an import of its row."""
    payload, result = row["payload"], row["result"]
    is_validation = bool(result) and payload.get("validate_only", False)
    return Import(
        id=row["id"],
        project=row["tenant_id"],
        state=row["state"],
        name=payload["name"],
        format=payload["format"],
        uri=f"s3://{payload['bucket']}/{payload['key']}",
        attempts=row["attempts"],
        dataset=Dataset.model_validate(result) if result and not is_validation else None,
        validation=Validation.model_validate(result) if is_validation else None,
        error=ImportFailure.model_validate(row["error"]) if row["error"] else None,
        created_at=row["created_at"],
        created_by=row["created_by"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
    )


def split_incoming_key(key: str) -> tuple[str, str] | None:
    """Split a decoded key into project and the path below `datasets/incoming/<project>/`.

    Returns None when the key is not below that prefix, or holds `.`, `..`, empty or encoded segments.
    """
    place = find_incoming_project(key)
    if place is None:
        return None
    segments = place[1].split("/")
    is_clean = all(segment not in ("", ".", "..") for segment in segments)
    return place if is_clean and "\\" not in key and "%" not in key else None


def find_incoming_project(key: str) -> tuple[str, str] | None:
    """Split a decoded key of an object that exists into project and the path below `datasets/incoming/<project>/`.

    Returns None when the key is that of a folder, lies below no project's prefix, or holds a NUL character, which no
    row can.
    """
    if not key.startswith(INCOMING_PREFIX) or key.endswith("/") or "\x00" in key:
        return None
    project, slash, rest = key.removeprefix(INCOMING_PREFIX).partition("/")
    return (project, rest) if slash and _PROJECT.fullmatch(project) else None


def dedupe_key_of_event(bucket: str, key: str, sequencer: str) -> str:
    """Return what tells the same event twice; keys of one object sort in the order in which it was written.

    Source of the rule: "Event message structure" in the Amazon S3 User Guide: sequencers of one key are compared as
    text, the shorter one filled with zeros on the right.
    """
    place = hashlib.sha256(f"{bucket}\0{key}".encode()).hexdigest()
    return f"s3 {place} {sequencer.upper().ljust(_SEQUENCER_CHARACTERS, '0')}"


def find_newer_import(transaction: Transaction, dedupe_key: str) -> bool:
    """Tell whether a later write to the same object has been imported already."""
    place, _, _ = dedupe_key.rpartition(" ")
    params = {"tenant": transaction.tenant, "dedupe_key": dedupe_key, "place": f"{place} "}
    return transaction.fetch_one(_QUERIES["find_newer_import"], params) is not None


def format_of(file_name: str) -> FileFormat | None:
    """Tell a file's format by its ending; None when it has neither."""
    if file_name.endswith(".jsonl"):
        return "jsonl"
    if file_name.endswith(".parquet"):
        return "parquet"
    return None
