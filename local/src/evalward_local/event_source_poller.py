"""Brings messages of a queue to a function, as a Lambda event source mapping does."""

import asyncio
import json
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from evalward_local.account import REGION
from evalward_local.environment import InvocationResult
from evalward_local.function_pool import FunctionPool
from evalward_local.functions import RequestTooLargeError, TooManyRequestsError
from evalward_local.resources import EventSource

_log = logging.getLogger(__name__)
_LONG_POLL_SECONDS = 5
_MOST_MESSAGES_PER_CALL = 10
_PAUSE_AFTER_ERROR_SECONDS = 1.0
# A message that waits for an environment is on the clock of its visibility timeout.
_ENVIRONMENT_PATIENCE_SECONDS = 60.0


class EventSourcePoller:
    """Polls one queue.

    Parameters
    ----------
    source
        The mapping.
    pool
        Its function.
    sqs
        A boto3 client; the poller blocks threads of its own on it.
    queue_url
        The queue.
    """

    def __init__(self, source: EventSource, pool: FunctionPool, sqs: Any, queue_url: str) -> None:
        self._source = source
        self._pool = pool
        self._sqs = sqs
        self._queue_url = queue_url
        maximum = source.maximum_concurrency or pool.settings.concurrency
        self._concurrency = min(maximum, pool.settings.concurrency)
        self._free = asyncio.Semaphore(self._concurrency)
        # One thread receives while the others delete; the loop's shared threads stay free for everybody else.
        self._threads = ThreadPoolExecutor(3, thread_name_prefix=source.logical_id)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def running_count(self) -> int:
        """Batches that are with the function."""
        return len(self._tasks)

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                await self._free.acquire()
                self._free.release()
                free = self._concurrency - len(self._tasks)
                messages = await self._receive(min(_MOST_MESSAGES_PER_CALL, free * self._source.batch_size))
                for start in range(0, len(messages), self._source.batch_size):
                    await self._free.acquire()
                    task = asyncio.create_task(self._handle(messages[start : start + self._source.batch_size]))
                    self._tasks.add(task)
                    task.add_done_callback(self._finish)
        finally:
            for task in self._tasks:
                task.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._free.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("%s: %r", self._source.logical_id, error)

    async def _receive(self, count: int) -> list[dict[str, Any]]:
        def call() -> list[dict[str, Any]]:
            answer = self._sqs.receive_message(
                QueueUrl=self._queue_url,
                MaxNumberOfMessages=count,
                WaitTimeSeconds=_LONG_POLL_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            return cast("list[dict[str, Any]]", answer.get("Messages") or [])

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (BotoCoreError, ClientError) as error:
            _log.warning("%s: cannot receive: %s", self._source.logical_id, error)
            await asyncio.sleep(_PAUSE_AFTER_ERROR_SECONDS)
            return []

    async def _handle(self, messages: Sequence[dict[str, Any]]) -> None:
        records = [make_record(message, self._source.queue_arn) for message in messages]
        try:
            result = await self._pool.invoke(
                json.dumps({"Records": records}).encode(), wait_seconds=_ENVIRONMENT_PATIENCE_SECONDS
            )
        except (TooManyRequestsError, RequestTooLargeError) as error:
            # Not deleted: the messages are visible again when their time has passed.
            _log.warning("%s: %r", self._source.logical_id, error)
            return
        failed = failed_message_ids(
            result,
            [message["MessageId"] for message in messages],
            reports_item_failures=self._source.reports_item_failures,
        )
        await self._delete([message for message in messages if message["MessageId"] not in failed])

    async def _delete(self, messages: Sequence[dict[str, Any]]) -> None:
        if not messages:
            return
        entries = [
            {"Id": str(position), "ReceiptHandle": message["ReceiptHandle"]}
            for position, message in enumerate(messages)
        ]

        def call() -> None:
            self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)

        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except (BotoCoreError, ClientError) as error:
            _log.warning("%s: cannot delete: %s", self._source.logical_id, error)


def make_record(message: dict[str, Any], queue_arn: str) -> dict[str, Any]:
    """Return the record of an SQS event for a message that was received.

    Parameters
    ----------
    message
        As boto3 returns it.
    queue_arn
        The queue it came from.
    """
    attributes = {
        name: {
            "stringValue": value.get("StringValue"),
            "binaryValue": value.get("BinaryValue"),
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": value["DataType"],
        }
        for name, value in (message.get("MessageAttributes") or {}).items()
    }
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes") or {},
        "messageAttributes": attributes,
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": REGION,
    }


def failed_message_ids(
    result: InvocationResult, message_ids: Sequence[str], *, reports_item_failures: bool
) -> frozenset[str]:
    """Return which messages of a batch stay in the queue.

    Parameters
    ----------
    result
        What the function answered.
    message_ids
        The whole batch.
    reports_item_failures
        Whether the mapping reads the answer at all.

    Returns
    -------
    frozenset of str
        All of them after an error, and when the answer names a message that is not in the batch or is malformed.
    """
    everything = frozenset(message_ids)
    if result.function_error is not None:
        return everything
    if not reports_item_failures:
        return frozenset()
    try:
        answer: Any = json.loads(result.payload or b"null")
    except ValueError:
        return everything
    if answer is None or answer == "":
        return frozenset()
    if not isinstance(answer, dict):
        return everything
    failures: Any = cast("dict[str, Any]", answer).get("batchItemFailures")
    if failures is None:
        return frozenset()
    if not isinstance(failures, list):
        return everything
    named: set[str] = set()
    for failure in cast("list[Any]", failures):
        identifier: Any = cast("dict[str, Any]", failure).get("itemIdentifier") if isinstance(failure, dict) else None
        if identifier not in everything:
            return everything
        named.add(identifier)
    return frozenset(named)
