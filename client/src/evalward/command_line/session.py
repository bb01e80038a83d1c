"""What a command works with: the client, the project, lists cut to a length."""

import contextlib
import sys
from collections.abc import Generator, Iterator
from itertools import islice

import typer

from evalward.client import Client
from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.output import say
from evalward.command_line.selection import find_nearest
from evalward.configuration import Login, find_login, pending_folder, read_patience
from evalward.errors import ConfigurationError, EvalwardError, ProblemError
from evalward.pending_writes import PendingWrites
from evalward.transport import JsonObject

_LOOKED_AT = 1000
_SHOWN = 5


class Session:
    """A client and what its login says.

    Parameters
    ----------
    client
        Calls the API.
    login
        Where and as whom.

    Attributes
    ----------
    on_interrupt
        What somebody who interrupts the command is told.
    """

    def __init__(self, client: Client, login: Login) -> None:
        self.client = client
        self.on_interrupt = "Interrupted. A write that was on its way goes on when the same command is sent again."
        self._login = login
        self._project: str | None = None

    def project(self, named: str | None) -> str:
        """Return the project a command works in.

        Raises
        ------
        ConfigurationError
            It names none, and neither do the environment and the login.
        """
        project = named or self._login.project
        if not project:
            raise ConfigurationError("No project: give --project, set EVALWARD_PROJECT, or log in with --project.")
        self._project = project
        return project

    def explain_not_found(self) -> str | None:
        """Say whether the key sees the command's project, and which others; None when there is none to look for."""
        if self._project is None:
            return None
        try:
            seen = [str(project["id"]) for project in islice(self.client.projects.each(), _LOOKED_AT)]
        except EvalwardError:
            return None
        if self._project in seen:
            return (
                f"The project {self._project} is there; its lists (`evalward runs list`, `evalward datasets list`, …) "
                "show what is in it."
            )
        nearest = find_nearest(self._project, seen)
        meant = f" Did you mean {nearest}?" if nearest else ""
        if not seen:
            return "This key sees no project: `evalward whoami` shows its grants."
        shown = ", ".join(sorted(seen)[:_SHOWN]) + (", …" if len(seen) > _SHOWN else "")
        return f"This key sees no project {self._project}.{meant} It sees {shown} (`evalward projects list`)."


@contextlib.contextmanager
def open_session() -> Generator[Session]:
    """Give a session while the block runs. Keys of writes that do not end are kept in files."""
    login = find_login()
    keys = PendingWrites(pending_folder(), say=say)
    with Client(login.api_url, login.api_key, keys=keys, patience_seconds=read_patience(), say=say) as client:
        session = Session(client, login)
        try:
            yield session
        except KeyboardInterrupt:
            say(session.on_interrupt)
            raise
        except ProblemError as error:
            if error.code == "not_found" and (found := session.explain_not_found()):
                error.add_note(found)
            raise


def take(items: Iterator[JsonObject], limit: int) -> tuple[list[JsonObject], bool]:
    """Return the first items, and whether there are more."""
    taken = list(islice(items, limit + 1))
    return taken[:limit], len(taken) > limit


def confirm(question: str, *, is_agreed: bool) -> None:
    """Ask before something is gone.

    Raises
    ------
    typer.Exit
        The answer is no, or none: Ctrl-C.
    ConfigurationError
        There is nobody to ask.
    """
    if is_agreed:
        return
    check_somebody_is_there("--yes")
    try:
        is_agreed = typer.confirm(question, err=True)
    except typer.Abort:
        say("\nNothing was done.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if not is_agreed:
        say("Nothing was done.")
        raise typer.Exit(ExitCode.REFUSED)


def check_somebody_is_there(option: str) -> None:
    """Check that a question can be asked.

    Raises
    ------
    ConfigurationError
        There is nobody to ask; it names the option to give instead.
    """
    # A closed standard input is none at all.
    if sys.stdin is None or not sys.stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError(f"There is nobody to ask: give {option}.")
