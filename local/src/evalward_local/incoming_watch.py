"""Tells queues of new objects in a store that sends no notifications: it lists them, once a second."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote_plus

from evalward_local.account import REGION
from evalward_local.resources import ObjectNotification

_POLL_SECONDS = 1.0


class IncomingWatch:
    """Sends S3's `ObjectCreated` messages for what it has not seen before.

    A new watch tells of every object again, as S3 may too: imports know an event by key and sequencer.

    Parameters
    ----------
    notifications
        Which prefixes of which buckets go to which queue.
    s3, sqs
        boto3 clients.
    queue_urls
        Queue ARN to URL.
    """

    def __init__(
        self, notifications: Sequence[ObjectNotification], s3: Any, sqs: Any, queue_urls: dict[str, str]
    ) -> None:
        self._notifications = notifications
        self._s3 = s3
        self._sqs = sqs
        self._queue_urls = queue_urls
        self._seen: set[tuple[str, str, str, str]] = set()
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(_POLL_SECONDS)

    async def look(self) -> None:
        """List once and send a message for each object that is new or written anew."""
        async with self._lock:
            await asyncio.to_thread(self._look)

    def _look(self) -> None:
        for notification in self._notifications:
            pages = self._s3.get_paginator("list_objects_v2").paginate(
                Bucket=notification.bucket, Prefix=notification.prefix
            )
            for item in (item for page in pages for item in page.get("Contents", [])):
                self._tell(notification, item)

    def _tell(self, notification: ObjectNotification, item: dict[str, Any]) -> None:
        etag = item["ETag"].strip('"')
        written = f"{int(item['LastModified'].timestamp()):010X}{etag[:8].upper()}"
        mark = (notification.queue_arn, notification.bucket, item["Key"], written)
        if mark in self._seen:
            return
        entry = {
            "key": quote_plus(item["Key"], safe="/"),
            "size": item["Size"],
            "eTag": etag,
            "sequencer": written,
        }
        record = {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": REGION,
            "eventTime": item["LastModified"].strftime("%Y-%m-%dT%H:%M:%S.000Z"),
            "eventName": "ObjectCreated:Put",
            "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": notification.bucket}, "object": entry},
        }
        self._sqs.send_message(
            QueueUrl=self._queue_urls[notification.queue_arn], MessageBody=json.dumps({"Records": [record]})
        )
        self._seen.add(mark)
