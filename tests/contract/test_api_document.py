"""docs/api.md and the page at /docs say what the declarations say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from evalward_local.api_document import render_api_document
from evalward_local.openapi_document import render_openapi

ROOT = Path(__file__).parents[2]
OPENAPI = json.loads(render_openapi())
DOCUMENT = (ROOT / "docs/api.md").read_text()


def test_the_document_is_that_of_the_declarations() -> None:
    assert render_api_document(OPENAPI) == DOCUMENT, "run .venv/bin/python -m evalward_local.openapi_document"


def test_every_operation_and_every_code_is_in_it() -> None:
    names = [operation["operationId"] for methods in OPENAPI["paths"].values() for operation in methods.values()]
    assert sorted(re.findall(r"^### ([a-z_.]+)$", DOCUMENT, re.MULTILINE)) == sorted(names)
    codes = [code for response in OPENAPI["components"]["responses"].values() for code in response["x-codes"]]
    assert [code for code in codes if f"| `{code}` |" not in DOCUMENT] == []


def test_every_code_has_a_meaning_in_one_sentence() -> None:
    for response in OPENAPI["components"]["responses"].values():
        for code, meaning in response["x-codes"].items():
            assert re.fullmatch(r"[A-Z][^\n]{8,}\.", meaning), code


def test_every_kind_of_operation_has_its_place_and_a_description() -> None:
    without = [tag["name"] for tag in OPENAPI["tags"] if not tag["description"]]
    assert without == [], "add it to the tags in coordination/http/openapi.py"


def test_links_in_the_document_lead_somewhere() -> None:
    anchors = {f"#schema-{name.lower()}" for name in re.findall(r"^### Schema (\S+)$", DOCUMENT, re.MULTILINE)}
    assert set(re.findall(r"\]\((#[^)]*)\)", DOCUMENT)) <= anchors
