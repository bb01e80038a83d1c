"""`evalward pending`."""

from dataclasses import asdict
from typing import Annotated

import typer

from evalward.command_line.options import AsJson, Yes
from evalward.command_line.output import say, show, show_list
from evalward.command_line.session import confirm
from evalward.configuration import pending_folder
from evalward.errors import ConfigurationError
from evalward.pending_writes import PendingWrites

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_pending(as_json: AsJson = False) -> None:
    """List interrupted writes of this machine, oldest first. The same command, sent again, finishes one."""
    del as_json
    writes = [asdict(write) for write in PendingWrites(pending_folder()).entries()]
    names = ("name", "operation", "target", "started_at")
    show_list(writes, {name: name for name in names})


@app.command("forget")
def forget_pending(
    name: Annotated[str, typer.Argument(help="As `evalward pending list` shows it.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget an interrupted write, after you have looked whether it happened: a repeat will be a new write."""
    del as_json
    confirm("A repeat will be a new write, also if the first one happened. Forget it?", is_agreed=yes)
    if not PendingWrites(pending_folder()).forget(name):
        raise ConfigurationError(f"There is no pending write {name}: `evalward pending list` shows what there is.")
    show({"forgotten": name}, lambda: say(f"Forgot {name}."))
