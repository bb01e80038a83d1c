"""Options that many commands have."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from evalward.command_line.output import OUTPUT


def _choose_json(value: bool) -> bool:
    OUTPUT.is_json = OUTPUT.is_json or value
    return value


def _read_output(path: Path | None) -> Path | None:
    return None if str(path) == "-" else path


AsJson = Annotated[
    bool, typer.Option("--json", callback=_choose_json, help="Print JSON, as the API answers it; errors too.")
]
AsLines = Annotated[
    bool,
    typer.Option(
        "--jsonl", callback=_choose_json, help="Print one line of JSON for each, as it comes, all of them; errors too."
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        callback=_read_output,
        help="A file; by default, and for -, the standard output.",
    ),
]
Project = Annotated[
    str | None,
    typer.Option("--project", "-p", help="The project; by default $EVALWARD_PROJECT, else that of the login."),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
LimitOfLines = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="How many at most; by default 50, with --jsonl all.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="A key of your own, at most 112 characters; by default one is made and kept until the outcome is known.",
    ),
]
Mapping = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="FIELD=PLACE",
        help="Fill a field of the records from a JSON Pointer into the rows (output=/answer/text), or from a column of "
        "Parquet (output=answer). Repeatable.",
    ),
]
FileFormat = Annotated[
    Literal["jsonl", "parquet"] | None, typer.Option("--format", help="By default by the file's ending.")
]
ReplaceNul = Annotated[
    bool, typer.Option("--replace-nul", help="Store NUL characters as U+FFFD; without, a row with one is refused.")
]
ValidateOnly = Annotated[bool, typer.Option("--validate-only", help="Check and count, publish nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only, one a line.")]
