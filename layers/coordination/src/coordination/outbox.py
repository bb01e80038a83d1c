"""Send the messages of wake-ups whose rows are committed."""

from collections.abc import Callable, Mapping, Sequence

from aws_lambda_powertools import Logger

from coordination.ports.queues import QueuePort
from coordination.wake_ups import QueueName, WakeUp

logger = Logger(child=True)


class Outbox:
    """Sends wake-ups; what cannot be sent is given back to the pulse.

    Parameters
    ----------
    queues
        Where messages go.
    urls
        Queue name -> queue URL.
    give_back
        Marks the rows of wake-ups as unsent.
    """

    def __init__(
        self,
        queues: QueuePort,
        urls: Mapping[QueueName, str],
        give_back: Callable[[Sequence[WakeUp]], None],
    ) -> None:
        self._queues = queues
        self._urls = urls
        self._give_back = give_back

    def send(self, wake_ups: Sequence[WakeUp]) -> int:
        """Send the messages of those wake-ups that are not left to the pulse.

        Returns
        -------
        int
            How many were sent. A failure is logged, never raised: the rows stay, and the pulse sends them.
        """
        sent = 0
        request_id: str | None = logger.get_current_keys().get("request_id")
        batches: dict[tuple[QueueName, int], list[WakeUp]] = {}
        for wake_up in wake_ups:
            if wake_up.is_sent_at_once:
                batches.setdefault((wake_up.queue, wake_up.delay_seconds), []).append(wake_up)
        for (queue, delay_seconds), batch in batches.items():
            try:
                bodies = [wake_up.encode(request_id) for wake_up in batch]
                self._queues.send(self._urls[queue], bodies, delay_seconds)
                sent += len(batch)
            except Exception as error:  # noqa: BLE001 - whatever it was, the rows are there and the pulse sends them
                logger.warning(
                    "wake-ups not sent, the pulse will",
                    extra={"queue": queue, "count": len(batch), "error": type(error).__name__},
                )
                self._give_back(batch)
        return sent
