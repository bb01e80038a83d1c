"""Dead-letter queues, which nobody reads: how many messages lie in them."""

from functools import cached_property
from typing import TYPE_CHECKING

from coordination.ports.client_configs import make_message_config

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class DeadLetters:
    """Asks SQS; the client is made at the first use."""

    @cached_property
    def _client(self) -> "SQSClient":
        import boto3

        return boto3.client("sqs", config=make_message_config())

    def count(self, url: str) -> int:
        """Return about how many messages the queue holds, those that someone looks at included.

        Raises
        ------
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
            The queue cannot be reached, is gone, or may not be looked at.
        """
        answer = self._client.get_queue_attributes(
            QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        )
        return sum(int(count) for count in answer.get("Attributes", {}).values())
