"""Remove the objects of a run that is deleted, and those that attempts left which were cut short."""

from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.environment import Environment
from coordination.queries import load_queries
from coordination.snapshots import manifest_key_beside, snapshot_prefix
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("wake_ups")
_SOURCES = load_queries("sources")
_PAGE_SIZE = 1000


def remove_snapshot(environment: Environment, project: str, run_id: str) -> None:
    """Delete all objects of a deleted run's snapshot, those of attempts that were cut short among them.

    A run that exists keeps the snapshot that it evaluates, whatever a message says, and nothing beside it.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    """
    wake_up = WakeUp("pull", "snapshot_removal", project, run_id)
    params = {"tenant": project, "run_id": UUID(run_id)}
    with environment.database.transaction(project) as transaction:
        snapshot = transaction.fetch_one(_SOURCES["find_snapshot_of_run"], params)
    kept = {snapshot["path"], manifest_key_beside(snapshot["path"])} if snapshot else set[str]()
    after, removed = "", 0
    while page := environment.objects.list_page(snapshot_prefix(project, UUID(run_id)), after, _PAGE_SIZE):
        after = page[-1][0]
        keys = [key for key, _ in page if key not in kept]
        if keys:
            environment.objects.delete(keys)
            removed += len(keys)
    logger.info("snapshot removed", extra={"run": run_id, "objects": removed})
    with environment.database.transaction(project) as transaction:
        transaction.submit(_QUERIES["delete_wake_up"], wake_up.row_key)
