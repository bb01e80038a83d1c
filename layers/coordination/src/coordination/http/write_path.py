"""The path of a write: keyed or not, local or remote, always audited in the transaction that writes it."""

import hashlib
from dataclasses import replace
from typing import Any

from coordination.database import INSTALLATION, Transaction
from coordination.http.authentication import Opening, audit_event
from coordination.http.operation import Abandonable, Answer, Call, LocalWrite, Operation, RemoteWrite
from coordination.http.responses import HttpResponse, encode_answer, encode_replay
from coordination.idempotency.fingerprint import fields_to_compare, fingerprint_request
from coordination.idempotency.local_write import perform_local_write
from coordination.idempotency.records import KeyedWrite, Performed, StoredAnswer, replay
from coordination.idempotency.remote_write import EffectBoundary, perform_remote_write
from coordination.queries import load_queries

_QUERIES = load_queries("access")

CAPACITY_HEADER = "idempotency-capacity-remaining"
"""How many more records the caller's scope can take."""


def perform_write(
    operation: Operation, contract: LocalWrite | RemoteWrite, call: Call, opening: Opening
) -> HttpResponse:
    """Run a write, or answer it from its stored outcome.

    Raises
    ------
    ProblemError
        As the operation and its mode raise.
    """
    write = _keyed_write(operation, call, opening)
    if write is not None and opening.record is not None:
        return encode_replay(replay(opening.record, write))
    if operation.prepare is not None:
        call = replace(call, prepared=operation.prepare(call))
    try:
        if isinstance(contract, RemoteWrite):
            outcome = _perform_remote(operation, contract, call, write)
        else:
            outcome = _perform_local(operation, contract, call, write)
    except BaseException:
        _abandon(call)
        raise
    if isinstance(outcome, StoredAnswer):
        _abandon(call)
        return encode_replay(outcome)
    response = encode_answer(outcome.result)
    if outcome.records_left is not None:
        response.headers[CAPACITY_HEADER] = str(outcome.records_left)
    return response


def _abandon(call: Call) -> None:
    if isinstance(call.prepared, Abandonable):
        call.prepared.abandon()


def _keyed_write(operation: Operation, call: Call, opening: Opening) -> KeyedWrite | None:
    if opening.key_sha256 is None:
        return None

    def compute_fingerprint() -> bytes:
        return fingerprint_request(
            operation.id,
            call.path,
            fields_to_compare(call.query),
            fields_to_compare(call.body) if call.body is not None else None,
            hashlib.sha256(call.content).hexdigest() if operation.max_content_bytes else None,
        )

    return KeyedWrite(
        tenant=_tenant(call),
        principal=call.principal.id,
        key_sha256=opening.key_sha256,
        operation=operation.id,
        compute_fingerprint=compute_fingerprint,
        audited_as=operation.audited_as,
        target=_target(call),
        request_id=call.request_id,
    )


def _perform_local(
    operation: Operation, contract: LocalWrite, call: Call, write: KeyedWrite | None
) -> Performed[Answer] | StoredAnswer:
    database = call.environment.database

    def effect(transaction: Transaction) -> tuple[Answer, StoredAnswer]:
        return _encode(operation.handle(call, transaction), contract)

    if write is None:
        with database.transaction(_tenant(call)) as transaction:
            answer = operation.handle(call, transaction)
            _audit(operation, call, transaction)
        return Performed(answer)
    return perform_local_write(database, write, call.environment.settings.idempotency, effect)


def _perform_remote(
    operation: Operation, contract: RemoteWrite, call: Call, write: KeyedWrite | None
) -> Performed[Answer] | StoredAnswer:
    database = call.environment.database

    def act(boundary: EffectBoundary) -> Any:
        return contract.act(call, boundary)

    def record(transaction: Transaction, effect: Any) -> tuple[Answer, StoredAnswer]:
        answer = operation.handle(replace(call, prepared=effect), transaction)
        _audit(operation, call, transaction)
        return _encode(answer, contract)

    if write is None:
        effect = act(EffectBoundary())
        with database.transaction(_tenant(call)) as transaction:
            answer, _ = record(transaction, effect)
        return Performed(answer)
    return perform_remote_write(
        database,
        write,
        call.environment.settings.idempotency,
        call.deadline,
        needed_seconds=contract.needed_seconds,
        reserved_bytes=contract.reserved_bytes,
        act=act,
        record=record,
    )


def _audit(operation: Operation, call: Call, transaction: Transaction) -> None:
    event = audit_event(
        operation, call.principal, call.path.get("project"), call.request_id, operation.audited_as, _target(call)
    )
    transaction.submit(_QUERIES["insert_audit_event"], event)


def _encode(answer: Answer, contract: LocalWrite | RemoteWrite) -> tuple[Answer, StoredAnswer]:
    """Return the answer with its body written, and the answer as it may be stored."""
    body = answer.encode_body()
    stored_body = answer.encode_body(contract.secret_fields) if contract.secret_fields else body
    headers = {name: value for name, value in answer.headers.items() if name in contract.stored_headers}
    headers["content-type"] = answer.content_type
    encoded = Answer(answer.status, body, answer.headers, answer.content_type)
    return encoded, StoredAnswer(answer.status, headers, stored_body)


def _target(call: Call) -> str:
    return "/".join(value for name, value in call.path.items() if name != "project")


def _tenant(call: Call) -> str:
    return call.path.get("project", INSTALLATION)
