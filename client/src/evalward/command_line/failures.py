"""`evalward failures`."""

from typing import Annotated, Literal

import typer

from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Project, Quiet
from evalward.command_line.output import show_fields, show_ids, show_list
from evalward.command_line.session import open_session, take

app = typer.Typer(no_args_is_help=True)

State = Literal["unresolved", "investigating", "resolved", "wont_fix"]


@app.command("list")
def list_failures(
    state: Annotated[State | None, typer.Option(help="Only failures in this state.")] = None,
    kind: Annotated[
        Literal["run", "shard", "sink", "import", "webhook", "pull"] | None, typer.Option(help="Only of this work.")
    ] = None,
    quiet: Quiet = False,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what went wrong, grouped by cause, last seen first."""
    del as_json
    with open_session() as session:
        failures = session.client.failures.each(session.project(project), state=state, kind=kind)
        items, is_cut = take(failures, limit)
    if quiet:
        show_ids(items)
        return
    columns = {"id": "id", "kind": "kind", "work": "work", "times": "occurrence_count", "last seen": "last_seen_at"}
    show_list(items, {**columns, "state": "state", "latest": "sample"}, is_cut=is_cut)


@app.command("resolve")
def resolve_failure(
    failure: Annotated[str, typer.Argument(help="Its id.")],
    state: Annotated[State, typer.Option(help="What is done about it.")] = "resolved",
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Say what is done about a failure; it opens again when it is seen again."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.failures.resolve(where, failure, state=state, idempotency_key=idempotency_key))
