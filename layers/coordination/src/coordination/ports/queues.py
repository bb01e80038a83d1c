"""SQS."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from coordination.ports.client_configs import make_message_config

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

# SendMessageBatch takes no more.
_BATCH_SIZE = 10


class QueueSendError(Exception):
    """SQS took a batch but refused some of its messages."""


class QueuePort(Protocol):
    """Sends messages."""

    def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None:
        """Send every body to the queue, to be seen after delay_seconds (0 to 900), or raise."""
        ...


class SqsQueues:
    """Sends messages through SQS; the client is made at the first use."""

    @cached_property
    def _client(self) -> "SQSClient":
        import boto3

        return boto3.client("sqs", config=make_message_config())

    def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None:
        """Send every body to the queue, ten to a request; they are seen after delay_seconds (0 to 900).

        Raises
        ------
        QueueSendError
            Some messages were refused.
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
            The queue cannot be reached, is gone, or may not be written.
        """
        for start in range(0, len(bodies), _BATCH_SIZE):
            batch = bodies[start : start + _BATCH_SIZE]
            answer = self._client.send_message_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(position), "MessageBody": body, "DelaySeconds": delay_seconds}
                    for position, body in enumerate(batch)
                ],
            )
            if answer.get("Failed"):
                raise QueueSendError(f"{len(answer['Failed'])} of {len(batch)} messages were refused")
