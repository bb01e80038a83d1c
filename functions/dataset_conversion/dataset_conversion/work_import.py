"""Work on one import: read the object, publish it, note how it went."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.database import Transaction
from coordination.datasets import publish_dataset
from coordination.environment import Environment
from coordination.errors import (
    AttemptsExhaustedError,
    ImportRefusedError,
    ObjectMissingError,
    ObjectTooLargeError,
    ProblemError,
)
from coordination.events import emit_import_failed
from coordination.failures import record_failure, resolve_failures
from coordination.imports import ImportFailure, ImportOrder, find_newer_import
from coordination.leases import Lease, drop_lease, end_lease, release_lease, require_lease, take_lease
from coordination.models import ResponseModel
from coordination.ports.objects import ObjectNotFoundError
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.limits import Limits

from dataset_conversion.conversion_slots import LEASE_SECONDS, take_slot
from dataset_conversion.publication import File, check_file, describe_validation, store_file

logger = Logger(child=True)

_QUERIES = load_queries("imports")
_WAKE_UPS = load_queries("wake_ups")
_BUSY_SECONDS = 10


def work_import(environment: Environment, project: str, import_id: str) -> None:
    """Convert the object of an import and publish it.

    Holds two leases: the import's, so that a message delivered twice is worked on once, and one of the deployment's
    two conversion slots. The object is written before the row, the row and the import's end are one transaction
    guarded by the lease.

    Raises
    ------
    ProblemError
        With status 503: the bucket or the database did not answer, or the content is being removed. The message goes
        back to its queue.
    """
    wake_up = WakeUp("conversion", "import", project, import_id)
    lease = take_lease(environment.database, wake_up.lease_name, LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this import", extra={"import": import_id})
        return
    slot = take_slot(environment.database)
    if slot is None:
        logger.info("both conversion slots are taken; later", extra={"import": import_id})
        with environment.database.transaction(project) as transaction:
            transaction.submit(_WAKE_UPS["delay_wake_up"], wake_up.row_key | {"delay_seconds": _BUSY_SECONDS})
            release_lease(transaction, lease)
        return
    try:
        _work(environment, wake_up, lease)
    finally:
        drop_lease(environment.database, slot)
        drop_lease(environment.database, lease)


def _work(environment: Environment, wake_up: WakeUp, lease: Lease) -> None:
    params = {"tenant": wake_up.project, "id": wake_up.ref_id}
    with environment.database.transaction(wake_up.project) as transaction:
        require_lease(transaction, lease)
        job = transaction.fetch_one(_QUERIES["begin_import"], params)
        if job is None:
            _end(transaction, wake_up, lease)
            return
    order = ImportOrder.model_validate(job["payload"])
    most = environment.settings.work.max_attempts
    try:
        if job["attempts"] > most:
            raise AttemptsExhaustedError(
                f"The import was tried {most} times and never ended; order it again once the cause is known."
            )
        if order.validate_only:
            _validate(environment, wake_up, lease, order)
        else:
            _publish(environment, wake_up, lease, order, job)
    except ProblemError as error:
        if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise
        failure = ImportFailure(code=error.code, detail=error.detail, errors=[dict(one) for one in error.errors])
        logger.info("import refused", extra={"import": wake_up.ref_id, "code": error.code})
        with environment.database.transaction(wake_up.project) as transaction:
            _end(transaction, wake_up, lease)
            transaction.submit(_QUERIES["fail_import"], params | {"error": Jsonb(failure.model_dump(mode="json"))})
            record_failure(transaction, "import", order.name, f"{failure.code}: {failure.detail}")
            emit_import_failed(
                transaction, UUID(wake_up.ref_id), name=order.name, uri=order.uri, error_code=failure.code
            )


def _validate(environment: Environment, wake_up: WakeUp, lease: Lease, order: ImportOrder) -> None:
    conversion = check_file(_open(environment, order), Limits())
    validation = describe_validation(order.name, conversion)
    with environment.database.transaction(wake_up.project) as transaction:
        _end(transaction, wake_up, lease)
        transaction.submit(_QUERIES["succeed_import"], _result(wake_up, validation))


def _publish(
    environment: Environment, wake_up: WakeUp, lease: Lease, order: ImportOrder, job: Mapping[str, Any]
) -> None:
    """Put the object, then write the dataset's row and the import's end in one transaction."""
    stored = store_file(environment, wake_up.project, _open(environment, order), Limits())
    with environment.database.transaction(wake_up.project) as transaction:
        _end(transaction, wake_up, lease)
        dataset, _ = publish_dataset(
            transaction,
            name=order.name,
            sha256=stored.conversion.sha256,
            records=stored.conversion.records,
            size=stored.conversion.bytes,
            source=order.uri,
            principal=job["created_by"],
            generation=stored.generation,
        )
        # Without a pinned version the newest content was read, whichever event it was that said so. Looked at under the
        # lock of the name: a later write that is being published at this moment is seen, or sees this one.
        if order.version_id is not None and find_newer_import(transaction, job["dedupe_key"]):
            raise ImportRefusedError(
                "A later version of the same object was imported before; this one came late and was not published."
            )
        transaction.submit(_QUERIES["succeed_import"], _result(wake_up, dataset))
        resolve_failures(transaction, ["import"], order.name)


def _result(wake_up: WakeUp, result: ResponseModel) -> dict[str, Any]:
    return {"tenant": wake_up.project, "id": wake_up.ref_id, "result": Jsonb(result.model_dump(mode="json"))}


def _open(environment: Environment, order: ImportOrder) -> File:
    limits = Limits()
    try:
        stored = environment.objects.open(order.key, order.version_id)
    except ObjectNotFoundError as error:
        raise ObjectMissingError(f"There is no object {order.uri}; put it there and order the import again.") from error
    if stored.bytes > limits.input_bytes:
        raise ObjectTooLargeError(
            f"The object has {stored.bytes} bytes, a dataset file may have {limits.input_bytes} bytes; split it."
        )
    return File(
        content=stored.body,
        format=order.format,
        mapping=order.mapping,
        nul=order.nul,
        kind="import",
        uri=order.uri,
    )


def _end(transaction: Transaction, wake_up: WakeUp, lease: Lease) -> None:
    require_lease(transaction, lease)
    transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
    end_lease(transaction, lease)
