"""What README.md says is so: its table is that of the template, its places exist.

Its commands are run in tests/e2e/test_document_commands.py.
"""

import re
from typing import Any

from evalward_local.running_stack import PROJECT_FOLDER
from evalward_local.template import read_template

README = (PROJECT_FOLDER / "README.md").read_text()


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
