"""docs/cli.md names every command and every exit status, and every command has an example."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from evalward.command_line.examples import EXAMPLES
from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.main import app
from typer.main import get_command
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "cli.md").read_text()
SCHEMAS = json.loads((ROOT / "functions/api/api/reference/openapi.json").read_text())["components"]["schemas"]


def describe(command: Any, path: str = "evalward") -> dict[str, str]:
    if not hasattr(command, "commands"):
        return {path: " ".join(command.help.split("\n\n")[0].split())}
    described: dict[str, str] = {}
    for name, one in command.commands.items():
        described |= describe(one, f"{path} {name}")
    return described


COMMANDS = describe(get_command(app))
ROWS = re.findall(r"^\| `(evalward [^`]*)` \| (.*?) \| (.*) \|$", DOCUMENT, re.MULTILINE)


def test_every_command_is_named_with_what_it_does() -> None:
    assert {name: does for name, does, _ in ROWS} == COMMANDS


def test_what_json_prints_is_in_the_reference() -> None:
    linked = [(name, anchor) for _, _, prints in ROWS for name, anchor in re.findall(r"\[(\w+)\]\(([^)]*)\)", prints)]
    assert len(linked) > 40
    assert [name for name, _ in linked if name not in SCHEMAS] == []
    assert [anchor for name, anchor in linked if anchor != f"api.md#schema-{name.lower()}"] == []


def test_every_exit_status_is_named() -> None:
    rows = re.findall(r"^\| (\d+) \| (\w+) \|", DOCUMENT, re.MULTILINE)
    assert rows == [(str(int(code)), code.name.lower()) for code in ExitCode]


def test_every_command_has_an_example_of_itself() -> None:
    assert {f"evalward {name}" for name in EXAMPLES} == COMMANDS.keys()
    assert [name for name, text in EXAMPLES.items() if not text.startswith(f"evalward {name}")] == []


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_ends_with_the_example_as_it_is_typed(command: str) -> None:
    shown = CliRunner().invoke(app, [*command.split(), "--help"], terminal_width=80)
    assert shown.exit_code == 0
    # Two spaces further in, as all of help is.
    lines = [line.removeprefix("  ") for line in shown.output.rstrip().splitlines()]
    assert "\n".join(lines).endswith(f"\nExample:\n{EXAMPLES[command]}")
    assert max(map(len, EXAMPLES[command].splitlines())) <= 76
