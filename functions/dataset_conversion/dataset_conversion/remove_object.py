"""Remove the objects of a content that no version and no run refers to any more."""

from aws_lambda_powertools import Logger
from coordination.database import Transaction
from coordination.datasets import end_removal, manifest_key, object_key, remove_unreferenced
from coordination.environment import Environment
from coordination.leases import drop_lease, end_lease, require_lease, take_lease
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

from dataset_conversion.conversion_slots import LEASE_SECONDS

logger = Logger(child=True)

_QUERIES = load_queries("wake_ups")


def remove_object(environment: Environment, project: str, sha256: str) -> None:
    """Delete the canonical object and its manifest unless something refers to the content.

    The row that says "being removed" commits before the objects go, and publications of the same content look at it
    under the content's lock: none can come to stand on an object that is about to vanish. One removal of a content at a
    time: its lease outlives the function, so that no second one can say "gone" while a first one still deletes. A crash
    in between leaves the row and the wake-up; the next attempt ends it.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    LeaseLostError
        The lease was taken over: whoever did ends the removal.
    """
    wake_up = WakeUp("conversion", "object_removal", project, sha256)
    lease = take_lease(environment.database, wake_up.lease_name, LEASE_SECONDS)
    if lease is None:
        logger.info("someone is at this removal")
        return
    try:
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            is_unreferenced = remove_unreferenced(transaction, sha256)
            if not is_unreferenced:
                _end(transaction, wake_up)
                end_lease(transaction, lease)
        if not is_unreferenced:
            logger.info("the content is referred to, its objects stay")
            return
        environment.objects.delete([object_key(project, sha256), manifest_key(project, sha256)])
        with environment.database.transaction(project) as transaction:
            require_lease(transaction, lease)
            end_removal(transaction, sha256)
            _end(transaction, wake_up)
            end_lease(transaction, lease)
    except BaseException:
        drop_lease(environment.database, lease)
        raise


def _end(transaction: Transaction, wake_up: WakeUp) -> None:
    transaction.submit(_QUERIES["delete_wake_up"], wake_up.row_key)
