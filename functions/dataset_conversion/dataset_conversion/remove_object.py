"""Remove the objects of a content that no version and no run refers to any more."""

from aws_lambda_powertools import Logger
from coordination.datasets import end_removal, manifest_key, object_key, remove_unreferenced
from coordination.environment import Environment
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

logger = Logger(child=True)


def remove_object(environment: Environment, project: str, sha256: str) -> None:
    """Delete the canonical object and its manifest unless something refers to the content.

    The row that says "being removed" commits before the objects go, and publications of the same content look at it
    under the content's lock: none can come to stand on an object that is about to vanish. A crash in between leaves
    the row and the wake-up; the next attempt ends it.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    """
    wake_up = WakeUp("conversion", "object_removal", project, sha256)
    with environment.database.transaction(project) as transaction:
        is_unreferenced = remove_unreferenced(transaction, sha256)
        if not is_unreferenced:
            transaction.submit(load_queries("wake_ups")["delete_wake_up"], wake_up.row_key)
    if not is_unreferenced:
        logger.info("the content is referred to, its objects stay")
        return
    environment.objects.delete([object_key(project, sha256), manifest_key(project, sha256)])
    with environment.database.transaction(project) as transaction:
        end_removal(transaction, sha256)
        transaction.submit(load_queries("wake_ups")["delete_wake_up"], wake_up.row_key)
