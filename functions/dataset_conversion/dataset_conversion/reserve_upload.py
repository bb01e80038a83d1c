"""Promise capacity for a file and give out the URL that takes exactly that file."""

from typing import Annotated
from uuid import UUID, uuid4

from coordination.access import Principal
from coordination.database import Transaction
from coordination.datasets import DatasetName, check_dataset_quota
from coordination.errors import PayloadTooLargeError
from coordination.imports import FieldMapping, FileFormat, NulRule
from coordination.models import Instant, RequestModel, ResponseModel, Sha256
from coordination.ports.objects import Objects
from coordination.queries import load_queries
from coordination.uploads import staging_key
from psycopg.types.json import Jsonb
from pydantic import AfterValidator, Field
from records.limits import Limits
from records.row_fields import check_mapping

_QUERIES = load_queries("uploads")

URL_SECONDS = 3600


class ReserveUpload(RequestModel):
    """A file that is about to be uploaded."""

    name: DatasetName
    format: FileFormat
    bytes: Annotated[int, Field(ge=1, le=2**53, description="size of the file")]
    sha256: Sha256
    mapping: Annotated[FieldMapping | None, AfterValidator(check_mapping)] = None
    nul: Annotated[NulRule, Field(description="what to do with NUL characters")] = "refuse"


class Reservation(ResponseModel):
    """Capacity for one file, and how to send it: PUT the file to `url` with exactly these headers, then finalize."""

    id: UUID
    state: str
    name: str
    format: str
    bytes: int
    sha256: Sha256
    url: Annotated[str, Field(description="takes one PUT of exactly this size and content")]
    headers: Annotated[dict[str, str], Field(description="signed: send them with the PUT")]
    finalize: Annotated[str, Field(description="POST here when the file is there")]
    created_at: Instant
    expires_at: Annotated[Instant, Field(description="until then the PUT may begin")]


def reserve_upload(
    transaction: Transaction, objects: Objects, wanted: ReserveUpload, principal: Principal
) -> Reservation:
    """Insert a reservation and sign its URL.

    With a quota the advisory lock `dataset-bytes` (project) is held until the commit: promised bytes count.

    Raises
    ------
    PayloadTooLargeError
        The file is larger than a dataset file may be.
    DatasetQuotaExceededError
        The project has no room for it.
    """
    limit = Limits().input_bytes
    if wanted.bytes > limit:
        raise PayloadTooLargeError(
            f"The file has {wanted.bytes} bytes, a dataset file may have {limit} bytes; split it."
        )
    check_dataset_quota(transaction, wanted.bytes)
    upload_id = uuid4()
    row = transaction.fetch_one(
        _QUERIES["insert_reservation"],
        {
            "tenant": transaction.tenant,
            "id": upload_id,
            "name": wanted.name,
            "format": wanted.format,
            "bytes": wanted.bytes,
            "sha256": wanted.sha256,
            "mapping": Jsonb(wanted.mapping) if wanted.mapping is not None else None,
            "nul": wanted.nul,
            "created_by": principal.id,
            "valid_seconds": URL_SECONDS,
        },
    )
    assert row is not None  # noqa: S101 - INSERT … RETURNING returns its row
    url, headers = objects.presign_put(
        staging_key(transaction.tenant, upload_id), wanted.bytes, wanted.sha256, URL_SECONDS
    )
    return Reservation(
        **row,
        url=url,
        headers=headers,
        finalize=f"/v1/projects/{transaction.tenant}/uploads/{upload_id}/finalize",
    )
