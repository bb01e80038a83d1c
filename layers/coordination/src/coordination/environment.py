"""What one Lambda execution environment holds: settings, the connection, the ports. Made once, at the first use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from aws_lambda_powertools import Logger

from coordination.database import Database, connection_string
from coordination.errors import DatabaseUnavailableError
from coordination.outbox import Outbox
from coordination.ports.event_bus import EventBus
from coordination.ports.functions import Functions
from coordination.ports.http_calls import HttpCalls
from coordination.ports.language_models import LanguageModels
from coordination.ports.objects import Objects
from coordination.ports.queues import QueuePort, SqsQueues
from coordination.ports.secrets import Secrets
from coordination.queries import load_queries
from coordination.settings import Settings, load_settings
from coordination.wake_ups import QueueName, WakeUp

logger = Logger(child=True)


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
    outbox
        Sends wake-ups.
    http_calls
        Calls places outside that projects name.
    secrets
        Secrets Manager.
    event_bus
        EventBridge.
    functions
        Lambda functions of others.
    models
        Bedrock.
    """

    settings: Settings
    database: Database
    objects: Objects
    outbox: Outbox
    http_calls: HttpCalls
    secrets: Secrets
    event_bus: EventBus
    functions: Functions
    models: LanguageModels


def make_environment(settings: Settings, queues: QueuePort, objects: Objects, secrets: Secrets) -> Environment:
    """Put an environment together; nothing is connected before it is used."""

    def load_conninfo(is_fresh: bool) -> str:
        return connection_string(settings, secrets.read, is_fresh=is_fresh)

    def give_back(wake_ups: Sequence[WakeUp]) -> None:
        try:
            for wake_up in wake_ups:
                database.fetch_all(load_queries("wake_ups")["unsend_wake_up"], wake_up.row_key)
        except DatabaseUnavailableError:
            # The rows stay marked as sent; the pulse sends again what nobody claims.
            logger.warning("unsent wake-ups stay marked as sent", extra={"count": len(wake_ups)})

    urls: dict[QueueName, str] = {
        "conversion": settings.queues.conversion_url,
        "evaluation": settings.queues.evaluation_url,
        "delivery": settings.queues.delivery_url,
        "pull": settings.queues.pull_url,
    }
    outbox = Outbox(queues, urls, give_back)
    database = Database(load_conninfo, settings.transactions, outbox.send)
    http_calls = HttpCalls(settings.outgoing.allowed_hosts)
    return Environment(
        settings, database, objects, outbox, http_calls, secrets, EventBus(), Functions(), LanguageModels()
    )


@cache
def load_environment() -> Environment:
    """Make this process's environment from its settings."""
    settings = load_settings()
    return make_environment(settings, SqsQueues(), Objects(settings.storage.bucket), Secrets())
