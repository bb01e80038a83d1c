"""`evalward evaluate`."""

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import IO, Annotated, Any, cast

import typer

from evalward.command_line.documents import open_input, read_document
from evalward.command_line.options import AsJson, AsLines, IdempotencyKey, Project
from evalward.command_line.output import as_cell, print_table, show, show_lines
from evalward.command_line.session import open_session
from evalward.errors import ConfigurationError
from evalward.evaluation import read_frames
from evalward.transport import JsonObject

_METRIC = ("id", "n", "mean", "ci_low", "ci_high", "skipped", "errors")


def evaluate_records(
    file: Annotated[
        Path, typer.Argument(help="JSONL, one record a line; - is the standard input. At most 4 MiB and 1000 records.")
    ],
    evaluator: Annotated[
        list[str] | None,
        typer.Option("--evaluator", "-e", metavar="NAME", help="An evaluator with its defaults. Repeatable."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="YAML or JSON with `evaluators`, as in run.yaml, and maybe a `target` that is asked."
        ),
    ] = None,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> None:
    """Score a few records at once, without a run: nothing is stored.

    Without --evaluator and --file the first line of FILE is the settings, as the API takes them. For more records
    publish a dataset and create a run.
    """
    del as_json
    wanted = _read_settings(evaluator, settings, file)
    with open_session() as session:
        where = session.project(project)
        with _open(file) as stream:
            frames = read_frames(stream, "the standard input" if str(file) == "-" else str(file), wanted)
        answer = session.client.evaluate(where, frames, idempotency_key=idempotency_key)
        if as_lines:
            show_lines(answer)
            return
        items: list[JsonObject] = []
        summary: JsonObject = {}
        try:
            for frame in answer:
                if "summary" in frame:
                    summary = frame["summary"]
                else:
                    items.append(frame)
        finally:
            # What came before an error was scored.
            if items:
                show({"items": items, "summary": summary}, lambda: _print(items, summary))


def _print(items: list[JsonObject], summary: JsonObject) -> None:
    has_outputs = any("output" in item for item in items)
    headings = ["record", "evaluator", "status", "score", "passed", "error"]
    rows: list[list[Any]] = []
    for item in items:
        for result in item["results"]:
            row = [item["record"], *(result[name] for name in headings[1:])]
            rows.append([*row, as_cell(item.get("output"))] if has_outputs else row)
    print_table([*headings, "output"] if has_outputs else headings, rows)
    if summary:
        print_table(
            ["metric", "n", "mean", "95 % from", "to", "skipped", "errors"],
            [[metric[name] for name in _METRIC] for metric in summary["metrics"]],
        )


def _read_settings(evaluators: list[str] | None, settings: Path | None, file: Path) -> JsonObject | None:
    if settings is not None and str(settings) == str(file) == "-":
        raise ConfigurationError("The standard input cannot be both the records and the --file.")
    wanted = read_document(settings) if settings is not None else None
    if not evaluators:
        return wanted
    wanted = {} if wanted is None else wanted
    present = wanted.get("evaluators") or []
    if not isinstance(present, list):
        raise ConfigurationError(f"{settings}: `evaluators` is no list, so that --evaluator cannot add to it.")
    return {**wanted, "evaluators": [*cast("list[Any]", present), *({"name": name} for name in evaluators)]}


@contextlib.contextmanager
def _open(file: Path) -> Generator[IO[bytes]]:
    if str(file) == "-":
        yield open_input()
        return
    try:
        stream = file.open("rb")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}.") from error
    with stream:
        yield stream
