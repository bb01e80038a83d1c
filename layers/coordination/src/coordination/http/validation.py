"""Bodies, query parameters and ids in paths into what they mean, faults into JSON Pointers."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Never, cast
from uuid import UUID

from pydantic import BaseModel, ValidationError

from coordination.errors import (
    Fault,
    InvalidRequestError,
    NotFoundError,
    PayloadTooLargeError,
    UnsupportedMediaTypeError,
)
from coordination.http.request import Request
from coordination.text_rules import explain_pattern

MAX_JSON_BYTES = 1024 * 1024
_MAX_FAULTS = 20
_MAX_INTEGER_DIGITS = 20


def read_body[Model: BaseModel](request: Request, model: type[Model]) -> Model:
    """Validate the JSON body of a request.

    Raises
    ------
    UnsupportedMediaTypeError
        The content type is another than application/json.
    PayloadTooLargeError
        Over 1 MiB.
    InvalidRequestError
        Not JSON (RFC 8259; duplicate names, NaN and NUL characters are refused too), or not what the model allows.
    """
    media_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media_type != "application/json":
        sent = f"it was {media_type}" if media_type else "it was not sent"
        raise UnsupportedMediaTypeError(f"Send the header `content-type: application/json`; {sent}.")
    if len(request.content) > MAX_JSON_BYTES:
        raise PayloadTooLargeError(
            f"The body has {len(request.content)} bytes, a JSON body may have {MAX_JSON_BYTES} bytes."
        )
    text = _decode(request.content)
    value = parse_json_object(text)
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InvalidRequestError.at(read_faults(error, value)) from error


def read_query[Model: BaseModel](request: Request, model: type[Model]) -> Model:
    """Validate the query parameters of a request.

    Raises
    ------
    InvalidRequestError
        One is unknown, stands twice, or has a value that is not allowed.
    """
    fields = request.query_fields()
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        faults = [Fault(fault.pointer, f"query parameter: {fault.message}") for fault in read_faults(error, fields)]
        raise InvalidRequestError.at(faults) from error


def read_path_id(reference: str, what: str) -> UUID:
    """Read the id of a resource out of the path; `what` it is, for people.

    Raises
    ------
    NotFoundError
        It is no UUID.
    """
    try:
        return UUID(reference)
    except ValueError:
        raise NotFoundError(f"There is no such {what}; its id is a UUID.") from None


def read_faults(error: ValidationError, value: Any) -> list[Fault]:
    """Turn pydantic's errors in a JSON value into pointers and messages; values, maybe secret, are not repeated.

    The value is the one that was validated: it tells which parts of pydantic's places stand in it.
    """
    details = error.errors(include_url=False, include_context=True, include_input=False)
    return [Fault(json_pointer(_place(detail["loc"], value)), _explain(detail)) for detail in details[:_MAX_FAULTS]]


def json_pointer(location: Sequence[str | int]) -> str:
    """Write a location as a JSON Pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def _place(location: Sequence[str | int], value: Any) -> list[str | int]:
    # pydantic adds parts that stand nowhere in the value: the tag of a union, and a mark for a fault in a name.
    place: list[str | int] = []
    for number, part in enumerate(location, start=1):
        if isinstance(value, dict):
            fields = cast("dict[str | int, Any]", value)
            # The last one may be a field that is missing.
            if part not in fields and (number < len(location) or part == "[key]"):
                continue
            value = fields.get(part)
        elif isinstance(value, list) and isinstance(part, int):
            value = cast("list[Any]", value)[part]
        else:
            continue
        place.append(part)
    return place


def _explain(detail: Mapping[str, Any]) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return "unknown field; take it out or correct its name"
        case "missing":
            return "the field is required"
        case "value_error":
            return str(detail["ctx"]["error"])
        case "too_short":
            return f"needs at least {_count_items(detail['ctx']['min_length'])}"
        case "too_long":
            return f"takes at most {_count_items(detail['ctx']['max_length'])}"
        case "uuid_parsing":
            return "must be an id, such as 8d1f0a52-6c3e-4b7a-9e21-5f40c7d6ab13"
        case "string_pattern_mismatch":
            pattern: str = detail["ctx"]["pattern"]
            return explain_pattern(pattern) or f"must match {pattern}"
        case _:
            message: str = detail["msg"]
            return message[:1].lower() + message[1:]


def _count_items(count: int) -> str:
    return f"{count} item{'s' if count != 1 else ''}"


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"The body is not UTF-8: byte {error.start + 1} cannot be read.") from error


def parse_json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object, refusing what a lenient parser would let through.

    Raises
    ------
    InvalidRequestError
        Not a JSON object (RFC 8259), a name twice in one object, NaN or Infinity, an integer beyond 64 bits, a number
        beyond a double, a NUL character.
    """
    if not text.strip():
        raise InvalidRequestError("The body is empty; a JSON object is needed.")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_refuse_duplicates,
            parse_constant=_refuse_constant,
            parse_int=_read_integer,
            parse_float=_read_float,
        )
    except json.JSONDecodeError as error:
        raise InvalidRequestError(
            f"The body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}."
        ) from error
    except RecursionError as error:
        raise InvalidRequestError("The body is nested too deeply.") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("The body must be a JSON object.")
    if "\\u0000" in text and _holds_nul(value):
        raise InvalidRequestError("The body holds a NUL character (\\u0000), which cannot be stored.")
    return cast("dict[str, Any]", value)


def _holds_nul(value: Any) -> bool:
    # Not recursive: what the parser takes may be nested deeper than Python's stack.
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text if "\0" in text:
                return True
            case list() as items:
                waiting += cast("list[Any]", items)
            case dict() as fields:
                for name, item in cast("dict[str, Any]", fields).items():
                    waiting += (name, item)
            case _:
                pass
    return False


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        twice = sorted(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise InvalidRequestError.at(
            [Fault(json_pointer([name]), "the name stands twice in one object") for name in twice[:_MAX_FAULTS]]
        )
    return fields


def _refuse_constant(name: str) -> Never:
    raise InvalidRequestError(f"The body holds {name}, which is not JSON.")


def _read_integer(text: str) -> int:
    # Canonical JSON, which the fingerprint of a keyed write is made of, holds no other.
    if len(text) > _MAX_INTEGER_DIGITS or not -(2**63) <= int(text) < 2**64:
        raise InvalidRequestError("The body holds an integer beyond 64 bits.")
    return int(text)


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise InvalidRequestError("The body holds a number beyond the range of a double.")
    return value
