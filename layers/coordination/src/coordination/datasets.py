"""Dataset versions: what api, dataset_conversion and run_evaluation know of them alike."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from uuid import UUID

from psycopg import Cursor
from psycopg.rows import DictRow
from pydantic import Field

from coordination.advisory_locks import take_lock
from coordination.database import Transaction
from coordination.errors import ContentBeingRemovedError, DatasetQuotaExceededError
from coordination.events import emit_event
from coordination.models import Instant, ResponseModel, Sha256
from coordination.queries import load_queries
from coordination.storage_events import record_storage_event
from coordination.wake_ups import WakeUp

_QUERIES = load_queries("datasets")
_RETRY_QUOTA_SECONDS = 60

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
type DatasetName = Annotated[
    str, Field(pattern=NAME_PATTERN, description="name of the dataset", examples=["support-questions"])
]


class Dataset(ResponseModel):
    """One version of a dataset."""

    project: str
    name: str
    version: Annotated[int, Field(description="1, 2, 3 … per name")]
    sha256: Sha256
    path: Annotated[str, Field(description="key of the canonical object in the bucket")]
    records: int
    bytes: Annotated[int, Field(description="size of the canonical object")]
    created_at: Instant
    created_by: str
    source: Annotated[str, Field(description="`upload`, or the s3:// address it was imported from")]


class Validation(ResponseModel):
    """What a file would become."""

    name: str
    sha256: Sha256
    records: int
    bytes: Annotated[int, Field(description="size of the canonical object")]
    derived_ids: Annotated[int, Field(description="records whose id was made from their content")]
    notes: Annotated[dict[str, object], Field(description="what was accepted and changed")]


def object_key(project: str, sha256: str) -> str:
    """Return the key of the canonical object."""
    return f"datasets/{project}/sha256/{sha256}.jsonl"


def manifest_key(project: str, sha256: str) -> str:
    """Return the key of the manifest beside the canonical object."""
    return f"datasets/{project}/sha256/{sha256}.manifest.json"


def find_dataset_by_sha256(transaction: Transaction, sha256: str) -> Dataset | None:
    """Return the newest version with this content, or None."""
    return _to_dataset(transaction.fetch_one(_QUERIES["find_by_sha256"], _of(transaction, sha256=sha256)))


def find_dataset_by_name(transaction: Transaction, name: str, version: int | None) -> Dataset | None:
    """Return a version of a name, the newest when none is given; None when there is none."""
    return _to_dataset(transaction.fetch_one(_QUERIES["find_by_name"], _of(transaction, name=name, version=version)))


def submit_share_version(transaction: Transaction, dataset: Dataset) -> Cursor[DictRow]:
    """Ask, without waiting, to keep a version from being deleted until the transaction ends; no row: it is gone."""
    return transaction.submit(_QUERIES["share_version"], _of(transaction, name=dataset.name, version=dataset.version))


def list_dataset_rows(
    transaction: Transaction, name: str | None, after: Sequence[Any] | None, limit: int
) -> list[dict[str, Any]]:
    """Return up to `limit` rows, newest first, after a position (created_at, id)."""
    return transaction.fetch_all(
        _QUERIES["list_datasets"],
        _of(
            transaction,
            name=name,
            after_created_at=after[0] if after else None,
            after_id=after[1] if after else None,
            limit=limit,
        ),
    )


def read_generation(transaction: Transaction, sha256: str) -> int:
    """Return how often a content was removed: to be read before its object is put, and given to `publish_dataset`.

    Raises
    ------
    ContentBeingRemovedError
        Its objects are being removed right now.
    """
    row = transaction.fetch_one(_QUERIES["read_removal"], _of(transaction, sha256=sha256))
    if row is not None and row["is_removing"]:
        raise _being_removed()
    return row["generation"] if row else 0


def publish_dataset(
    transaction: Transaction,
    *,
    name: str,
    sha256: str,
    records: int,
    size: int,
    source: str,
    principal: str,
    generation: int,
    reservation: UUID | None = None,
) -> tuple[Dataset, bool]:
    """Write the row of a dataset whose object is in the bucket, and its storage and webhook events.

    Content equal to the newest version of the name is that version; anything else is the next one. Takes the advisory
    locks `dataset-content` (project and sha256), `dataset-name` (project and name) and, with a quota, `dataset-bytes`
    (project), in this order, until the commit: two publications get two numbers, no removal comes between, and none
    passes the quota.

    Parameters
    ----------
    transaction
        Of the project.
    size
        Bytes of the canonical object.
    generation
        As `read_generation` returned it before the object was put.
    reservation
        The reservation that this publication uses up.

    Returns
    -------
    (Dataset, bool)
        The version, and whether it is new.

    Raises
    ------
    ContentBeingRemovedError
        The content was removed since its object was put; send it again.
    DatasetQuotaExceededError
        The project's quota of dataset bytes has no room for it.
    """
    lock_content(transaction, sha256)
    if read_generation(transaction, sha256) != generation:
        raise _being_removed()
    take_lock(transaction, "dataset-name", f"{transaction.tenant} {name}")
    check_dataset_quota(transaction, size, sha256=sha256, reservation=reservation)
    row = transaction.fetch_one(
        _QUERIES["publish_dataset"],
        _of(
            transaction,
            name=name,
            sha256=sha256,
            path=object_key(transaction.tenant, sha256),
            records=records,
            bytes=size,
            source=source,
            created_by=principal,
        ),
    )
    if row is not None:
        dataset = to_dataset(row)
        _announce(transaction, dataset)
        return dataset, True
    newest = find_dataset_by_name(transaction, name, None)
    assert newest is not None  # noqa: S101 - the statement above inserts unless the newest version has this content
    return newest, False


def _announce(transaction: Transaction, dataset: Dataset) -> None:
    detail = dataset.model_dump(include={"name", "version", "sha256", "path", "records", "bytes", "source"})
    record_storage_event(
        transaction, "dataset.published", sha256=dataset.sha256, detail=detail, principal=dataset.created_by
    )
    link = f"/v1/projects/{dataset.project}/datasets/{dataset.name}@{dataset.version}"
    fields = dataset.model_dump(include={"project", "name", "version", "sha256", "records", "bytes"})
    emit_event(transaction, "dataset.published", fields | {"links": {"dataset": link}})


def check_dataset_quota(
    transaction: Transaction, size: int, *, sha256: str | None = None, reservation: UUID | None = None
) -> None:
    """Make sure that a project has room for `size` more bytes; with a quota its advisory lock is held from here on.

    Raises
    ------
    DatasetQuotaExceededError
        It has not. Published contents count once each, open reservations with their promised bytes.
    """
    project = transaction.fetch_one(load_queries("projects")["share_project"], {"id": transaction.tenant})
    limit = project["max_dataset_bytes"] if project else None
    if limit is None:
        return
    take_lock(transaction, "dataset-bytes", transaction.tenant)
    # A statement of its own after the lock: its snapshot sees what the transaction before us committed.
    row = transaction.fetch_one(_QUERIES["count_dataset_bytes"], _of(transaction, sha256=sha256, except_id=reservation))
    if row is not None and row["bytes"] + size > limit:
        raise DatasetQuotaExceededError(
            f"The project's datasets and open uploads have {row['bytes']} bytes; {size} more would pass its quota of "
            f"{limit}. Delete datasets, or raise quotas.max_dataset_bytes.",
            retry_after_seconds=_RETRY_QUOTA_SECONDS,
        )


def lock_content(transaction: Transaction, sha256: str) -> None:
    """Take the advisory lock `dataset-content` (project and sha256) until the transaction ends."""
    take_lock(transaction, "dataset-content", f"{transaction.tenant} {sha256}")


def wake_removal_of_deleted(transaction: Transaction, sha256: str) -> None:
    """Wake the removal of a content that is no longer published, before a run's reference to it is deleted.

    The advisory lock `dataset-content` is held until the commit: neither a deletion of the dataset nor a removal that
    looks at the references at this moment can miss that this one goes.
    """
    lock_content(transaction, sha256)
    # A statement of its own after the lock: its snapshot sees what the transaction before us committed.
    if find_dataset_by_sha256(transaction, sha256) is None:
        transaction.wake(WakeUp("conversion", "object_removal", transaction.tenant, sha256))


def remove_unreferenced(transaction: Transaction, sha256: str) -> bool:
    """Begin to remove a content's objects if no version and no run's snapshot refers to it.

    Returns
    -------
    bool
        Whether its objects are to be deleted now; `end_removal` follows when they are gone.
    """
    lock_content(transaction, sha256)
    return transaction.fetch_one(_QUERIES["begin_removal"], _of(transaction, sha256=sha256)) is not None


def end_removal(transaction: Transaction, sha256: str) -> None:
    """Note that a content's objects are gone: it may be published again. The caller has locked the removal's lease."""
    transaction.submit(_QUERIES["end_removal"], _of(transaction, sha256=sha256))


def _being_removed() -> ContentBeingRemovedError:
    return ContentBeingRemovedError(
        "The same content is being removed at this moment; nothing was published. Send it again.",
        retry_after_seconds=2,
    )


def to_dataset(row: Mapping[str, Any]) -> Dataset:
    """Make a dataset of its row."""
    return Dataset(
        project=row["tenant_id"],
        name=row["name"],
        version=row["version"],
        sha256=row["sha256"],
        path=row["path"],
        records=row["records"],
        bytes=row["bytes"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        source=row["source"],
    )


def _to_dataset(row: Mapping[str, Any] | None) -> Dataset | None:
    return None if row is None else to_dataset(row)


def _of(transaction: Transaction, **params: Any) -> dict[str, Any]:
    return {"tenant": transaction.tenant, **params}
