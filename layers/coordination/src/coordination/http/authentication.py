"""Who calls, and whether they may. Runs before anything else, on every retry too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.rows import DictRow
from pydantic import TypeAdapter

from coordination.access import Grant, Principal, Token, parse_token
from coordination.database import INSTALLATION
from coordination.environment import Environment
from coordination.errors import (
    DatabaseUnavailableError,
    NotFoundError,
    PermissionDeniedError,
    ProblemError,
    UnauthenticatedError,
)
from coordination.http.operation import Operation
from coordination.http.request import Request
from coordination.idempotency.key import digest_key, parse_idempotency_key
from coordination.queries import load_queries

_GRANTS = TypeAdapter(list[Grant])
_QUERIES = load_queries("access")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What the first round trip of a call brings.

    Attributes
    ----------
    principal
        Who calls.
    project_exists
        Whether the project in the path does.
    key_sha256
        SHA-256 of the Idempotency-Key; None without one.
    record
        The key's live record, if any.
    records_in_scope
        Live records of the caller's scope; None when it was not counted.
    """

    principal: Principal
    project_exists: bool
    key_sha256: bytes | None
    record: Mapping[str, Any] | None
    records_in_scope: int | None


def open_call(environment: Environment, operation: Operation, request: Request, project: str | None) -> Opening:
    """Authenticate and authorize a call; a keyed one reads its stored outcome in the same round trip.

    Raises
    ------
    UnauthenticatedError
        No key, an unknown one, an expired one.
    NotFoundError
        The project is not there, or the key has no grant on it.
    PermissionDeniedError
        The key lacks the operation's permission; the denial is audited.
    InvalidIdempotencyKeyError
        The header cannot be a key; reported only to those who may call.
    """
    header = request.headers.get("idempotency-key") if operation.idempotency else None
    key_sha256, key_error = None, None
    if header is not None:
        try:
            key_sha256 = digest_key(parse_idempotency_key(header))
        except ProblemError as error:
            key_error = error
    opening = _authenticate(environment, _read_token(request), project, key_sha256)
    _authorize(environment, operation, request, opening, project)
    if key_error is not None:
        raise key_error
    return opening


def audit_event(
    operation: Operation, principal: Principal, project: str | None, request_id: str, outcome: str, target: str = ""
) -> dict[str, str]:
    """Return the parameters of `insert_audit_event`; the target is what the path names inside the project."""
    return {
        "principal": principal.id,
        "project": project or INSTALLATION,
        "operation": operation.id,
        "outcome": outcome,
        "target": target,
        "request_id": request_id,
    }


def audit_denial(
    environment: Environment, operation: Operation, principal: Principal, project: str | None, request_id: str
) -> None:
    """Note that a call was denied, in a statement of its own: the denied call's transaction leaves nothing."""
    environment.database.fetch_all(
        _QUERIES["insert_audit_event"], audit_event(operation, principal, project, request_id, "denied")
    )


def _read_token(request: Request) -> Token:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    token = parse_token(text.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise UnauthenticatedError("Send the header `Authorization: Bearer ew_<id>_<secret>` with your API key.")
    return token


def _authenticate(environment: Environment, token: Token, project: str | None, key_sha256: bytes | None) -> Opening:
    try:
        row = _read_caller(environment, token, project, key_sha256)
    except DatabaseUnavailableError:
        # A connection that died unnoticed while the environment was frozen. Nothing has begun: once more on a new one.
        row = _read_caller(environment, token, project, key_sha256)
    if row is None or row["is_expired"]:
        raise UnauthenticatedError("The API key is unknown, deleted or expired. Ask for a new one.")
    return Opening(
        principal=Principal(f"key:{row['caller']}", row["caller_name"], _GRANTS.validate_python(row["grants"])),
        project_exists=row["project"] is not None,
        key_sha256=key_sha256,
        record=row if row.get("state") is not None else None,
        records_in_scope=row.get("records"),
    )


def _read_caller(
    environment: Environment, token: Token, project: str | None, key_sha256: bytes | None
) -> DictRow | None:
    """Read the caller's key and, for a keyed call, its live record and the count of its scope: one round trip."""
    params = {"key_id": token.key_id, "secret_sha256": token.secret_sha256, "project": project}
    scope = {"tenant": project or INSTALLATION, "key_sha256": key_sha256}
    return environment.database.fetch_one(_QUERIES["open_call"], params | scope)


def _authorize(
    environment: Environment, operation: Operation, request: Request, opening: Opening, project: str | None
) -> None:
    principal = opening.principal
    if project is not None and not (opening.project_exists and principal.sees(project)):
        raise NotFoundError(f"There is no project {project!r}, or your key has no grant on it."[:300])
    if operation.permission is not None and not principal.is_allowed(operation.permission, project):
        audit_denial(environment, operation, principal, project, request.request_id)
        where = f"on project {project!r}" if project else "in a grant whose project is *"
        raise PermissionDeniedError(f"{operation.id} needs the permission {operation.permission} {where}.")
