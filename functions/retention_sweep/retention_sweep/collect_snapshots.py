"""Find snapshots of windows that no run refers to: left by a pull that ended badly after it had stored its records."""

import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

_QUERIES = load_queries("sources")
_PAGE_SIZE = 1000
_SPARE_SECONDS = 10.0
# A window is tried for a day at the most, always under the same id of its run: nobody writes below that id any more.
_AGE = timedelta(days=2)
_KEY = re.compile(r"snapshots/[^/]+/([0-9a-f-]{36})/([0-9a-f]{64})\.(?:jsonl|manifest\.json)")


def collect_snapshots(environment: Environment, project: str, deadline: Deadline) -> int:
    """Wake the removal of a project's snapshots that are older than two days and of no run.

    A transaction a page of the list; the removal looks again. No lock.

    Returns
    -------
    int
        How many ids of runs were found.
    """
    prefix, after, found = f"snapshots/{project}/", "", 0
    # The store's clock wrote the times, so this is compared with a margin of days.
    old = datetime.now(UTC) - _AGE
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        page = environment.objects.list_page(prefix, after, _PAGE_SIZE)
        stored = sorted({(match[1], match[2]) for key, at in page if at < old and (match := _KEY.fullmatch(key))})
        if stored:
            params = {
                "tenant": project,
                "run_ids": [UUID(run_id) for run_id, _ in stored],
                "sha256s": [sha256 for _, sha256 in stored],
            }
            with environment.database.transaction(project) as transaction:
                for row in transaction.fetch_all(_QUERIES["find_orphaned_snapshots"], params):
                    transaction.wake(WakeUp("pull", "snapshot_removal", project, str(row["run_id"])))
                    found += 1
        if len(page) < _PAGE_SIZE:
            break
        after = page[-1][0]
    return found
