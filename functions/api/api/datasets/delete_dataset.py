"""Delete a content: its names and versions at once, its objects when no run refers to them."""

from typing import Annotated

from coordination.access import Principal
from coordination.database import Transaction
from coordination.datasets import lock_content
from coordination.errors import NotFoundError
from coordination.models import ResponseModel
from coordination.queries import load_queries
from coordination.storage_events import record_storage_event
from coordination.wake_ups import WakeUp
from pydantic import Field

_QUERIES = load_queries("datasets")
_RUNS_SHOWN = 100


class DeletedVersion(ResponseModel):
    """A version that is gone."""

    name: str
    version: int


class DeletedDataset(ResponseModel):
    """What was deleted, and what still holds the object."""

    sha256: str
    versions: list[DeletedVersion]
    object: Annotated[str, Field(description="removed: it goes now; kept: runs still refer to it, it goes with them")]
    runs: Annotated[list[str], Field(description="ids of runs that refer to it, at most 100")]


def delete_dataset(transaction: Transaction, sha256: str, principal: Principal) -> DeletedDataset:
    """Delete all names and versions of a content, wake the removal of its objects and write the storage event.

    Locks: the advisory lock `dataset-content` (project and sha256) until the commit.

    Raises
    ------
    NotFoundError
        There is no dataset with this content.
    """
    lock_content(transaction, sha256)
    params = {"tenant": transaction.tenant, "sha256": sha256}
    versions = transaction.fetch_all(_QUERIES["delete_versions"], params)
    if not versions:
        raise NotFoundError("There is no dataset with this sha256 here.")
    runs = transaction.fetch_all(_QUERIES["list_snapshot_runs"], params | {"limit": _RUNS_SHOWN})
    if not runs:
        transaction.wake(WakeUp("conversion", "object_removal", transaction.tenant, sha256))
    deleted = DeletedDataset(
        sha256=sha256,
        versions=[DeletedVersion(**row) for row in versions],
        object="kept" if runs else "removed",
        runs=[str(row["run_id"]) for row in runs],
    )
    detail = deleted.model_dump(include={"sha256", "versions", "object"})
    record_storage_event(transaction, "dataset.removed", sha256=sha256, detail=detail, principal=principal.id)
    return deleted
