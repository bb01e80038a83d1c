"""Release the capacity of uploads that were reserved and never came."""

from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import ProblemError
from coordination.leases import Lease, LeaseLostError, drop_lease, end_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.uploads import upload_lease_name

from retention_sweep.projects import iterate_projects_until

logger = Logger(child=True)

_QUERIES = load_queries("uploads")
_PAGE_SIZE = 200
_SPARE_SECONDS = 10.0
_LEASE_SECONDS = 60
# A PUT that began before its URL expired may still be under way; a day later none can be.
_MARGIN_SECONDS = 86_400


def recover_uploads(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Release open reservations whose upload can no longer finish, project by project.

    Fenced: each under the upload's own lease, which a finalization holds too, so none that is being finalized is ever
    released. The staged file, if there is one, is left to the bucket's lifecycle rule.

    Returns
    -------
    dict
        `released` reservations and `failed` projects, which the next pass looks at again.
    """
    counts = {"released": 0, "failed": 0}
    for row in iterate_projects_until(environment.database, deadline, _SPARE_SECONDS):
        project: str = row["id"]
        try:
            counts["released"] += _recover_project(environment, project, deadline)
        except ProblemError as error:
            counts["failed"] += 1
            logger.warning("uploads not recovered", extra={"project": project, "code": error.code})
    logger.info("stale uploads recovered", extra=counts)
    return counts


def _recover_project(environment: Environment, project: str, deadline: Deadline) -> int:
    released = 0
    after: dict[str, Any] = {"after_expires_at": None, "after_id": None}
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        with environment.database.transaction(project) as transaction:
            stale = transaction.fetch_all(
                _QUERIES["list_stale_reservations"],
                {"tenant": project, "margin_seconds": _MARGIN_SECONDS, "limit": _PAGE_SIZE} | after,
            )
        for upload in stale:
            lease = take_lease(environment.database, upload_lease_name(project, upload["id"]), _LEASE_SECONDS)
            if lease is not None:
                released += _release(environment, project, upload["id"], lease)
        if len(stale) < _PAGE_SIZE:
            break
        after = {"after_expires_at": stale[-1]["expires_at"], "after_id": stale[-1]["id"]}
    return released


def _release(environment: Environment, project: str, upload_id: UUID, lease: Lease) -> int:
    try:
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            row = transaction.fetch_one(
                _QUERIES["end_reservation"],
                {
                    "tenant": project,
                    "id": upload_id,
                    "state": "released",
                    "dataset_name": None,
                    "dataset_version": None,
                    "refusal": None,
                },
            )
            end_lease(transaction, lease)
    except LeaseLostError:
        drop_lease(environment.database, lease)
        return 0
    return 1 if row else 0
