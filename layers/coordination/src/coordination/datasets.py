"""Dataset versions: what api, dataset_conversion and run_evaluation know of them alike."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from coordination.database import Transaction
from coordination.models import Instant, ResponseModel, Sha256
from coordination.queries import load_queries

_QUERIES = load_queries("datasets")

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


def publish_dataset(
    transaction: Transaction, *, name: str, sha256: str, records: int, size: int, source: str, principal: str
) -> tuple[Dataset, bool]:
    """Write the row of a dataset whose object is in the bucket.

    Content equal to the newest version of the name is that version; anything else is the next one. Takes the advisory
    lock (`dataset-name`, project and name) until the commit, so that two publications get two numbers.

    Parameters
    ----------
    transaction
        Of the project.
    size
        Bytes of the canonical object.

    Returns
    -------
    (Dataset, bool)
        The version, and whether it is new.
    """
    transaction.submit(
        load_queries("locks")["take_advisory_lock"],
        {"namespace": "dataset-name", "name": f"{transaction.tenant} {name}"},
    )
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
        return to_dataset(row), True
    newest = find_dataset_by_name(transaction, name, None)
    assert newest is not None  # noqa: S101 - the statement above inserts unless the newest version has this content
    return newest, False


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
