"""What README.md says is so: its commands run, its table is that of the template, its places exist."""

import os
import re
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.template import read_template

README = (PROJECT_FOLDER / "README.md").read_text()
TESTED_BLOCKS = re.findall(r"<!-- tested -->\n```sh\n(.*?)```", README, re.DOTALL)
SHELL_PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A folder that looks like the project while `make up` runs in it."""
    folder = tmp_path_factory.mktemp("project")
    for name in (".venv", "local"):
        (folder / name).symlink_to(PROJECT_FOLDER / name)
    with running_stack(folder / ".local" / "stack", environments=2):
        yield folder


def test_commands_run(folder: Path) -> None:
    assert len(TESTED_BLOCKS) == 5
    script = "\n".join(TESTED_BLOCKS)

    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=SHELL_PATIENCE_SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.count("HTTP/1.1 202") == 2
    assert done.stdout.lower().count("idempotency-replayed: true") == 1
    assert "\nsucceeded\n" in done.stdout
    assert '"metrics":[{"id":"token_f1"' in done.stdout


def test_table_of_functions_is_that_of_the_template() -> None:
    resources: dict[str, Any] = read_template(PROJECT_FOLDER / "template.yaml").resources
    functions = {
        name: f"{resource['Properties']['Timeout']} s"
        for name, resource in resources.items()
        if resource["Type"] == "AWS::Lambda::Function"
    }
    section = README.partition("## Functions")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:3] == "| `"]

    assert {row[0].strip("`"): row[-1] for row in rows} == functions


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT_FOLDER / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"\bmake ([a-z-]+)", README)) <= targets


def test_places_exist() -> None:
    section = README.partition("## Where to look next")[2]
    places = re.findall(r"`([a-z0-9_/.-]+/|template\.yaml)`", section)

    assert len(places) >= 6
    for place in places:
        bases = [PROJECT_FOLDER, PROJECT_FOLDER / "layers" / "coordination" / "src" / "coordination"]
        assert any((base / place).exists() for base in bases), place
