"""The OpenAPI 3.1 document, made from the declarations of the operations."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from coordination.access import INSTALLATION_PERMISSIONS
from coordination.errors import ProblemError
from coordination.http.operation import Operation, PublicPage
from coordination.models import QueryModel
from coordination.version import VERSION

_REF = "#/components/schemas/{model}"
_DESCRIPTION = (
    "Evaluation pipelines that survive retries, crashes and time. Send your API key with every request: "
    "`Authorization: Bearer ew_…`. Every write takes an `Idempotency-Key`: repeated "
    "with the same request it is answered from the stored outcome (`Idempotency-Replayed: true`), with another request "
    "it is refused (422 `idempotency_key_reused`). Errors are `application/problem+json` with a stable `code`."
)
# In the order in which somebody meets them.
_TAGS = {
    "reference": "What the service says of itself.",
    "whoami": "Whose key this is.",
    "projects": "The tenants. All the rest but keys and the audit trail belongs to one.",
    "keys": "API keys with grants: a project, and a role or permissions there.",
    "datasets": "Published files: every row was checked, and the content has one SHA-256.",
    "uploads": "Files of more than 4 MiB: reserve, PUT, finalize.",
    "imports": "Files in the bucket on their way to a dataset.",
    "evaluators": "What can score a record.",
    "runs": "One evaluation of a dataset or of a window: results, report, comparison.",
    "evaluate": "A few records at once, frame by frame, without a run.",
    "sources": "Scheduled pulls of traces, and what became of each window.",
    "webhooks": "Endpoints that are told what happened (Standard Webhooks).",
    "failures": "What went wrong, grouped by cause.",
    "claims": "Keyed writes of a project whose outcome is not known.",
    "installation_claims": "The same for writes outside projects.",
    "audit": "Who wrote what, and what was denied.",
    "doctor": "Checks of the installation.",
}
_ALL_ERRORS = (400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 503)
_PROBLEM: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "stable, snake_case"},
        "detail": {"type": "string", "description": "what happened and what to do"},
        "request_id": {"type": "string", "description": "also in the header x-request-id and in the logs"},
        "errors": {
            "type": "array",
            "description": "the places that are wrong: a JSON Pointer, or row and field of a dataset",
            "items": {"type": "object"},
        },
    },
}


def build_openapi(operations: Sequence[Operation], pages: Sequence[PublicPage]) -> dict[str, Any]:
    """Make the document.

    Parameters
    ----------
    operations, pages
        Of all functions that serve HTTP.

    Returns
    -------
    dict
        JSON values; the same declarations make the same document.
    """
    models = _collect_models(operations, pages)
    refs, definitions = models_json_schema(
        [(model, "validation" if model in _requests(operations) else "serialization") for model in models],
        ref_template=_REF,
    )
    schemas: dict[Any, Any] = {model: refs[model, mode] for model, mode in refs}
    shared = definitions.get("$defs", {}) | {"Problem": _PROBLEM}
    for operation in operations:
        shared |= operation.query.model_json_schema(ref_template=_REF).get("$defs", {})
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, schemas)
    for page in pages:
        paths.setdefault(page.path, {})["get"] = _describe_page(page, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "evalward", "version": VERSION, "description": _DESCRIPTION},
        "tags": _list_tags(paths),
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(shared.items())),
            "responses": {f"Error{status}": _describe_error(status) for status in _ALL_ERRORS},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": "an API key: ew_…"}},
        },
    }


def _list_tags(paths: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    used = {tag for methods in paths.values() for operation in methods.values() for tag in operation["tags"]}
    known = [{"name": name, "description": text} for name, text in _TAGS.items() if name in used]
    return known + [{"name": name, "description": ""} for name in sorted(used - _TAGS.keys())]


def _requests(operations: Sequence[Operation]) -> set[type[BaseModel]]:
    return {operation.body for operation in operations if operation.body is not None}


def _collect_models(operations: Sequence[Operation], pages: Sequence[PublicPage]) -> list[type[BaseModel]]:
    models = _requests(operations)
    models |= {model for operation in operations for model in operation.responses.values() if model is not None}
    models |= {page.response for page in pages if page.response is not None}
    return sorted(models, key=lambda model: model.__name__)


def _describe(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.summary,
        "description": _needs(operation),
        "tags": [operation.id.split(".")[0]],
        "security": [{"key": []}],
        "parameters": _parameters(operation),
        "responses": _responses(operation, schemas),
    }
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[operation.body]}},
        }
    elif operation.max_content_bytes:
        described["requestBody"] = {
            "required": True,
            "description": (
                f"{operation.content_meaning}. At most {operation.max_content_bytes} bytes; the content type is not "
                "looked at."
            ),
            "content": {operation.content_type: {"schema": {"type": "string", "format": "binary"}}},
        }
    return described


def _needs(operation: Operation) -> str:
    if operation.permission is None:
        return "Needs any grant on the project." if "{project}" in operation.path else "Needs any valid key."
    where = " in a grant whose project is `*`" if operation.permission in INSTALLATION_PERMISSIONS else ""
    return f"Needs the permission `{operation.permission}`{where}."


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in operation.path_pattern.groupindex
    ]
    parameters += _query_parameters(operation.query)
    if operation.idempotency is not None:
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "description": "1 to 128 visible ASCII characters; the same key makes the write take effect once",
                "schema": {"type": "string", "minLength": 1, "maxLength": 130},
            }
        )
    return parameters


def _query_parameters(model: type[QueryModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema(ref_template=_REF)
    required = set(schema.get("required", []))
    parameters: list[dict[str, Any]] = []
    for name, field in schema.get("properties", {}).items():
        described = {key: value for key, value in field.items() if key not in {"title", "description"}}
        parameters.append(
            {
                "name": name,
                "in": "query",
                "required": name in required,
                "description": field.get("description", ""),
                "schema": described,
            }
        )
    return parameters


def _responses(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, model in sorted(operation.responses.items()):
        responses[str(status)] = {"description": operation.summary}
        if model is not None:
            others = {media_type: {"schema": {"type": "string"}} for media_type in operation.other_content_types}
            responses[str(status)]["content"] = {"application/json": {"schema": schemas[model]}} | others
    for status in sorted(_error_statuses(operation)):
        responses[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
    return responses


def _describe_error(status: int) -> dict[str, Any]:
    errors = sorted(
        ((error.code, error) for error in ProblemError.__subclasses__() if error.status == status),
        key=lambda one: one[0],
    )
    errors = errors or [(ProblemError.code, ProblemError)]
    return {
        "description": ", ".join(code for code, _ in errors),
        "content": {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}},
        "x-codes": {code: _meaning(error) for code, error in errors},
    }


def _meaning(error: type[ProblemError]) -> str:
    """Return what an error's docstring says first, in one line."""
    return " ".join((error.__doc__ or error.title).split("\n\n")[0].split())


def _error_statuses(operation: Operation) -> set[int]:
    statuses = {400, 401, 404, 500, 503}
    if operation.permission is not None:
        statuses.add(403)
    if operation.body is not None:
        statuses |= {413, 415}
    if operation.max_content_bytes:
        statuses.add(413)
    if operation.idempotency is not None:
        statuses |= {409, 422, 429}
    return statuses | operation.error_statuses


def _describe_page(page: PublicPage, schemas: dict[Any, Any]) -> dict[str, Any]:
    schema = {"schema": schemas[page.response]} if page.response is not None else {}
    responses: dict[str, Any] = {"200": {"description": page.summary, "content": {page.content_type: schema}}}
    if page.response is not None:
        responses["503"] = {"description": "degraded", "content": {page.content_type: schema}}
    return {
        "operationId": page.id,
        "summary": page.summary,
        "tags": ["reference"],
        "security": [],
        "parameters": [],
        "responses": responses,
    }
