"""The `evalward-local` command."""

import asyncio
import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table

from evalward_local import packaging
from evalward_local.code_locations import BuildMissingError
from evalward_local.custom_resources import CustomResourceError
from evalward_local.intrinsics import TemplateError
from evalward_local.kept_objects import KeptObjectsError
from evalward_local.postgres import PostgresError
from evalward_local.sample_traces import make_sample_traces
from evalward_local.stack import Stack, StackOptions, StackStartError
from evalward_local.stack_file import read_stack_file


class ObjectStore(StrEnum):
    """What plays S3."""

    MOTO = "moto"
    WEED = "weed"


app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

_START_ERRORS = (
    BotoCoreError,
    BuildMissingError,
    ClientError,
    CustomResourceError,
    KeptObjectsError,
    OSError,
    PostgresError,
    StackStartError,
    TemplateError,
)


@app.callback()
def main() -> None:
    """Run the whole bundle on this machine: no Docker, no account."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)


@app.command()
def up(
    state: Annotated[
        Path, typer.Option(help="Folder for stack.json and logs, and for the data unless ephemeral.")
    ] = Path(".local/stack"),
    template: Annotated[Path, typer.Option(help="The SAM template.")] = Path("template.yaml"),
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="Forget all data at the end.")] = False,
    built: Annotated[bool, typer.Option("--built", help="Run what `make build` made.")] = False,
    api_port: Annotated[int, typer.Option(help="Port of the HTTP API; 0 takes any free one.")] = 0,
    environments: Annotated[int, typer.Option(min=1, help="Environments a function may have.")] = 8,
    s3: Annotated[
        ObjectStore, typer.Option(help="moto: objects in memory; weed: kept in the state folder, signatures checked.")
    ] = ObjectStore.MOTO,
    parameter: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of a template parameter.")] = None,
    until_input_ends: Annotated[bool, typer.Option("--until-input-ends", hidden=True)] = False,
) -> None:
    """Run the stack in the foreground until Ctrl-C or SIGTERM."""
    if ephemeral and s3 is ObjectStore.WEED:
        raise typer.BadParameter("--ephemeral forgets what --s3 weed keeps: give one of them")
    if running := read_stack_file(state):
        typer.echo(f"a stack with this state folder already runs (pid {running.pid})", err=True)
        raise typer.Exit(1)
    options = StackOptions(
        template=template,
        state_folder=state.resolve(),
        is_ephemeral=ephemeral,
        is_built=built,
        api_port=api_port,
        environments=environments,
        parameters=dict(_split_parameter(item) for item in parameter or []),
        keeps_objects=s3 is ObjectStore.WEED,
        database_url=os.environ.get("EVALWARD_DATABASE_URL", ""),
    )
    try:
        asyncio.run(_run(options, until_input_ends=until_input_ends))
    except _START_ERRORS as error:
        typer.echo(f"cannot start: {error}", err=True)
        raise typer.Exit(1) from error


@app.command("sample-traces")
def print_sample_traces() -> None:
    """Print an OTLP file with five traces that start now, to put where a source reads."""
    typer.echo(make_sample_traces(datetime.now(UTC)))


@app.command(hidden=True)
def write_requirement_files(
    uv: Annotated[Path, typer.Option(help="The uv program.")],
    template: Annotated[Path, typer.Option(help="The SAM template.")] = Path("template.yaml"),
) -> None:
    """Write the requirements.txt files that `sam build` reads."""
    for path in packaging.write_requirements(template, uv.resolve()):
        typer.echo(path)


@app.command(hidden=True)
def finish_build(
    python: Annotated[str, typer.Option(help="An interpreter of the version Lambda runs.")],
    template: Annotated[Path, typer.Option(help="The SAM template.")] = Path("template.yaml"),
) -> None:
    """Trim and compile what `sam build` made and show its sizes; fails when a function is over Lambda's limit."""
    packaging.trim_build(template)
    packaging.compile_bytecode(template, python)
    table = Table("function", "own MB", "layers MB", "unzipped MB", "of 250 MB")
    sizes = packaging.measure_build(template)
    for size in sizes:
        megabytes = [f"{count / 1024**2:.1f}" for count in (size.function_bytes, size.layers_bytes, size.total_bytes)]
        table.add_row(size.function_id, *megabytes, f"{size.total_bytes / packaging.UNZIPPED_LIMIT_BYTES:.0%}")
    Console().print(table)
    if any(size.total_bytes > packaging.UNZIPPED_LIMIT_BYTES for size in sizes):
        raise typer.Exit(1)


if importlib.util.find_spec("evalward_local.demo") is not None:
    app.command("demo")(importlib.import_module("evalward_local.demo").demo)


async def _run(options: StackOptions, *, until_input_ends: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_input_ends:
        # The parent holds our standard input open and never writes to it.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    started_at = time.monotonic()
    async with Stack(options, typer.echo) as stack:
        starting = asyncio.ensure_future(stack.start())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            stopping.cancel()
            return
        description = starting.result()
        typer.echo(f"ready in {time.monotonic() - started_at:.1f} s")
        typer.echo(f"API      {description.api_url}")
        typer.echo(f"console  {description.api_url}/console, with the admin_key of the state")
        typer.echo(f"docs     {description.api_url}/docs")
        typer.echo(f"control  {description.control_url}")
        typer.echo(f"state    {options.state_folder / 'stack.json'}")
        typer.echo(f"log in   evalward login --stack {options.state_folder / 'stack.json'}")
        if options.is_ephemeral:
            typer.echo("This stack is ephemeral: its database, objects and messages go when it stops.")
        elif options.keeps_objects:
            typer.echo("The database, the secrets and the objects are kept; messages are sent again as they are due.")
        else:
            typer.echo("The database and the secrets are kept; objects go when the stack stops (--s3 weed keeps them).")
        await stop.wait()
        typer.echo("stopping")


def _split_parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    return name, value
