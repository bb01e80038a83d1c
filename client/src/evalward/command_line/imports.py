"""`evalward imports`."""

from typing import Annotated, Any

import typer

from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Project
from evalward.command_line.output import show_fields, show_list
from evalward.command_line.problem_text import describe_place
from evalward.command_line.session import open_session, take

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create_import(
    uri: Annotated[str, typer.Argument(help="s3://BUCKET/datasets/incoming/PROJECT/FILE")],
    name: Annotated[str, typer.Option(help="Of the dataset.")],
    file_format: Annotated[str | None, typer.Option("--format", help="jsonl or parquet; else by the ending.")] = None,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Import an object that is in the bucket already."""
    del as_json
    body = {"name": name, "uri": uri} | ({"format": file_format} if file_format else {})
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.imports.create(where, body, idempotency_key=idempotency_key))


@app.command("list")
def list_imports(project: Project = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List imports, newest first."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.imports.each(session.project(project)), limit)
    columns = {"id": "id", "state": "state", "uri": "uri", "dataset": _describe_dataset, "error": describe_error}
    show_list(items, columns, is_cut=is_cut)


@app.command("show")
def show_import(
    import_id: Annotated[str, typer.Argument(metavar="IMPORT")], project: Project = None, as_json: AsJson = False
) -> None:
    """Read an import: what became of it, or the rows and fields that are wrong."""
    del as_json
    with open_session() as session:
        show_fields(session.client.imports.get(session.project(project), import_id))


def _describe_dataset(item: Any) -> str:
    dataset = item.get("dataset")
    return f"{dataset['name']}@{dataset['version']}" if dataset else ""


def describe_error(item: Any) -> str:
    """Return what is wrong with an import, with the first place if its detail does not have it; else empty."""
    error = item.get("error")
    if not error:
        return ""
    first = next(iter(error.get("errors") or []), None)
    detail = error.get("detail", "")
    if first is None or first.get("message", "") in detail:
        return detail
    return f"{detail} ({describe_place(first)}: {first.get('message', '')})"
