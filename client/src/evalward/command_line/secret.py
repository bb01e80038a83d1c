"""Secrets that the service tells once."""

import typer

from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.output import say, show
from evalward.transport import JsonObject


def show_secret(made: JsonObject, kind: str) -> None:
    """Print a secret alone on the standard output, or all that was made as JSON if that was asked for.

    Parameters
    ----------
    made
        What was made: `id`, and `secret` in the first answer.
    kind
        `key` or `webhook`, as in the commands about it.

    Raises
    ------
    typer.Exit
        There is no secret: the answer is a replay, and the one that had it never arrived.
    """
    named, secret = f"{kind.capitalize()} {made['id']}", made.get("secret")
    if secret is None:
        say(
            f"{named} was made by an attempt whose answer was lost, and its secret with it. "
            f"`evalward {kind}s delete {made['id']}`, and make it again."
        )

    def summary() -> None:
        if secret is not None:
            say(f"{named}. This is the only time its secret is shown:")
            typer.echo(secret)

    show(made, summary)
    if secret is None:
        raise typer.Exit(ExitCode.REFUSED)
