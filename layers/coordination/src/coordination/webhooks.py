"""Webhooks: their secrets, and one call of an endpoint as Standard Webhooks has it.

A secret is HMAC-SHA256 over project, webhook id and generation under a master secret of the deployment: derived when it
is needed, shown once, stored nowhere.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson
from standardwebhooks import Webhook

from coordination.clock import read_clock
from coordination.environment import Environment
from coordination.ports.http_calls import Destination, HttpCalls, OutgoingFailedError, OutgoingRefusedError

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one call of an endpoint.

    Attributes
    ----------
    response_status
        HTTP status; None when none came.
    error
        Why it does not count as delivered, for people and without anything that the endpoint sent; None when it does.
    """

    response_status: int | None
    error: str | None

    @property
    def is_delivered(self) -> bool:
        """Whether the endpoint has taken the event."""
        return self.error is None


def derive_secret(environment: Environment, project: str, webhook_id: str, generation: int) -> str:
    """Return the secret of a webhook, `whsec_` and 32 bytes in base64.

    Raises
    ------
    botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
        The master secret cannot be read.
    """
    master: str = environment.secrets.read(environment.settings.webhooks.secret_arn)["key"]
    message = "\0".join(("webhook", project, webhook_id, str(generation)))
    return "whsec_" + base64.b64encode(hmac.digest(master.encode(), message.encode(), hashlib.sha256)).decode()


def call_endpoint(
    calls: HttpCalls, destination: Destination, secret: str, delivery_id: UUID, payload: Mapping[str, Any]
) -> Attempt:
    """Send an event to an endpoint; any 2xx within ten seconds means that it was taken, whatever the answer's body.

    Redirects are not followed. Never raises for what an endpoint does.
    """
    body, at = orjson.dumps(payload), read_clock()
    headers = {
        "content-type": "application/json",
        "webhook-id": str(delivery_id),
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": Webhook(secret).sign(str(delivery_id), at, body.decode()),
    }
    try:
        # The status is what counts; a body, however long, is not read.
        answer = calls.send("POST", destination, body, headers, timeout_seconds=TIMEOUT_SECONDS, max_bytes=0)
    except OutgoingFailedError as error:
        return Attempt(None, str(error))
    status = answer.status
    if 200 <= status < 300:
        return Attempt(status, None)
    if 300 <= status < 400:
        return Attempt(status, f"the endpoint answered {status}; redirects are not followed, register the new address")
    return Attempt(status, f"the endpoint answered {status}")


def resolve_endpoint(calls: HttpCalls, project: str, url: str) -> Destination | Attempt:
    """Check an address right before it is used; a refused one is an attempt that failed."""
    try:
        return calls.resolve(project, url)
    except (OutgoingRefusedError, OutgoingFailedError) as error:
        return Attempt(None, str(error))
