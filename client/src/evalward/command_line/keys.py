"""`evalward keys`."""

from typing import Annotated, Any

import typer

from evalward.command_line.login import describe_grant
from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Yes
from evalward.command_line.output import show_done, show_list
from evalward.command_line.secret import show_secret
from evalward.command_line.session import confirm, open_session, take
from evalward.errors import ConfigurationError
from evalward.transport import JsonObject

app = typer.Typer(no_args_is_help=True)


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="For people.")],
    grant: Annotated[
        list[str],
        typer.Option(
            "--grant", help="PROJECT=ROLE, or PROJECT=PERMISSION,PERMISSION…; * is every project. Repeatable."
        ),
    ],
    expires_at: Annotated[str | None, typer.Option(help="When it stops working, as 2027-01-31T00:00:00Z.")] = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Create a key. Its text is printed once, alone on the standard output.

    Roles: viewer, runner, editor, admin, owner. A role is a word without a dot, a permission has one (runs.read).
    """
    del as_json
    body = {"name": name, "grants": [_read_grant(text) for text in grant]}
    body |= {"expires_at": expires_at} if expires_at else {}
    with open_session() as session:
        key = session.client.keys.create(body, idempotency_key=idempotency_key)
    show_secret(key, "key")


@app.command("list")
def list_keys(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List keys, without their secrets."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.keys.each(), limit)
    show_list(
        items,
        {
            "id": "id",
            "name": "name",
            "grants": _describe_grants,
            "created_at": "created_at",
            "expires_at": "expires_at",
        },
        is_cut=is_cut,
    )


@app.command("delete")
def delete_key(
    key: Annotated[str, typer.Argument(help="Its id: 16 hex digits.")],
    yes: Yes = False,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete a key: it stops working at once."""
    del as_json
    confirm(f"Delete the key {key}?", is_agreed=yes)
    with open_session() as session:
        session.client.keys.delete(key, idempotency_key=idempotency_key)
    show_done("deleted", key)


def _read_grant(text: str) -> JsonObject:
    project, equals, names = text.partition("=")
    if not equals or not project or not names:
        raise ConfigurationError(f"--grant {text!r} is not PROJECT=ROLE, such as demo=editor.")
    words = names.split(",")
    # `evaluate` is the one permission without a dot.
    is_role = len(words) == 1 and "." not in names and names != "evaluate"
    return {"project": project} | ({"role": names} if is_role else {"permissions": words})


def _describe_grants(key: Any) -> str:
    return "; ".join(f"{grant['project']}: {describe_grant(grant)}" for grant in key["grants"])
