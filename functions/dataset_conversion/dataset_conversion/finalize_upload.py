"""Turn an uploaded file into a dataset.

Fenced: whoever finalizes holds the upload's lease, and the row ends in the transaction that publishes. The recovery of
stale reservations takes the same lease, so it can never release one that is being finalized.
"""

import hashlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, cast
from uuid import UUID

from coordination.access import Principal
from coordination.database import Database, Transaction
from coordination.datasets import Dataset, find_dataset_by_name, publish_dataset
from coordination.environment import Environment
from coordination.errors import (
    DatasetRefusedError,
    InvalidRequestError,
    NotFoundError,
    UploadBusyError,
    UploadEndedError,
    UploadMismatchError,
    UploadMissingError,
)
from coordination.http.validation import read_path_id
from coordination.imports import ImportFailure
from coordination.leases import Lease, LeaseLostError, drop_lease, end_lease, require_lease, take_lease
from coordination.models import QueryModel
from coordination.ports.objects import ObjectNotFoundError
from coordination.queries import load_queries
from coordination.uploads import staging_key, upload_lease_name
from psycopg.types.json import Jsonb
from pydantic import Field
from records.limits import Limits

from dataset_conversion.conversion import Conversion
from dataset_conversion.conversion_slots import LEASE_SECONDS, wait_for_slot
from dataset_conversion.publication import File, StoredFile, check_file, store_file

_QUERIES = load_queries("uploads")
_SLOT_WAIT_SECONDS = 5.0


class FinalizeQuery(QueryModel):
    """What is to be done with the file."""

    validate_only: Annotated[
        bool, Field(description="check and count, publish nothing; the upload can still be finalized")
    ] = False


@dataclass(frozen=True, slots=True)
class PreparedUpload:
    """An upload whose object is in the bucket, or one that was finalized before.

    Attributes
    ----------
    database
        Where the lease is.
    reservation
        Its row.
    stored
        What was converted; None when it was finalized before.
    lease
        Held until the row ends; None when it was finalized before.
    """

    database: Database
    reservation: Mapping[str, Any]
    stored: StoredFile | None
    lease: Lease | None

    def abandon(self) -> None:
        """Give the lease back when the row cannot be written: the upload can be finalized again."""
        if self.lease is not None:
            drop_lease(self.database, self.lease)


def prepare_upload(environment: Environment, project: str, reference: str) -> PreparedUpload:
    """Convert the uploaded file and put the object; the row follows in `publish_reserved`.

    Raises
    ------
    NotFoundError
        There is no such upload.
    UploadBusyError, UploadEndedError, UploadMissingError, UploadMismatchError
        It cannot be finalized now, or any more; the reservation stays as it is.
    ConversionBusyError
        No slot became free within 5 s.
    DatasetRefusedError, InvalidRequestError
        The file is no valid dataset: the reservation ends as refused and its capacity is free again. Said again when
        it is finalized again.
    StorageUnavailableError
        The bucket did not answer.
    """
    database, upload_id = environment.database, read_path_id(reference, "upload")
    reservation = _find(database, project, upload_id)
    if reservation["state"] == "finalized":
        return PreparedUpload(database, reservation, None, None)
    lease = take_lease(database, upload_lease_name(project, upload_id), LEASE_SECONDS)
    if lease is None:
        raise _busy()
    try:
        # Who had the lease before us may have ended the upload.
        reservation = _find(database, project, upload_id)
        if reservation["state"] == "finalized":
            drop_lease(database, lease)
            return PreparedUpload(database, reservation, None, None)
        with _opened_in_slot(environment, project, reservation) as file:
            stored = store_file(environment, project, file, Limits())
    except (DatasetRefusedError, InvalidRequestError) as refusal:
        _refuse(database, project, reservation, lease, refusal)
        raise
    except BaseException:
        drop_lease(database, lease)
        raise
    return PreparedUpload(database, reservation, stored, lease)


def check_upload(environment: Environment, project: str, reference: str) -> tuple[str, Conversion]:
    """Convert the uploaded file and keep nothing; the reservation stays as it is, whatever comes of it.

    Returns
    -------
    (str, Conversion)
        Name of the dataset, and what it would be.

    Raises
    ------
    NotFoundError, UploadEndedError, UploadMissingError, UploadMismatchError
        As `prepare_upload`.
    ConversionBusyError, DatasetRefusedError, StorageUnavailableError
        As `prepare_upload`.
    """
    reservation = _find(environment.database, project, read_path_id(reference, "upload"))
    with _opened_in_slot(environment, project, reservation) as file:
        return reservation["name"], check_file(file, Limits())


def publish_reserved(transaction: Transaction, prepared: PreparedUpload, principal: Principal) -> tuple[Dataset, bool]:
    """Write the dataset's row and end the reservation, guarded by the lease, in one transaction.

    Raises
    ------
    UploadBusyError
        Somebody else ended the reservation meanwhile.
    """
    reservation = prepared.reservation
    if prepared.stored is None or prepared.lease is None:
        version: int = reservation["dataset_version"]
        dataset = find_dataset_by_name(transaction, reservation["dataset_name"], version)
        if dataset is None:
            raise UploadEndedError("The upload was finalized and its dataset has been deleted since.")
        return dataset, False
    try:
        require_lease(transaction, prepared.lease)
    except LeaseLostError:
        raise _busy() from None
    dataset, is_new = publish_dataset(
        transaction,
        name=reservation["name"],
        sha256=prepared.stored.conversion.sha256,
        records=prepared.stored.conversion.records,
        size=prepared.stored.conversion.bytes,
        source="upload",
        principal=principal.id,
        generation=prepared.stored.generation,
        reservation=reservation["id"],
    )
    if not _end(transaction, reservation["id"], "finalized", dataset=dataset):
        raise _busy()
    end_lease(transaction, prepared.lease)
    return dataset, is_new


class _Announced:
    """Reads a file and notes its size and digest, to be compared with what was announced."""

    def __init__(self, body: BinaryIO) -> None:
        self._body = body
        self._digest = hashlib.sha256()
        self.size = 0

    def read(self, size: int = -1) -> bytes:
        chunk = self._body.read(size) if size >= 0 else self._body.read()
        self._digest.update(chunk)
        self.size += len(chunk)
        return chunk

    def check(self, reservation: Mapping[str, Any]) -> None:
        while self.read(1024 * 1024):
            pass
        if self.size != reservation["bytes"] or self._digest.hexdigest() != reservation["sha256"]:
            raise UploadMismatchError(
                f"The file that was put has {self.size} bytes and another content or size than announced "
                f"({reservation['bytes']} bytes). Reserve a new upload and put the right file."
            )


@contextmanager
def _opened_in_slot(environment: Environment, project: str, reservation: Mapping[str, Any]) -> Generator[File]:
    """Open the uploaded file, then wait for a slot and hold it: nobody waits in one for bytes that are not there."""
    if reservation["state"] == "refused":
        failure = ImportFailure.model_validate(reservation["refusal"])
        raise DatasetRefusedError(failure.detail, errors=failure.errors)
    if reservation["state"] != "open":
        raise UploadEndedError(f"The upload was {reservation['state']}. Reserve a new one.")
    try:
        found = environment.objects.open(staging_key(project, reservation["id"]))
    except ObjectNotFoundError as error:
        raise UploadMissingError("The file is not there yet. PUT it to the upload's URL, then finalize.") from error
    announced = _Announced(found.body)
    file = File(
        content=cast("BinaryIO", announced),
        format=reservation["format"],
        mapping=reservation["mapping"],
        nul=reservation["nul"],
        kind="presigned",
        check=lambda: announced.check(reservation),
    )
    slot = wait_for_slot(environment.database, _SLOT_WAIT_SECONDS)
    try:
        yield file
    finally:
        drop_lease(environment.database, slot)


def _refuse(
    database: Database,
    project: str,
    reservation: Mapping[str, Any],
    lease: Lease,
    refusal: DatasetRefusedError | InvalidRequestError,
) -> None:
    """End a reservation whose file was refused; its capacity is free again."""
    failure = ImportFailure(code=refusal.code, detail=refusal.detail, errors=[dict(one) for one in refusal.errors])
    try:
        with database.transaction(project) as transaction:
            require_lease(transaction, lease)
            _end(transaction, reservation["id"], "refused", refusal=failure)
            end_lease(transaction, lease)
    except LeaseLostError:
        # Whoever holds it now finds the same file, and the same faults.
        return


def _busy() -> UploadBusyError:
    return UploadBusyError("Another call is finalizing this upload. Try again.", retry_after_seconds=5)


def _find(database: Database, project: str, upload_id: UUID) -> Mapping[str, Any]:
    with database.transaction(project) as transaction:
        row = transaction.fetch_one(_QUERIES["find_reservation"], {"tenant": project, "id": upload_id})
    if row is None:
        raise NotFoundError("There is no such upload.")
    return row


def _end(
    transaction: Transaction,
    upload_id: UUID,
    state: str,
    *,
    dataset: Dataset | None = None,
    refusal: ImportFailure | None = None,
) -> bool:
    row = transaction.fetch_one(
        _QUERIES["end_reservation"],
        {
            "tenant": transaction.tenant,
            "id": upload_id,
            "state": state,
            "dataset_name": dataset.name if dataset else None,
            "dataset_version": dataset.version if dataset else None,
            "refusal": Jsonb(refusal.model_dump(mode="json")) if refusal else None,
        },
    )
    return row is not None
