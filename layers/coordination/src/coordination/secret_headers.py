"""Request headers that a project keeps in a secret of its own: what opens its targets, judges and sinks."""

import re
from typing import Any, cast

from coordination.ports.secrets import Secrets
from coordination.remote_places import find_secret_fault

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,8000}[\x21-\x7e])?")
_OWN_NAMES = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "idempotency-key", "transfer-encoding"}
)


class SecretUnusableError(Exception):
    """A secret gives no request headers; the message is for people and repeats nothing of what it holds."""


def read_secret_headers(secrets: Secrets, project: str, secret: str | None) -> dict[str, str]:
    """Return the request headers that a secret of a project holds, in lower case; none without a secret.

    Raises
    ------
    SecretUnusableError
        The project may not name it, it cannot be read, or it is no JSON object of header names and texts.
    coordination.ports.secrets.SecretUnavailableError
        Secrets Manager did not answer; another time it may.
    """
    if secret is None:
        return {}
    fault = find_secret_fault(secret, project)
    if fault is not None:
        raise SecretUnusableError(f"the secret's id {fault}")
    found: object = secrets.read_foreign(secret)
    if found is None:
        raise SecretUnusableError(f"the secret {secret} cannot be read: it is not there, no JSON, or not ours to read")
    if not isinstance(found, dict) or not found:
        raise SecretUnusableError(f"the secret {secret} is no JSON object of request headers")
    headers: dict[str, str] = {}
    for name, text in cast("dict[str, Any]", found).items():
        is_header = _NAME.fullmatch(name) and isinstance(text, str) and _VALUE.fullmatch(text)
        if not is_header or name.lower() in _OWN_NAMES:
            raise SecretUnusableError(f"the secret {secret} has a member that is no request header to be added")
        headers[name.lower()] = text
    return headers
