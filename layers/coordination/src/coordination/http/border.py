"""From an API Gateway event to a use case and back.

The order of checks is the same for every operation: authentication, visibility of the project, permission, validation,
idempotency. A keyed call reads its stored outcome in the round trip that authenticates it, so a replay costs one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.utilities.typing import LambdaContext

from coordination.clock import Deadline
from coordination.database import INSTALLATION
from coordination.environment import Environment, load_environment
from coordination.errors import (
    AnswerTooLargeError,
    MethodNotAllowedError,
    NotFoundError,
    PayloadTooLargeError,
    PermissionDeniedError,
    ProblemError,
)
from coordination.http.authentication import Opening, audit_denial, open_call
from coordination.http.operation import Call, Operation, PublicPage, path_pattern
from coordination.http.request import Request, read_request, read_request_id
from coordination.http.responses import HttpResponse, encode_answer, encode_error
from coordination.http.validation import read_body, read_query
from coordination.http.write_path import CAPACITY_HEADER, perform_write
from coordination.idempotency.records import count_records, outcome_not_stored

logger = Logger()

type Event = dict[str, Any]
type Handler = Callable[[Event, LambdaContext], Event]
type Headers = dict[str, str]
type Respond = Callable[[Request, Mapping[str, str], Headers], HttpResponse]


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

    def serve(respond: Respond, path: Mapping[str, str]) -> HttpResponse:
        event = app.current_event.raw_event
        request_id = read_request_id(event, app.lambda_context.aws_request_id)
        headers: Headers = {}
        try:
            request = read_request(event, request_id)
            logger.append_keys(request_id=request_id)
            response = respond(request, path, headers)
        except ProblemError as error:
            response = encode_error(error, request_id)
        except Exception:
            logger.exception("unexpected error")
            detail = "The request failed for a reason of ours; the log has it under this request_id."
            response = encode_error(ProblemError(detail), request_id)
        response.headers |= headers | {"x-request-id": request_id}
        return response

    def route(path: str, method: str, respond: Respond) -> None:
        def handle(**parameters: str) -> HttpResponse:
            return serve(respond, parameters)

        app.route(path.replace("{", "<").replace("}", ">"), method=method)(handle)

    def serve_operation(operation: Operation) -> Respond:
        def respond(request: Request, path: Mapping[str, str], headers: Headers) -> HttpResponse:
            deadline = Deadline.of_invocation(app.lambda_context)
            return _respond(operation, request, path, headers, load_environment(), deadline)

        return respond

    def serve_page(page: PublicPage) -> Respond:
        return lambda _request, _path, _headers: encode_answer(page.respond(load_environment()))

    for operation in operations:
        route(operation.path, operation.method, serve_operation(operation))
    for page in pages:
        route(page.path, "GET", serve_page(page))

    methods = [(path_pattern(one.path), one.method) for one in operations]
    methods += [(path_pattern(page.path), "GET") for page in pages]

    def refuse_route(request: Request, _path: Mapping[str, str], headers: Headers) -> HttpResponse:
        allowed = sorted({method for pattern, method in methods if pattern.match(request.path)})
        # The method itself among them: the path holds a character that no route takes, so there is nothing here.
        if allowed and request.method not in allowed:
            headers["allow"] = ", ".join(allowed)
            raise MethodNotAllowedError(f"{request.method} is not possible here; {headers['allow']} is.")
        raise NotFoundError("There is no such path. GET /docs lists what there is.")

    @app.not_found
    def refuse(_error: Exception) -> HttpResponse:
        return serve(refuse_route, {})

    @logger.inject_lambda_context(clear_state=True)
    def lambda_handler(event: Event, context: LambdaContext) -> Event:
        return app.resolve(event, context)

    return lambda_handler


def _respond(
    operation: Operation,
    request: Request,
    path: Mapping[str, str],
    headers: Headers,
    environment: Environment,
    deadline: Deadline,
) -> HttpResponse:
    project = path.get("project")
    opening = open_call(environment, operation, request, project)
    try:
        response = _perform(operation, request, path, environment, deadline, opening)
    except ProblemError as error:
        if isinstance(error, PermissionDeniedError):
            # The operation itself looked closer than its declared permission does.
            audit_denial(environment, operation, opening.principal, project, request.request_id)
        if opening.key_sha256 is not None and error.status != 503:
            headers.update(_tell_what_is_left(environment, opening, project))
        raise
    if opening.key_sha256 is not None and CAPACITY_HEADER not in response.headers:
        headers.update(_tell_what_is_left(environment, opening, project))
    return response


def _tell_what_is_left(environment: Environment, opening: Opening, project: str | None) -> Headers:
    """Say how many more records the scope can take; a write that ran has counted for itself."""
    records = opening.records_in_scope
    if records is None:
        try:
            records = count_records(environment.database, project or INSTALLATION, opening.principal.id)
        except ProblemError:
            # The answer is there, only this header is not.
            return {}
    return {CAPACITY_HEADER: str(max(0, environment.settings.idempotency.max_records - records))}


def _perform(
    operation: Operation,
    request: Request,
    path: Mapping[str, str],
    environment: Environment,
    deadline: Deadline,
    opening: Opening,
) -> HttpResponse:
    query = read_query(request, operation.query)
    body = read_body(request, operation.body) if operation.body else None
    if len(request.content) > operation.max_content_bytes > 0:
        size, most = len(request.content), operation.max_content_bytes
        limit = f"The body has {size} bytes; at most {most} bytes are taken here."
        raise PayloadTooLargeError(f"{limit} {operation.too_large_advice}".rstrip())
    call = Call(
        environment=environment,
        deadline=deadline,
        request_id=request.request_id,
        principal=opening.principal,
        path=path,
        query=query,
        body=body,
        content=request.content if operation.max_content_bytes else b"",
        is_keyed=opening.key_sha256 is not None,
        accept=request.headers.get("accept") or "*/*",
    )
    if operation.idempotency is not None:
        try:
            response = perform_write(operation, operation.idempotency, call, opening)
        except AnswerTooLargeError as error:
            if opening.key_sha256 is None:
                raise
            # What a retry is told, from the first call on.
            raise outcome_not_stored() from error
        return response
    if operation.prepare is not None:
        call = replace(call, prepared=operation.prepare(call))
    with environment.database.transaction(path.get("project", INSTALLATION), is_read=True) as transaction:
        answer = operation.handle(call, transaction)
    return encode_answer(answer)
