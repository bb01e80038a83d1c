"""Create, read, list and change projects."""

from coordination.access import EVERY_PROJECT, Principal
from coordination.database import Transaction
from coordination.errors import NotFoundError, ProjectExistsError
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page, read_text

from api.projects.models import CreateProject, Project, Quotas, UpdateProject
from api.projects.store import find_project, insert_project, list_project_rows, lock_project, update_project_row


def create_project(transaction: Transaction, new: CreateProject, principal: Principal) -> Project:
    """Create a project.

    Raises
    ------
    ProjectExistsError
        The id is taken.
    """
    project = insert_project(transaction, _row(new.id, new) | {"created_by": principal.id})
    if project is None:
        raise ProjectExistsError(f"There is a project {new.id!r} already. Choose another id, or PATCH that one.")
    return project


def get_project(transaction: Transaction, project: str) -> Project:
    """Return a project.

    Raises
    ------
    NotFoundError
        It is gone.
    """
    found = find_project(transaction, project)
    if found is None:
        raise NotFoundError(f"There is no project {project!r}.")
    return found


def update_project(transaction: Transaction, project: str, update: UpdateProject) -> Project:
    """Change the fields that were sent. Lock: the project's row, so that two changes at once both count.

    Raises
    ------
    NotFoundError
        It is gone.
    """
    before = lock_project(transaction, project)
    changed = before and update_project_row(transaction, _row(project, update.apply_to(before)))
    if changed is None:
        raise NotFoundError(f"There is no project {project!r}.")
    return changed


def list_projects(transaction: Transaction, principal: Principal, query: PageQuery) -> Page[Project]:
    """List the projects on which the principal has any grant, by id."""
    names = {grant.project for grant in principal.grants}
    visible = None if EVERY_PROJECT in names else sorted(names)
    after = decode_cursor("projects", query.cursor, read_text)
    rows = list_project_rows(transaction, visible, after, query.limit + 1)
    return make_page("projects", rows, query.limit, lambda row: row, lambda row: [row.id])


def _row(project: str, fields: CreateProject | Project) -> dict[str, object]:
    quotas: Quotas = fields.quotas
    return {
        "id": project,
        "description": fields.description,
        "max_stored_runs": quotas.max_stored_runs,
        "max_dataset_bytes": quotas.max_dataset_bytes,
        "run_retention": fields.run_retention,
        "paused": fields.paused,
    }
