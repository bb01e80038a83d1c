"""Finds out whether the stack still has work to do."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from evalward_local.event_source_poller import EventSourcePoller
from evalward_local.function_pool import FunctionPool
from evalward_local.incoming_watch import IncomingWatch

_POLL_SECONDS = 0.05
# A message may move from a queue to a function between two looks; nobody moves unseen twice.
_QUIET_LOOKS = 2
_MESSAGES_SHOWN = 10


@dataclass(frozen=True)
class WorkLedger:
    """Where work can be.

    Attributes
    ----------
    pools
        Functions by logical id.
    pollers
        Of the event source mappings.
    queue_urls
        Logical id of each queue with a mapping to its URL; dead-letter queues are not work.
    sqs
        A boto3 client.
    superuser_url
        Reads wake-ups past row-level security; empty when there is no database.
    incoming
        Looks for new objects when the object store does not tell of them.
    """

    pools: Mapping[str, FunctionPool]
    pollers: Sequence[EventSourcePoller]
    queue_urls: Mapping[str, str]
    sqs: Any
    superuser_url: str
    incoming: IncomingWatch | None = None

    async def wait_until_quiet(self, timeout_seconds: float) -> list[str]:
        """Wait until nothing runs, no message waits and no wake-up is due.

        Parameters
        ----------
        timeout_seconds
            How long to wait.

        Returns
        -------
        list of str
            Empty, or what still ran when the time was over.
        """
        seen: list[str] = ["nothing was looked at"]
        quiet_looks = 0
        try:
            async with asyncio.timeout(timeout_seconds):
                while quiet_looks < _QUIET_LOOKS:
                    seen = await self.list_work()
                    quiet_looks = 0 if seen else quiet_looks + 1
                    if quiet_looks < _QUIET_LOOKS:
                        await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return seen or ["work kept moving"]
        return []

    async def list_work(self) -> list[str]:
        """Return a line for everything that runs, waits or is due now."""
        if self.incoming is not None:
            await self.incoming.look()
        work = [
            f"{pool_id}: {pool.running_count} running" for pool_id, pool in self.pools.items() if pool.running_count
        ]
        work.extend(f"{poller.running_count} batches on their way" for poller in self.pollers if poller.running_count)
        for queue_id, url in self.queue_urls.items():
            if count := await asyncio.to_thread(self._count_messages, url):
                work.append(f"{queue_id}: {count} messages")
        work.extend(await self._list_due_wake_ups())
        return work

    def _count_messages(self, url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    async def _list_due_wake_ups(self) -> list[str]:
        if not self.superuser_url:
            return []
        async with await psycopg.AsyncConnection.connect(self.superuser_url, autocommit=True) as connection:
            exists = await (
                await connection.execute("SELECT to_regclass('coordination.wake_ups') IS NOT NULL")
            ).fetchone()
            if exists is None or not exists[0]:
                return []
            cursor = await connection.execute(
                """
                SELECT kind, project, ref_id, sent_at IS NOT NULL
                  FROM coordination.wake_ups
                 WHERE due_at <= clock_timestamp()
                 ORDER BY due_at
                 LIMIT %(limit)s::int
                """,
                {"limit": _MESSAGES_SHOWN},
            )
            return [
                f"wake-up {kind} {project}/{ref_id} ({'sent' if is_sent else 'not sent'})"
                async for kind, project, ref_id, is_sent in cursor
            ]
