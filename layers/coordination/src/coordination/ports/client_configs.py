"""How clients of AWS are configured: how long they wait, and how often they try.

botocore's defaults (60 s to connect, 60 s between two reads, up to five tries) outlast every function: one service that
is silent would end an invocation without a word, and cost its lease and its message's next turn. The longest call here,
each of its tries met with silence, ends before the shortest function does; a contract test holds the two together.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.config import Config

# For the connection to each address of a name, and for each part of a body on its way out.
_CONNECT_SECONDS = 3.0
_READ_SECONDS = 6.0
_TRIES = 3
_MESSAGE_READ_SECONDS = 3.0
_MESSAGE_TRIES = 2
_CONNECTIONS = 100


def make_service_config() -> "Config":
    """Return the configuration for what the deployment keeps in AWS: objects and secrets.

    Silence costs 21 s at most: three times 6 s, and up to 1 s and 2 s between them; 24 s when an object is put, since
    botocore waits for 1 s before it sends one.
    """
    from botocore.config import Config

    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _TRIES},
    )


def make_message_config() -> "Config":
    """Return the configuration for messages and events, which are small and are sent again by a pulse.

    Silence costs 7 s at most, so that one pulse can find all four queues silent.
    """
    from botocore.config import Config

    return Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_MESSAGE_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _MESSAGE_TRIES},
    )


def make_caller_config(timeout_seconds: float) -> "Config":
    """Return the configuration for functions and models of others, which many threads call, each call once.

    Parameters
    ----------
    timeout_seconds
        For the connection (10 at most) and between two reads; > 0.
    """
    from botocore.config import Config

    # Whoever calls repeats the call himself, and knows until when.
    return Config(
        connect_timeout=min(timeout_seconds, 10),
        read_timeout=timeout_seconds,
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=_CONNECTIONS,
    )
