"""What calls of something outside have in common: how they fail, and how clients of AWS are configured for them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.config import Config

_CONNECTIONS = 100


class CallFailedError(Exception):
    """A call brought nothing usable; the message is for people and quotes nothing of what was sent or answered.

    Parameters
    ----------
    message
        Why.
    may_pass
        Whether the same call may succeed a moment later.
    wait_seconds
        What the other side asks to wait before that; None when it does not say.
    """

    def __init__(self, message: str, *, may_pass: bool = False, wait_seconds: float | None = None) -> None:
        super().__init__(message)
        self.may_pass: bool = may_pass
        self.wait_seconds: float | None = wait_seconds


def make_config(timeout_seconds: float) -> "Config":
    """Return the configuration of a client of AWS whose calls threads make, each once.

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
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=_CONNECTIONS,
    )
