"""From an API Gateway event to a use case and back.

The order of checks is the same for every operation: authentication, visibility of the project, permission, validation,
idempotency. A keyed call reads its stored outcome in the round trip that authenticates it, so a replay costs one.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.utilities.typing import LambdaContext
from pydantic import TypeAdapter

from coordination.access import Grant, Principal, Token, parse_token
from coordination.clock import Deadline
from coordination.database import INSTALLATION, Transaction
from coordination.environment import Environment, load_environment
from coordination.errors import (
    MethodNotAllowedError,
    NotFoundError,
    PayloadTooLargeError,
    PermissionDeniedError,
    ProblemError,
    UnauthenticatedError,
)
from coordination.http.operation import Answer, Call, Operation, PublicPage, path_pattern
from coordination.http.problem import CONTENT_TYPE, encode_problem
from coordination.http.request import Request, read_request
from coordination.http.validation import read_body, read_query
from coordination.idempotency.fingerprint import fingerprint_request
from coordination.idempotency.key import digest_key, parse_idempotency_key
from coordination.idempotency.local_write import (
    KeyedWrite,
    StoredAnswer,
    perform_local_write,
    replay,
    submit_read_outcome,
)
from coordination.queries import load_queries

logger = Logger()

_GRANTS = TypeAdapter(list[Grant])
_QUERIES = load_queries("access")
_REPLAYED = {"idempotency-replayed": "true"}
_TEXT_TYPES = ("application/json", "application/problem+json", "text/")

type Event = dict[str, Any]
type Handler = Callable[[Event, LambdaContext], Event]
type Respond = Callable[[Request, Mapping[str, str]], Response[str | bytes]]


def make_handler(operations: Sequence[Operation], pages: Sequence[PublicPage] = ()) -> Handler:
    """Make a Lambda handler that serves operations and public pages.

    Parameters
    ----------
    operations, pages
        The declarations; no two may have the same method and path.

    Returns
    -------
    Handler
        Answers every event; an error in it is a problem document, never an exception.
    """
    app = APIGatewayHttpResolver()

    def serve(respond: Respond, path: Mapping[str, str]) -> Response[str | bytes]:
        request_id = app.lambda_context.aws_request_id
        try:
            request = read_request(app.current_event.raw_event, request_id)
            request_id = request.request_id
            logger.append_keys(request_id=request_id)
            return _finish(respond(request, path), request_id)
        except ProblemError as error:
            return _finish(_problem_response(error, request_id), request_id)
        except Exception:
            logger.exception("unexpected error")
            error = ProblemError("The request failed for a reason of ours; the log has it under this request_id.")
            return _finish(_problem_response(error, request_id), request_id)

    def route(path: str, method: str, respond: Respond) -> None:
        def handle(**parameters: str) -> Response[str | bytes]:
            return serve(respond, parameters)

        app.route(path.replace("{", "<").replace("}", ">"), method=method)(handle)

    def serve_operation(operation: Operation) -> Respond:
        def respond(request: Request, path: Mapping[str, str]) -> Response[str | bytes]:
            return _respond(operation, request, path, load_environment(), Deadline.of_invocation(app.lambda_context))

        return respond

    def serve_page(page: PublicPage) -> Respond:
        return lambda _request, _path: _response(page.respond(load_environment()))

    for operation in operations:
        route(operation.path, operation.method, serve_operation(operation))
    for page in pages:
        route(page.path, "GET", serve_page(page))

    methods = [(path_pattern(one.path), one.method) for one in operations]
    methods += [(path_pattern(page.path), "GET") for page in pages]

    def refuse_route(request: Request, _path: Mapping[str, str]) -> Response[str | bytes]:
        allowed = sorted({method for pattern, method in methods if pattern.match(request.path)})
        if allowed:
            response = _problem_response(
                MethodNotAllowedError(f"{request.method} is not possible here; {', '.join(allowed)} is."),
                request.request_id,
            )
            response.headers["allow"] = ", ".join(allowed)
            return response
        raise NotFoundError("There is no such path. GET /docs lists what there is.")

    @app.not_found
    def refuse(_error: Exception) -> Response[str | bytes]:
        return serve(refuse_route, {})

    @logger.inject_lambda_context(clear_state=True)
    def lambda_handler(event: Event, context: LambdaContext) -> Event:
        return app.resolve(event, context)

    return lambda_handler


def _respond(
    operation: Operation, request: Request, path: Mapping[str, str], environment: Environment, deadline: Deadline
) -> Response[str | bytes]:
    tenant = path.get("project", INSTALLATION)
    header = request.headers.get("idempotency-key") if operation.idempotency else None
    principal, record, project_exists, key_error = _authenticate(environment, request, path.get("project"), header)
    _authorize(environment, operation, request, principal, path.get("project"), project_exists=project_exists)
    if key_error is not None:
        raise key_error
    query = read_query(request, operation.query)
    body = read_body(request, operation.body) if operation.body else None
    if len(request.content) > operation.max_content_bytes > 0:
        raise PayloadTooLargeError(_too_large(operation, len(request.content)))
    call = Call(
        environment=environment,
        deadline=deadline,
        request_id=request.request_id,
        principal=principal,
        path=path,
        query=query,
        body=body,
        content=request.content if operation.max_content_bytes else b"",
    )
    if operation.idempotency is None:
        if operation.prepare is not None:
            call = replace(call, prepared=operation.prepare(call))
        with environment.database.transaction(tenant) as transaction:
            answer = operation.handle(call, transaction)
        return _response(answer)
    write = None
    if header is not None:
        write = KeyedWrite(
            tenant=tenant,
            principal=principal.id,
            key_sha256=digest_key(parse_idempotency_key(header)),
            operation=operation.id,
            fingerprint=_fingerprint(operation, call),
        )
        if record is not None:
            return _replay_response(replay(record, write.fingerprint))
    if operation.prepare is not None:
        call = replace(call, prepared=operation.prepare(call))
    return _write(operation, call, write, tenant)


def _write(operation: Operation, call: Call, write: KeyedWrite | None, tenant: str) -> Response[str | bytes]:
    """Run a write, keyed or not, in one transaction."""
    database = call.environment.database
    contract = operation.idempotency
    assert contract is not None  # noqa: S101 - only writes come here

    def effect(transaction: Transaction) -> tuple[Answer, StoredAnswer]:
        answer = operation.handle(call, transaction)
        transaction.submit(
            _QUERIES["insert_audit_event"], _audit_event(operation, call.principal, tenant, call.request_id, "allowed")
        )
        headers = {name: value for name, value in answer.headers.items() if name in contract.stored_headers}
        headers["content-type"] = answer.content_type
        return answer, StoredAnswer(answer.status, headers, answer.encode_body(contract.secret_fields))

    if write is None:
        with database.transaction(tenant) as transaction:
            answer, _ = effect(transaction)
        return _response(answer)
    outcome = perform_local_write(database, write, call.environment.settings.idempotency, effect)
    if isinstance(outcome, StoredAnswer):
        return _replay_response(outcome)
    response = _response(outcome.result)
    if outcome.records_left is not None:
        response.headers["idempotency-capacity-remaining"] = str(outcome.records_left)
    return response


def _authenticate(
    environment: Environment, request: Request, project: str | None, idempotency_header: str | None
) -> tuple[Principal, Mapping[str, Any] | None, bool, ProblemError | None]:
    """Find the caller and, in the same round trip, the stored outcome of its key.

    Returns the principal, the live record, whether the project exists, and what is wrong with the Idempotency-Key
    (reported only after authorization).
    """
    token = _read_token(request)
    params = {"key_id": token.key_id, "secret_sha256": token.secret_sha256, "project": project}
    key_error: ProblemError | None = None
    key_sha256 = None
    if idempotency_header is not None:
        try:
            key_sha256 = digest_key(parse_idempotency_key(idempotency_header))
        except ProblemError as error:
            key_error = error
    if key_sha256 is None:
        row, record = environment.database.fetch_one(_QUERIES["authenticate"], params), None
    else:
        tenant = project or INSTALLATION
        with environment.database.transaction(tenant) as transaction:
            caller = transaction.submit(_QUERIES["authenticate"], params)
            outcome = submit_read_outcome(transaction, tenant, f"key:{token.key_id}", key_sha256)
        row, record = caller.fetchone(), outcome.fetchone()
    if row is None or row["is_expired"]:
        raise UnauthenticatedError("The API key is unknown, deleted or expired. Ask for a new one.")
    principal = Principal(f"key:{row['id']}", row["name"], _GRANTS.validate_python(row["grants"]))
    return principal, record, row["project"] is not None, key_error


def _authorize(
    environment: Environment,
    operation: Operation,
    request: Request,
    principal: Principal,
    project: str | None,
    *,
    project_exists: bool,
) -> None:
    if project is not None and not (project_exists and principal.sees(project)):
        raise NotFoundError(f"There is no project {project!r}, or your key has no grant on it."[:300])
    if operation.permission is not None and not principal.is_allowed(operation.permission, project):
        environment.database.fetch_all(
            _QUERIES["insert_audit_event"],
            _audit_event(operation, principal, project or INSTALLATION, request.request_id, "denied"),
        )
        where = f"on project {project!r}" if project else "in a grant whose project is *"
        raise PermissionDeniedError(f"{operation.id} needs the permission {operation.permission} {where}.")


def _read_token(request: Request) -> Token:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    token = parse_token(text.strip()) if scheme.lower() == "bearer" else None
    if token is None:
        raise UnauthenticatedError("Send the header `Authorization: Bearer ew_<id>_<secret>` with your API key.")
    return token


def _fingerprint(operation: Operation, call: Call) -> bytes:
    return fingerprint_request(
        operation.id,
        call.path,
        call.query.model_dump(mode="json"),
        call.body.model_dump(mode="json") if call.body is not None else None,
        hashlib.sha256(call.content).hexdigest() if operation.max_content_bytes else None,
    )


def _audit_event(
    operation: Operation, principal: Principal, project: str, request_id: str, outcome: str
) -> dict[str, str]:
    return {
        "principal": principal.id,
        "project": project,
        "operation": operation.id,
        "outcome": outcome,
        "target": "",
        "request_id": request_id,
    }


def _too_large(operation: Operation, size: int) -> str:
    limit = f"The body has {size} bytes; {operation.id} takes at most {operation.max_content_bytes} bytes."
    return f"{limit} {operation.too_large_advice}".rstrip()


def _response(answer: Answer) -> Response[str | bytes]:
    return _encode(answer.status, answer.content_type, answer.encode_body(), answer.headers)


def _replay_response(stored: StoredAnswer) -> Response[str | bytes]:
    headers = {name: value for name, value in stored.headers.items() if name != "content-type"} | _REPLAYED
    return _encode(stored.status, stored.headers["content-type"], stored.body, headers)


def _problem_response(error: ProblemError, request_id: str) -> Response[str | bytes]:
    body, headers = encode_problem(error, request_id)
    return _encode(error.status, CONTENT_TYPE, body, headers)


def _encode(status: int, content_type: str, body: bytes, headers: Mapping[str, str]) -> Response[str | bytes]:
    # Lambda carries text as it is; bytes would cross as base64, a third larger.
    is_text = content_type.startswith(_TEXT_TYPES)
    return Response(
        status_code=status,
        content_type=content_type if body else None,
        body=body.decode() if is_text else body,
        headers=dict(headers),
    )


def _finish(response: Response[str | bytes], request_id: str) -> Response[str | bytes]:
    response.headers["x-request-id"] = request_id
    return response
