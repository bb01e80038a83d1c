"""`evalward imports`."""

from typing import Annotated, Any

import typer

from evalward.client import Client
from evalward.command_line.documents import read_pairs
from evalward.command_line.options import (
    AsJson,
    FileFormat,
    IdempotencyKey,
    Limit,
    Mapping,
    Project,
    ReplaceNul,
    ValidateOnly,
)
from evalward.command_line.output import show_fields, show_list
from evalward.command_line.problem_text import describe_place
from evalward.command_line.session import open_session, take
from evalward.errors import ProblemError, WaitedInVainError
from evalward.transport import JsonObject

app = typer.Typer(no_args_is_help=True)

_POLL_SECONDS = 1.0


@app.command("create")
def create_import(
    uri: Annotated[str, typer.Argument(metavar="URI", help="s3://BUCKET/datasets/incoming/PROJECT/FILE")],
    name: Annotated[str, typer.Option(help="Of the dataset.")],
    file_format: FileFormat = None,
    mapping: Mapping = None,
    replace_nul: ReplaceNul = False,
    validate_only: ValidateOnly = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; exit with 1 when the object is no dataset.")
    ] = False,
    wait_seconds: Annotated[float, typer.Option("--wait-seconds", min=0, help="How long to wait.")] = 3600,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Import an object that is in the bucket already, in the background; `evalward imports show` says how it went."""
    del as_json
    body: JsonObject = {"name": name, "uri": uri}
    body |= {"format": file_format} if file_format else {}
    body |= {"mapping": read_pairs(mapping, "--map")} if mapping else {}
    # What is not asked for is left out: older services know the rest.
    body |= {"nul": "replace"} if replace_nul else {}
    body |= {"validate_only": True} if validate_only else {}
    with open_session() as session:
        where = session.project(project)
        made = session.client.imports.create(where, body, idempotency_key=idempotency_key)
        if wait:
            look = f"`evalward imports show {made['id']}` says what becomes of it."
            session.on_interrupt = f"Interrupted. The import goes on: {look}"
            made = _wait(session.client, where, made["id"], wait_seconds, look)
    show_fields(made)


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
    import_id: Annotated[str, typer.Argument(metavar="IMPORT", help="Its id.")],
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Read an import: what became of it, or the rows and fields that are wrong."""
    del as_json
    with open_session() as session:
        show_fields(session.client.imports.get(session.project(project), import_id))


def _wait(client: Client, project: str, import_id: str, wait_seconds: float, look: str) -> JsonObject:
    """Wait for the end of an import; one that failed is told as the same file's publication is."""
    try:
        ended = client.imports.wait(project, import_id, timeout_seconds=wait_seconds, poll_seconds=_POLL_SECONDS)
    except WaitedInVainError as error:
        error.add_note(look)
        raise
    if failure := ended["error"]:
        problem = ProblemError({"status": 422, "title": "The import failed", **failure})
        if not problem.errors:
            problem.add_note("Mend it, then send the same command again.")
        raise problem
    return ended


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
