"""docs/api.md: the OpenAPI document for people who read Markdown."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

_HEAD = """# The API

Made by `.venv/bin/python -m evalward_local.openapi_document`: not to be edited. The same is served at `/docs` (for
people) and `/v1/openapi.json` (for machines).

"""


def render_api_document(openapi: Mapping[str, Any]) -> str:
    """Return docs/api.md of an OpenAPI document."""
    parts = [_HEAD + openapi["info"]["description"] + "\n"]
    by_tag: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation["tags"][0], []).append((method.upper(), path, operation))
    for tag in openapi["tags"]:
        parts.append(f"## {tag['name'].replace('_', ' ').capitalize()}\n\n{tag['description']}\n")
        parts += [_render_operation(*one) for one in by_tag[tag["name"]]]
    parts.append(_render_errors(openapi["components"]["responses"]))
    parts.append("## Schemas\n\n`?` marks what may be left out of a request.\n")
    parts += [_render_schema(name, schema) for name, schema in openapi["components"]["schemas"].items()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _render_operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    lines = [f"### {operation['operationId']}", "", f"`{method} {path}`", "", operation["summary"]]
    if description := operation.get("description"):
        lines[-1] += f" {description}"
    rows = [
        (f"`{one['name']}`", _type_of(one["schema"]), _describe_parameter(one))
        for one in operation["parameters"]
        if one["in"] == "query"
    ]
    lines += ["", *_table(("query", "type", "meaning"), rows)] if rows else []
    if body := operation.get("requestBody"):
        ((media_type, content),) = body["content"].items()
        what = _type_of(content["schema"]) if media_type == "application/json" else f"`{media_type}`"
        lines += ["", f"Body: {what}. {_one_line(body.get('description', ''))}".rstrip()]
    if any(one["name"] == "Idempotency-Key" for one in operation["parameters"]):
        lines += ["", "Takes an `Idempotency-Key`."]
    lines += [
        "",
        *(_render_answer(status, answer) for status, answer in operation["responses"].items() if status < "4"),
    ]
    return "\n".join(lines) + "\n"


def _render_answer(status: str, answer: Mapping[str, Any]) -> str:
    content = answer.get("content", {})
    forms = [
        _type_of(value["schema"]) if media_type == "application/json" and value.get("schema") else f"`{media_type}`"
        for media_type, value in content.items()
    ]
    return f"Answers {status}: {', '.join(forms) or 'no body'}."


def _render_errors(responses: Mapping[str, Any]) -> str:
    rows = [
        (name.removeprefix("Error"), f"`{code}`", meaning)
        for name, response in responses.items()
        for code, meaning in response["x-codes"].items()
    ]
    return "\n".join(["## Errors", "", *_table(("status", "code", "meaning"), rows)]) + "\n"


def _render_schema(name: str, schema: Mapping[str, Any]) -> str:
    lines = [f"### Schema {name}", ""]
    if text := _one_line(schema.get("description", "")):
        lines += [text, ""]
    required = set(schema.get("required", []))
    rows = [
        (f"`{field}`{'' if field in required else '?'}", _type_of(value), _describe_field(value))
        for field, value in schema.get("properties", {}).items()
    ]
    lines += _table(("field", "type", "meaning"), rows) if rows else [f"Is {_type_of(schema)}{_range(schema)}."]
    return "\n".join(lines) + "\n"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return lines + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


def _type_of(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(ref)}:
            name = ref.rpartition("/")[2]
            return f"[{name}](#schema-{name.lower()})"
        case {"anyOf": [*options]} | {"oneOf": [*options]}:
            return " or ".join(dict.fromkeys(_type_of(option) for option in options))
        case {"enum": [*values]}:
            return ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            return f"`{json.dumps(value)}`"
        case {"type": "array", "items": items}:
            return f"list of {_type_of(items)}"
        case {"type": "object", "additionalProperties": dict(values)} if values:
            return f"object of {_type_of(values)}"
        case {"type": str(kind)}:
            return kind
        case _:
            return "any"


def _describe_parameter(parameter: Mapping[str, Any]) -> str:
    needed = "needed; " if parameter["required"] else ""
    return needed + _one_line(parameter.get("description", "")) + _range(parameter["schema"])


def _describe_field(schema: Mapping[str, Any]) -> str:
    return (_one_line(schema.get("description", "")) + _range(schema)).strip()


def _range(schema: Mapping[str, Any]) -> str:
    said: list[str] = []
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
    ):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            said.append(f"{least} to {most}{unit}")
        elif most is not None:
            said.append(f"at most {most}{unit}")
        elif least is not None:
            said.append(f"at least {least}{unit}")
    if schema.get("default") is not None and not isinstance(schema["default"], (dict, list)):
        said.append(f"default `{json.dumps(schema['default'])}`")
    return f" ({', '.join(said)})" if said else ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
