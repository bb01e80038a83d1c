"""`evalward datasets`."""

import contextlib
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from evalward.command_line.documents import read_pairs
from evalward.command_line.options import (
    AsJson,
    FileFormat,
    IdempotencyKey,
    Limit,
    Mapping,
    OutputFile,
    Project,
    ReplaceNul,
    ValidateOnly,
    Yes,
)
from evalward.command_line.output import (
    as_cell,
    as_text,
    notes,
    print_table,
    say,
    show,
    show_fields,
    show_list,
    write_file,
)
from evalward.command_line.selection import find_dataset, is_sha256
from evalward.command_line.session import confirm, open_session, take
from evalward.publish_file import WantedDataset

app = typer.Typer(no_args_is_help=True)

_Dataset = Annotated[
    str, typer.Argument(metavar="DATASET", help="NAME (its newest version), NAME@VERSION or a SHA-256.")
]


@app.command("publish")
def publish_dataset(
    file: Annotated[Path, typer.Argument(help="JSONL or Parquet, at most 64 MiB.")],
    name: Annotated[str | None, typer.Option(help="Of the dataset; by default the file's, without its ending.")] = None,
    file_format: FileFormat = None,
    mapping: Mapping = None,
    replace_nul: ReplaceNul = False,
    validate_only: ValidateOnly = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print NAME@VERSION only, as `runs create --dataset` takes it.")
    ] = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Publish a file as the next version of a dataset. Interrupted, the same command goes on and publishes once."""
    del as_json
    wanted = WantedDataset(
        name=name,
        format=file_format,
        mapping=read_pairs(mapping, "--map") if mapping else None,
        nul="replace" if replace_nul else None,
        validate_only=validate_only,
    )
    with open_session() as session, _progress(file.name) as progress:
        where = session.project(project)
        publication = session.client.datasets.publish(
            where, file, wanted, idempotency_key=idempotency_key, progress=progress
        )
    dataset = publication.dataset
    if quiet:
        sys.stdout.write("" if validate_only else f"{dataset['name']}@{dataset['version']}\n")
        return
    if validate_only:
        say(f"{file.name} is a valid dataset. Nothing was published.")
    else:
        what = "Published" if publication.is_new else "Unchanged: the newest version has this content,"
        say(f"{what} {dataset['name']}@{dataset['version']}.")
    show_fields(dataset)


@app.command("list")
def list_datasets(
    name: Annotated[str | None, typer.Option(help="Only versions of this name.")] = None,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List versions, newest first."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.datasets.each(session.project(project), name=name), limit)
    names = ("name", "version", "records", "bytes", "sha256", "created_at")
    show_list(items, {name: name for name in names}, is_cut=is_cut)


@app.command("show")
def show_dataset(dataset: _Dataset, project: Project = None, as_json: AsJson = False) -> None:
    """Read a version."""
    del as_json
    with open_session() as session:
        show_fields(find_dataset(session.client, session.project(project), dataset))


@app.command("head")
def show_records(
    dataset: _Dataset,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="How many.")] = 10,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show the first records, as they were published."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        sha256 = find_dataset(session.client, where, dataset)["sha256"]
        page = session.client.datasets.records(where, sha256, limit=limit)
    items = page["items"]
    fields = [name for name in ("id", "input", "output", "reference", "metadata") if any(name in one for one in items)]
    show_list(items, {name: _short(name) for name in fields}, is_cut=page["next_cursor"] is not None)


@app.command("content")
def get_content(
    dataset: _Dataset,
    output: OutputFile = None,
    project: Project = None,
) -> None:
    """Write the canonical JSONL, whose SHA-256 is the dataset's."""
    with open_session() as session:
        where = session.project(project)
        content = session.client.datasets.content(where, find_dataset(session.client, where, dataset)["sha256"])
    if output is None:
        sys.stdout.buffer.write(content)
    else:
        write_file(output, content)
        say(f"Wrote {len(content)} bytes to {output}.")


@app.command("delete")
def delete_dataset(
    dataset: _Dataset,
    yes: Yes = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete a content: every name and version that has it. Runs keep what they evaluated."""
    del as_json
    with open_session() as session:
        where = session.project(project)

        def find() -> str:
            if yes and is_sha256(dataset):
                return dataset
            found = find_dataset(session.client, where, dataset)
            confirm(f"Delete {found['name']}@{found['version']} ({found['records']} records)?", is_agreed=yes)
            return found["sha256"]

        answer = session.client.datasets.delete_named(where, dataset, find, idempotency_key=idempotency_key)
    show(answer, lambda: print_table(list(answer), [list(answer.values())]))


def _short(name: str) -> Callable[[Any], str]:
    def cell(item: Any) -> str:
        return as_cell(item.get(name))

    return cell


@contextlib.contextmanager
def _progress(name: str) -> Generator[Callable[[int, int], None]]:
    """Show how much of a file was sent, on a terminal."""
    console = notes()
    if not console.is_terminal:
        yield lambda _sent, _total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(as_text(name), total=None)
        yield lambda sent, total: bar.update(task, completed=sent, total=total)
