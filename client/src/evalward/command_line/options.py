"""Options that many commands have."""

from typing import Annotated

import typer

from evalward.command_line.output import OUTPUT


def _choose_json(value: bool) -> bool:
    OUTPUT.is_json = OUTPUT.is_json or value
    return value


AsJson = Annotated[
    bool, typer.Option("--json", callback=_choose_json, help="Print JSON, as the API answers it; errors too.")
]
Project = Annotated[
    str | None,
    typer.Option("--project", "-p", help="The project; by default $EVALWARD_PROJECT, else that of the login."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="A key of your own, at most 112 characters; by default one is made and kept until the outcome is known.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only, one a line.")]
