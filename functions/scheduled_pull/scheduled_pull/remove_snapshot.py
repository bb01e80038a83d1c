"""Remove the objects of a run that is deleted."""

from uuid import UUID

from aws_lambda_powertools import Logger
from coordination.environment import Environment
from coordination.queries import load_queries
from coordination.snapshots import snapshot_prefix
from coordination.wake_ups import WakeUp

logger = Logger(child=True)

_QUERIES = load_queries("wake_ups")
_RUNS = load_queries("runs")
_PAGE_SIZE = 1000


def remove_snapshot(environment: Environment, project: str, run_id: str) -> None:
    """Delete all objects of a deleted run's snapshot, those of attempts that were cut short among them.

    A run that exists keeps its objects, whatever a message says.

    Raises
    ------
    StorageUnavailableError
        The bucket did not answer: the message goes back to its queue.
    """
    wake_up = WakeUp("pull", "snapshot_removal", project, run_id)
    with environment.database.transaction(project) as transaction:
        run = transaction.fetch_one(_RUNS["read_run_state"], {"tenant": project, "id": UUID(run_id)})
    if run is None:
        prefix = snapshot_prefix(project, UUID(run_id))
        while keys := [key for key, _ in environment.objects.list_page(prefix, "", _PAGE_SIZE)]:
            environment.objects.delete(keys)
        logger.info("snapshot removed", extra={"run": run_id})
    with environment.database.transaction(project) as transaction:
        transaction.submit(_QUERIES["delete_wake_up"], wake_up.row_key)
