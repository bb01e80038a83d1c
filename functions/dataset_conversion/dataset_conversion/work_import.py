"""Work on one import: read the object, publish it, note how it went."""

from aws_lambda_powertools import Logger
from coordination.database import Transaction
from coordination.datasets import publish_dataset
from coordination.environment import Environment
from coordination.errors import (
    AttemptsExhaustedError,
    ObjectMissingError,
    ObjectTooLargeError,
    ProblemError,
    StorageUnavailableError,
)
from coordination.imports import ImportFailure, ImportOrder
from coordination.leases import Lease, drop_lease, release_lease, require_lease, take_lease
from coordination.ports.objects import ObjectNotFoundError
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp
from psycopg.types.json import Jsonb
from records.limits import Limits

from dataset_conversion.conversion import Conversion
from dataset_conversion.publication import File, store_file

logger = Logger(child=True)

_QUERIES = load_queries("imports")
_WAKE_UPS = load_queries("wake_ups")
# The function's timeout and ten seconds: the slot and the import are free again when nobody can be at them any more.
_LEASE_SECONDS = 130
_SLOTS = ("conversion-slot:1", "conversion-slot:2")
_BUSY_SECONDS = 10


def work_import(environment: Environment, project: str, import_id: str) -> None:
    """Convert the object of an import and publish it.

    Holds two leases: the import's, so that a message delivered twice is worked on once, and one of the deployment's
    two conversion slots. The object is written before the row, the row and the import's end are one transaction
    guarded by the lease.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    """
    wake_up = WakeUp("conversion", "import", project, import_id)
    lease = take_lease(environment.database, wake_up.lease_name, _LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this import", extra={"import": import_id})
        return
    slot = _take_slot(environment)
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
            transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)
            return
    order = ImportOrder.model_validate(job["payload"])
    try:
        if job["attempts"] > environment.settings.work.max_attempts:
            raise AttemptsExhaustedError(
                f"The import was tried {environment.settings.work.max_attempts} times and never ended; order it again "
                "once the cause is known."
            )
        conversion = _store(environment, wake_up.project, order)
    except StorageUnavailableError:
        raise
    except ProblemError as error:
        failure = ImportFailure(code=error.code, detail=error.detail, errors=[dict(one) for one in error.errors])
        logger.info("import refused", extra={"import": wake_up.ref_id, "code": error.code})
        with environment.database.transaction(wake_up.project) as transaction:
            _end(transaction, wake_up, lease)
            transaction.submit(_QUERIES["fail_import"], params | {"error": Jsonb(failure.model_dump(mode="json"))})
        return
    with environment.database.transaction(wake_up.project) as transaction:
        _end(transaction, wake_up, lease)
        dataset, _ = publish_dataset(
            transaction,
            name=order.name,
            sha256=conversion.sha256,
            records=conversion.records,
            size=conversion.bytes,
            source=order.uri,
            principal=job["created_by"],
        )
        transaction.submit(_QUERIES["succeed_import"], params | {"result": Jsonb(dataset.model_dump(mode="json"))})


def _store(environment: Environment, project: str, order: ImportOrder) -> Conversion:
    limits = Limits()
    try:
        stored = environment.objects.open(order.key, order.version_id)
    except ObjectNotFoundError as error:
        raise ObjectMissingError(f"There is no object {order.uri}; put it there and order the import again.") from error
    if stored.bytes > limits.input_bytes:
        raise ObjectTooLargeError(
            f"The object has {stored.bytes} bytes, a dataset file may have {limits.input_bytes} bytes; split it."
        )
    file = File(
        content=stored.body,
        format=order.format,
        mapping=order.mapping,
        nul=order.nul,
        kind="import",
        uri=order.uri,
    )
    return store_file(environment.objects, project, file, limits)


def _end(transaction: Transaction, wake_up: WakeUp, lease: Lease) -> None:
    require_lease(transaction, lease)
    transaction.submit(_WAKE_UPS["delete_wake_up"], wake_up.row_key)


def _take_slot(environment: Environment) -> Lease | None:
    for name in _SLOTS:
        lease = take_lease(environment.database, name, _LEASE_SECONDS)
        if lease is not None:
            return lease
    return None
