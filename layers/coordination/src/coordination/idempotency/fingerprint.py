"""What a key is bound to: a SHA-256 over the request as it was understood.

A field that has its default is left out, whether it was sent or not: so both spellings of one request are one, and a
request keeps its fingerprint when a deployment adds an optional field (docs/decisions/0041).
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from records.canonical_json import NotCanonicalError, canonical_json

from coordination.errors import InvalidRequestError


def fields_to_compare(request: BaseModel) -> dict[str, Any]:
    """Return a validated request as JSON values, without the fields that have their default.

    A model whose absent fields mean something else than their defaults (PATCH) writes what was sent by a serializer of
    its own, which is to take the values itself: a wrapped one is given no field that has its default.
    """
    if not type(request).model_fields:
        return {}
    return request.model_dump(mode="json", exclude_defaults=True)


def fingerprint_request(
    operation_id: str,
    path: Mapping[str, str],
    query: Mapping[str, Any],
    body: Any,
    content_sha256: str | None,
) -> bytes:
    """Fingerprint a validated request.

    Parameters
    ----------
    operation_id
        The operation's constant name; renaming code never changes it.
    path, query
        Parameters as typed JSON values, by `fields_to_compare`. They stand apart by name, so that no two paths collide.
    body
        The validated body as JSON values, by `fields_to_compare`; None for an absent, null or empty one.
    content_sha256
        Of a raw upload's bytes, 64 hex digits; else None.

    Returns
    -------
    bytes
        SHA-256 (32 bytes) over the canonical JSON (RFC 8785) of all of it.

    Raises
    ------
    InvalidRequestError
        It has no canonical JSON: nested too deeply, a number that is not finite.
    """
    request = {
        "operation": operation_id,
        "path": dict(path),
        "query": dict(query),
        "body": body,
        "content_sha256": content_sha256,
    }
    try:
        return hashlib.sha256(canonical_json(request)).digest()
    except NotCanonicalError as error:
        raise InvalidRequestError(f"The request cannot be written as canonical JSON: {error}.") from error
