"""Rows of projects."""

from collections.abc import Sequence
from typing import Any

from coordination.database import Transaction
from coordination.queries import load_queries

from api.projects.models import Project, Quotas

_QUERIES = load_queries("projects")


def insert_project(transaction: Transaction, fields: dict[str, Any]) -> Project | None:
    """Insert a project; None when the id is taken."""
    row = transaction.fetch_one(_QUERIES["insert_project"], fields)
    return to_project(row) if row else None


def find_project(transaction: Transaction, project: str) -> Project | None:
    """Return a project, or None."""
    row = transaction.fetch_one(_QUERIES["find_project"], {"id": project})
    return to_project(row) if row else None


def lock_project(transaction: Transaction, project: str) -> Project | None:
    """Return a project and keep it for this transaction alone; None when it is gone."""
    row = transaction.fetch_one(_QUERIES["lock_project"], {"id": project})
    return to_project(row) if row else None


def update_project_row(transaction: Transaction, fields: dict[str, Any]) -> Project | None:
    """Write all changeable fields of a project; None when it is gone."""
    row = transaction.fetch_one(_QUERIES["update_project"], fields)
    return to_project(row) if row else None


def list_project_rows(
    transaction: Transaction, visible: Sequence[str] | None, after: Sequence[Any] | None, limit: int
) -> list[Project]:
    """Return up to `limit` projects by id, those in `visible` (None: all), after a position."""
    rows = transaction.fetch_all(
        _QUERIES["list_projects"],
        {"visible": None if visible is None else list(visible), "after": after[0] if after else None, "limit": limit},
    )
    return [to_project(row) for row in rows]


def to_project(row: dict[str, Any]) -> Project:
    """Make a project of its row."""
    return Project(
        id=row["id"],
        description=row["description"],
        quotas=Quotas(max_stored_runs=row["max_stored_runs"], max_dataset_bytes=row["max_dataset_bytes"]),
        run_retention=row["run_retention"],
        paused=row["paused"],
        created_at=row["created_at"],
        created_by=row["created_by"],
        updated_at=row["updated_at"],
    )
