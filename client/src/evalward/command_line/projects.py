"""`evalward projects`."""

from typing import Annotated

import typer

from evalward.command_line.options import AsJson, IdempotencyKey, Limit
from evalward.command_line.output import show_fields, show_list
from evalward.command_line.session import open_session, take
from evalward.transport import JsonObject

app = typer.Typer(no_args_is_help=True)

_Id = Annotated[str, typer.Argument(metavar="PROJECT", help="Lower-case letters, digits and hyphens.")]
_Description = Annotated[str | None, typer.Option(help="For people.")]
_Runs = Annotated[int | None, typer.Option(min=1, help="Runs that may be stored.")]
_Bytes = Annotated[int | None, typer.Option(min=1, help="Bytes of datasets that may be stored.")]
_Retention = Annotated[str | None, typer.Option(help="How long runs are kept: 720h, 30d or P30D; 0 is forever.")]


@app.command("create")
def create_project(
    project: _Id,
    description: _Description = None,
    max_stored_runs: _Runs = None,
    max_dataset_bytes: _Bytes = None,
    run_retention: _Retention = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Create a project."""
    del as_json
    body = {"id": project, **_fields(description, max_stored_runs, max_dataset_bytes, run_retention)}
    with open_session() as session:
        show_fields(session.client.projects.create(body, idempotency_key=idempotency_key))


@app.command("update")
def update_project(
    project: _Id,
    description: _Description = None,
    max_stored_runs: _Runs = None,
    max_dataset_bytes: _Bytes = None,
    run_retention: _Retention = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="A paused project takes writes and dispatches no work.")
    ] = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Change what is named; the rest stays."""
    del as_json
    changes = _fields(description, max_stored_runs, max_dataset_bytes, run_retention)
    changes |= {} if paused is None else {"paused": paused}
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.projects.update(where, changes, idempotency_key=idempotency_key))


@app.command("list")
def list_projects(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List the projects that the key sees."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.projects.each(), limit)
    columns = {name: name for name in ("id", "description", "paused", "run_retention", "created_at")}
    show_list(items, columns, is_cut=is_cut)


@app.command("show")
def show_project(project: _Id, as_json: AsJson = False) -> None:
    """Read a project."""
    del as_json
    with open_session() as session:
        show_fields(session.client.projects.get(session.project(project)))


def _fields(
    description: str | None, max_stored_runs: int | None, max_dataset_bytes: int | None, run_retention: str | None
) -> JsonObject:
    quotas = {"max_stored_runs": max_stored_runs, "max_dataset_bytes": max_dataset_bytes}
    quotas = {name: value for name, value in quotas.items() if value is not None}
    fields: JsonObject = {"description": description, "quotas": quotas or None, "run_retention": run_retention}
    return {name: value for name, value in fields.items() if value is not None}
