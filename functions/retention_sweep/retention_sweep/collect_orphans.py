"""Find objects that no row refers to: left by a crash between the put of an object and its row."""

import re
from datetime import UTC, datetime, timedelta

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import ProblemError
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

from retention_sweep.collect_snapshots import collect_snapshots
from retention_sweep.projects import iterate_projects_until

logger = Logger(child=True)

_QUERIES = load_queries("datasets")
_PAGE_SIZE = 1000
_SPARE_SECONDS = 10.0
# A publication puts its object minutes before its row at the most; a younger object may still get one.
_AGE = timedelta(days=1)
_CONTENT = re.compile(r"/sha256/([0-9a-f]{64})\.(?:jsonl|manifest\.json)$")


def collect_orphans(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Wake the removal of objects older than a day that no version and no run refers to, snapshots of windows included.

    The removal looks again, under the lock of the content: what is published meanwhile stays.

    Returns
    -------
    dict
        `orphans` found and `failed` projects, which the next pass looks at again.
    """
    counts = {"orphans": 0, "failed": 0}
    for row in iterate_projects_until(environment.database, deadline, _SPARE_SECONDS):
        project: str = row["id"]
        try:
            counts["orphans"] += _collect(environment, project, deadline)
            counts["orphans"] += collect_snapshots(environment, project, deadline)
        except ProblemError as error:
            counts["failed"] += 1
            logger.warning("orphans not collected", extra={"project": project, "code": error.code})
    logger.info("orphaned objects collected", extra=counts)
    return counts


def _collect(environment: Environment, project: str, deadline: Deadline) -> int:
    prefix, after, orphans = f"datasets/{project}/sha256/", "", 0
    # The store's clock wrote the times, so this is compared with a margin of a day.
    old = datetime.now(UTC) - _AGE
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        page = environment.objects.list_page(prefix, after, _PAGE_SIZE)
        contents = {match[1] for key, at in page if at < old and (match := _CONTENT.search(key))}
        if contents:
            with environment.database.transaction(project) as transaction:
                params = {"tenant": project, "sha256s": sorted(contents)}
                for row in transaction.fetch_all(_QUERIES["find_unreferenced"], params):
                    transaction.wake(WakeUp("conversion", "object_removal", project, row["sha256"]))
                    orphans += 1
        if len(page) < _PAGE_SIZE:
            break
        after = page[-1][0]
    return orphans
