"""What one Lambda execution environment holds: settings, the connection, the ports. Made once, at the first use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from coordination.database import Database, connection_string
from coordination.ports.objects import Objects
from coordination.ports.queues import QueuePort, SqsQueues
from coordination.ports.secrets import Secrets
from coordination.queries import load_queries
from coordination.settings import Settings, load_settings
from coordination.wake_ups import QueueName, WakeUp, send_wake_ups


@dataclass(frozen=True, slots=True)
class Environment:
    """The means that use cases are given.

    Attributes
    ----------
    settings
        Frozen settings.
    database
        The one connection.
    objects
        The bundle's bucket.
    queues
        SQS.
    """

    settings: Settings
    database: Database
    objects: Objects
    queues: QueuePort

    @property
    def queue_urls(self) -> dict[QueueName, str]:
        """Queue name -> URL."""
        return {
            "conversion": self.settings.queues.conversion_url,
            "evaluation": self.settings.queues.evaluation_url,
        }


def make_environment(settings: Settings, queues: QueuePort, objects: Objects, secrets: Secrets) -> Environment:
    """Put an environment together; nothing is connected before it is used."""

    def load_conninfo(is_fresh: bool) -> str:
        return connection_string(settings, secrets.read, is_fresh=is_fresh)

    def after_commit(wake_ups: Sequence[WakeUp]) -> None:
        send_wake_ups(queues, environment.queue_urls, wake_ups, lambda: give_back(wake_ups))

    def give_back(wake_ups: Sequence[WakeUp]) -> None:
        for wake_up in wake_ups:
            database.fetch_all(
                load_queries("wake_ups")["unsend_wake_ups"],
                {"project": wake_up.project, "kind": wake_up.kind, "ref_ids": [wake_up.ref_id]},
            )

    database = Database(load_conninfo, settings.transactions, after_commit)
    environment = Environment(settings, database, objects, queues)
    return environment


@cache
def load_environment() -> Environment:
    """Make this process's environment from its settings."""
    settings = load_settings()
    return make_environment(settings, SqsQueues(), Objects(settings.storage.bucket), Secrets())
