"""The client knows every operation below /v1, by the same id and route, and calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from evalward.routes import ROUTES

ROOT = Path(__file__).parents[2]
IDS = json.loads((ROOT / "tests/contract/operation_ids.json").read_text())


def test_routes_are_those_of_the_api() -> None:
    assert {name: route for name, route in IDS.items() if " /v1/" in route} == ROUTES


@pytest.mark.parametrize("operation", sorted(ROUTES))
def test_every_operation_is_called_by_the_client(operation: str) -> None:
    calls = [path for path in (ROOT / "client/src/evalward").rglob("*.py") if path.name != "routes.py"]
    text = "\n".join(path.read_text() for path in calls)
    group, _, name = operation.partition(".")
    made = rf'f"{group}\.\{{name\}}"' if group.endswith("claims") else rf'"{re.escape(operation)}"'
    assert re.search(made, text), name
