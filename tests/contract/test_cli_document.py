"""docs/cli.md names every command and every exit status."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.main import app
from typer.main import get_command

DOCUMENT = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()


def describe(command: Any, path: str = "evalward") -> dict[str, str]:
    if not hasattr(command, "commands"):
        return {path: " ".join(command.help.split("\n\n")[0].split())}
    described: dict[str, str] = {}
    for name, one in command.commands.items():
        described |= describe(one, f"{path} {name}")
    return described


def test_every_command_is_named_with_what_it_does() -> None:
    rows = re.findall(r"^\| `(evalward [^`]*)` \| (.*) \|$", DOCUMENT, re.MULTILINE)
    assert dict(rows) == describe(get_command(app))


def test_every_exit_status_is_named() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", DOCUMENT, re.MULTILINE)
    assert rows == [(str(int(code)), code.name.lower()) for code in ExitCode]
