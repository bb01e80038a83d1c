"""Delete the ended runs whose retention period is over, and forget deletions that are a day old."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import ProblemError
from coordination.queries import load_queries
from coordination.retention import choose_retention_seconds
from coordination.run_deletion import KEEP_LABEL, delete_locked_run, lock_run

from retention_sweep.projects import iterate_projects_until

logger = Logger(child=True)

_QUERIES = load_queries("runs")
_PAGE_SIZE = 200
# A project that has many runs to lose does not keep the pass from the others: it takes turns with them.
_RUNS_PER_TURN = 50
# No statement outlives the time-out of a transaction (20 s by default).
_SPARE_SECONDS = 25.0


@dataclass(slots=True)
class _Walk:
    """How far the pass has come in a project.

    Attributes
    ----------
    project
        Its id.
    retention_seconds
        How long it keeps its ended runs.
    ended_at, run_id
        Position of the last run looked at, kept ones included.
    """

    project: str
    retention_seconds: int
    ended_at: datetime | None = None
    run_id: UUID | None = None


def sweep_runs(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Delete expired runs of all projects, each run in a transaction of its own, by the deletion that the API uses.

    Age counts on the database's clock from when a run finished, else from when it was created. A run that has not
    ended, is leased or carries the label `evalsi.keep: "true"` stays; that is looked at again under the run's lock.
    Projects take turns until nothing is expired, the budget of runs is used up or the time is over. There is no
    tombstone and no audit event: nobody asked. Two passes at once are harmless: a run that is gone is passed over.

    Returns
    -------
    dict
        `projects` looked at, `deleted` runs, `tombstones` forgotten, `failed` projects and runs, which the next pass
        looks at again, and `left` projects in which there may be more to delete.
    """
    counts = {"projects": 0, "deleted": 0, "tombstones": 0, "failed": 0, "left": 0}
    budget = environment.settings.runs.max_deletions_per_pass
    walks = _list_walks(environment, deadline, counts)
    while walks and counts["deleted"] < budget and deadline.remaining_seconds() > _SPARE_SECONDS:
        walk = walks.pop(0)
        try:
            turn = min(_RUNS_PER_TURN, budget - counts["deleted"])
            if _sweep_project(environment, walk, turn, deadline, counts):
                walks.append(walk)
        except Exception as error:
            counts["failed"] += 1
            logger.exception("runs of a project not swept", extra={"project": walk.project, "code": _name(error)})
    counts["left"] = len(walks)
    logger.info("run retention", extra=counts)
    return counts


def _list_walks(environment: Environment, deadline: Deadline, counts: dict[str, int]) -> list[_Walk]:
    """Find the projects whose runs expire; forget old deletions of every project on the way."""
    settings = environment.settings.runs
    walks: list[_Walk] = []
    for row in iterate_projects_until(environment.database, deadline, _SPARE_SECONDS):
        counts["projects"] += 1
        try:
            retention_seconds = choose_retention_seconds(
                row["id"], row["run_retention"], settings.project_retention, settings.retention
            )
            counts["tombstones"] += _forget_deletions(environment, row["id"])
        except Exception as error:
            counts["failed"] += 1
            logger.exception("project not swept", extra={"project": row["id"], "code": _name(error)})
            continue
        if retention_seconds is not None:
            walks.append(_Walk(row["id"], retention_seconds))
    return walks


def _forget_deletions(environment: Environment, project: str) -> int:
    with environment.database.transaction(project) as transaction:
        return len(
            transaction.fetch_all(_QUERIES["delete_expired_tombstones"], {"tenant": project, "limit": _PAGE_SIZE})
        )


def _sweep_project(
    environment: Environment, walk: _Walk, turn: int, deadline: Deadline, counts: dict[str, int]
) -> bool:
    """Delete at most `turn` runs of a project; return whether there may be more."""
    with environment.database.transaction(walk.project) as transaction:
        page = transaction.fetch_all(_QUERIES["list_ended_runs"], _position(walk))
    deleted = 0
    for row in page:
        if deleted == turn or deadline.remaining_seconds() < _SPARE_SECONDS:
            return True
        walk.ended_at, walk.run_id = row["ended_at"], row["id"]
        if row["is_kept"]:
            continue
        try:
            is_deleted = _delete_if_expired(environment, walk, row["id"])
        except ProblemError as error:
            counts["failed"] += 1
            extra = {"project": walk.project, "run": str(row["id"]), "code": error.code}
            logger.warning("run not deleted, the next pass tries again", extra=extra)
            continue
        deleted += is_deleted
        counts["deleted"] += is_deleted
    return len(page) == _PAGE_SIZE


def _position(walk: _Walk) -> dict[str, Any]:
    return {
        "tenant": walk.project,
        "keep_key": KEEP_LABEL[0],
        "keep_value": KEEP_LABEL[1],
        "retention_seconds": walk.retention_seconds,
        "after_ended_at": walk.ended_at,
        "after_id": walk.run_id,
        "limit": _PAGE_SIZE,
    }


def _delete_if_expired(environment: Environment, walk: _Walk, run_id: UUID) -> bool:
    """Delete a run that is still there, still expired and not kept, now that nobody can change it any more."""
    with environment.database.transaction(walk.project) as transaction:
        run = lock_run(transaction, run_id)
        if run is None or not run.is_deletable or run.ended_seconds_ago < walk.retention_seconds:
            return False
        if run.labels.get(KEEP_LABEL[0]) == KEEP_LABEL[1]:
            return False
        delete_locked_run(transaction, run)
    return True


def _name(error: Exception) -> str:
    return error.code if isinstance(error, ProblemError) else type(error).__name__
