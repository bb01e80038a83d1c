"""The declarations of the project operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page, PageQuery

from api.projects.manage_projects import create_project, get_project, list_projects, update_project
from api.projects.models import CreateProject, Project, UpdateProject


def _create(call: Call, transaction: Transaction) -> Answer:
    project = create_project(transaction, call.body_as(CreateProject), call.principal)
    return Answer(201, project, {"location": f"/v1/projects/{project.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_projects(transaction, call.principal, call.query_as(PageQuery)))


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, get_project(transaction, call.project))


def _update(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, update_project(transaction, call.project, call.body_as(UpdateProject)))


OPERATIONS = (
    Operation(
        id="projects.create",
        method="POST",
        path="/v1/projects",
        summary="Create a project.",
        permission="projects.manage",
        body=CreateProject,
        responses={201: Project},
        idempotency=LocalWrite(),
        handle=_create,
    ),
    Operation(
        id="projects.list",
        method="GET",
        path="/v1/projects",
        summary="List the projects on which the key has any grant.",
        query=PageQuery,
        responses={200: Page[Project]},
        handle=_list,
    ),
    Operation(
        id="projects.get",
        method="GET",
        path="/v1/projects/{project}",
        summary="Read a project.",
        responses={200: Project},
        handle=_get,
    ),
    Operation(
        id="projects.update",
        method="PATCH",
        path="/v1/projects/{project}",
        summary="Change fields of a project; those left out stay.",
        permission="projects.manage",
        body=UpdateProject,
        responses={200: Project},
        idempotency=LocalWrite(),
        handle=_update,
    ),
)
