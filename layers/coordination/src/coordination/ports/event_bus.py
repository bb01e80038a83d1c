"""EventBridge."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from coordination.ports.client_configs import make_message_config

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient

SOURCE = "evalward"


class EventNotTakenError(Exception):
    """EventBridge cannot be reached or refused the event; the message names the reason and holds no payload."""


class EventBus:
    """Puts events on the account's default bus, source `evalward`; the client is made at the first use."""

    @cached_property
    def _client(self) -> "EventBridgeClient":
        import boto3

        return boto3.client("events", config=make_message_config())

    def put(self, detail_type: str, detail: Mapping[str, Any], at: datetime) -> None:
        """Put one event; at least once, so `detail` holds an `id` by which receivers tell repeats.

        Raises
        ------
        EventNotTakenError
            It was not taken.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        entry = {"Source": SOURCE, "DetailType": detail_type, "Detail": orjson.dumps(detail).decode(), "Time": at}
        try:
            answer = self._client.put_events(Entries=[entry])  # pyright: ignore[reportArgumentType]
        except (BotoCoreError, ClientError) as error:
            raise EventNotTakenError(type(error).__name__) from error
        if answer["FailedEntryCount"]:
            # PutEvents answers 200 for an event that it has refused.
            raise EventNotTakenError(answer["Entries"][0].get("ErrorCode", "unknown"))
