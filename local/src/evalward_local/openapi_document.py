"""Write the OpenAPI document, and docs/api.md of it, from the declarations of the functions that serve HTTP."""

import json
from pathlib import Path

import api.operations
import dataset_conversion.operations
import run_evaluation.operations
from coordination.http.openapi import build_openapi

from evalward_local.api_document import render_api_document

DOCUMENT = Path("functions/api/api/reference/openapi.json")
DOCUMENT_FOR_PEOPLE = Path("docs/api.md")


def render_openapi() -> str:
    """Return the document as it is checked in: JSON, two spaces, ended by a line feed."""
    operations = (
        *api.operations.OPERATIONS,
        *dataset_conversion.operations.OPERATIONS,
        *run_evaluation.operations.OPERATIONS,
    )
    return json.dumps(build_openapi(operations, api.operations.PAGES), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    openapi = render_openapi()
    DOCUMENT.write_text(openapi, encoding="utf-8")
    DOCUMENT_FOR_PEOPLE.write_text(render_api_document(json.loads(openapi)), encoding="utf-8")
