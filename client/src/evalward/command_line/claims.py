"""`evalward claims`."""

from typing import Annotated, Literal

import typer

from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Project
from evalward.command_line.output import show_fields, show_list
from evalward.command_line.session import Session, open_session, take

app = typer.Typer(no_args_is_help=True)

_Installation = Annotated[
    bool, typer.Option("--installation", help="Of installation-wide writes (projects, keys) instead of a project's.")
]


@app.command("list")
def list_claims(
    principal: Annotated[str | None, typer.Option(help="key:ID of somebody else; your own by default.")] = None,
    installation: _Installation = False,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List writes in progress and uncertain ones, oldest first."""
    del as_json
    with open_session() as session:
        where = _where(session, project, is_installation=installation)
        items, is_cut = take(session.client.claims.each(where, principal=principal), limit)
    names = ("id", "operation", "state", "claimed_at", "deadline_at", "expires_at", "principal")
    show_list(items, {name: name for name in names}, is_cut=is_cut)


@app.command("resolve")
def resolve_claim(
    claim: Annotated[str, typer.Argument(help="Its id.")],
    outcome: Annotated[Literal["happened", "did_not_happen"], typer.Argument(help="What you found.")],
    installation: _Installation = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Say what became of an uncertain write: after did_not_happen a repeat makes it happen."""
    del as_json
    with open_session() as session:
        where = _where(session, project, is_installation=installation)
        show_fields(session.client.claims.resolve(where, claim, outcome, idempotency_key=idempotency_key))


def _where(session: Session, project: str | None, *, is_installation: bool) -> str | None:
    return None if is_installation else session.project(project)
