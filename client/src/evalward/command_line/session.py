"""What a command works with: the client, the project, lists cut to a length."""

import contextlib
import sys
from collections.abc import Generator, Iterator
from itertools import islice

import typer

from evalward.client import Client
from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.output import say
from evalward.configuration import Login, find_login, pending_folder, read_patience
from evalward.errors import ConfigurationError
from evalward.pending_writes import PendingWrites
from evalward.transport import JsonObject


class Session:
    """A client and what its login says.

    Parameters
    ----------
    client
        Calls the API.
    login
        Where and as whom.
    """

    def __init__(self, client: Client, login: Login) -> None:
        self.client = client
        self._login = login

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
        return project


@contextlib.contextmanager
def open_session() -> Generator[Session]:
    """Give a session while the block runs. Keys of writes that do not end are kept in files."""
    login = find_login()
    keys = PendingWrites(pending_folder(), say=say)
    with Client(login.api_url, login.api_key, keys=keys, patience_seconds=read_patience()) as client:
        try:
            yield Session(client, login)
        except KeyboardInterrupt:
            say("Interrupted. A write that was on its way goes on when the same command is sent again.")
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
        The answer is no.
    ConfigurationError
        There is nobody to ask.
    """
    if is_agreed:
        return
    check_somebody_is_there("--yes")
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.REFUSED)


def check_somebody_is_there(option: str) -> None:
    """Check that a question can be asked.

    Raises
    ------
    ConfigurationError
        There is nobody to ask; it names the option to give instead.
    """
    if not sys.stdin.isatty():
        raise ConfigurationError(f"There is nobody to ask: give {option}.")
