"""Logging in and out, and who one is."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from evalward.client import Client
from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.options import AsJson
from evalward.command_line.output import print_table, say, show
from evalward.command_line.session import check_somebody_is_there, open_session
from evalward.configuration import Login, login_file, read_patience, write_login
from evalward.errors import ConfigurationError
from evalward.transport import JsonObject, check_url


def log_in(
    api_url: Annotated[str | None, typer.Argument(metavar="URL", help="Of the API: ApiUrl of the deployment.")] = None,
    stack: Annotated[Path | None, typer.Option(help="stack.json of a local stack, instead of a URL and a key.")] = None,
    project: Annotated[str | None, typer.Option("--project", "-p", help="For commands that name none.")] = None,
    key_stdin: Annotated[bool, typer.Option("--key-stdin", help="Read the key from the standard input.")] = False,
    as_json: AsJson = False,
) -> None:
    """Store where the API is and the key to call it with, readable for you only.

    The key is asked for, and tried before it is stored. $EVALWARD_API_URL and $EVALWARD_API_KEY win over it.
    """
    del as_json
    if (api_url is None) == (stack is None):
        raise ConfigurationError("Give the URL of the API, or --stack.")
    if stack is not None:
        api_url, api_key = _read_stack(stack)
    else:
        api_key = _ask_for_key(key_stdin)
    assert api_url is not None  # noqa: S101 - one of both is given
    login = Login(check_url(api_url), api_key, project)
    with Client(login.api_url, login.api_key, patience_seconds=read_patience(), say=say) as client:
        me = client.whoami()
    path = login_file()
    write_login(path, login)
    say(f"Logged in to {login.api_url} as {me['principal']} ({me['name']}); stored in {path}.")
    show(me, lambda: None)


def log_out() -> None:
    """Forget the stored key; `evalward keys delete` makes one stop working."""
    path = login_file()
    was_there = path.exists()
    path.unlink(missing_ok=True)
    say(f"Removed {path}." if was_there else "Nothing is stored.")


def whoami(as_json: AsJson = False) -> None:
    """Tell whose key is in use and what it may do."""
    del as_json
    with open_session() as session:
        me = session.client.whoami()

    def summary() -> None:
        say(f"{me['principal']} ({me['name']}) at {session.client.transport.api_url}")
        print_table(["project", "may"], [[grant["project"], describe_grant(grant)] for grant in me["grants"]])

    show(me, summary)


def describe_grant(grant: JsonObject) -> str:
    """Return what a grant gives: the role, or the permissions."""
    return grant.get("role") or ", ".join(grant.get("permissions") or [])


def _ask_for_key(is_piped: bool) -> str:
    if is_piped:
        key = sys.stdin.readline().strip() if sys.stdin else ""
        if not key:
            raise ConfigurationError("The standard input holds no key in its first line.")
        return key
    check_somebody_is_there("--key-stdin")
    try:
        return typer.prompt("API key", hide_input=True, err=True).strip()
    except typer.Abort:
        say("\nNothing was stored.")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _read_stack(path: Path) -> tuple[str, str]:
    try:
        stack = json.loads(path.read_text())
        return stack["api_url"], stack["admin_key"]
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}. Does the stack run?") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path} is no stack.json: `make up` writes .local/stack/stack.json.") from error
