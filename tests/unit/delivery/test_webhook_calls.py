from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import orjson
import pytest
from coordination.ports.http_calls import (
    Destination,
    HttpAnswer,
    HttpCalls,
    OutgoingFailedError,
    OutgoingRefusedError,
)
from coordination.webhooks import Attempt, call_endpoint, derive_secret, resolve_endpoint
from delivery.deliver_webhook import MAX_ATTEMPTS, RETRY_SECONDS
from standardwebhooks import Webhook

DELIVERY = UUID("4e9b6c31-7d88-4031-8d8a-3d7c8f51aa44")
DESTINATION = Destination("https", "example.com", 443, "/hook", "93.184.215.14")
SECRET = "whsec_" + "A" * 43 + "="


class FakeCalls(HttpCalls):
    """Answers with a status, or fails."""

    def __init__(self, outcome: int | Exception) -> None:
        super().__init__({})
        self.outcome = outcome
        self.sent: list[tuple[str, Destination, bytes | None, Mapping[str, str], float, int]] = []

    def send(
        self,
        method: str,
        destination: Destination,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        timeout_seconds: float,
        max_bytes: int,
    ) -> HttpAnswer:
        self.sent.append((method, destination, body, headers, timeout_seconds, max_bytes))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return HttpAnswer(self.outcome, {}, b"")

    def resolve(self, project: str, url: str) -> Destination:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return DESTINATION


def make_environment(key: str = "k" * 64) -> Any:
    def read(arn: str) -> dict[str, str]:
        assert arn == "arn"
        return {"key": key}

    return SimpleNamespace(
        secrets=SimpleNamespace(read=read), settings=SimpleNamespace(webhooks=SimpleNamespace(secret_arn="arn"))
    )


def test_call_carries_the_headers_of_standard_webhooks() -> None:
    calls = FakeCalls(204)
    attempt = call_endpoint(calls, DESTINATION, SECRET, DELIVERY, {"type": "ping", "data": {}})
    ((method, destination, body, headers, timeout_seconds, max_bytes),) = calls.sent
    assert (method, destination, timeout_seconds, max_bytes) == ("POST", DESTINATION, 10.0, 0)
    assert headers["webhook-id"] == str(DELIVERY)
    assert body is not None
    assert Webhook(SECRET).verify(body, dict(headers)) == orjson.loads(body) == {"type": "ping", "data": {}}
    assert attempt == Attempt(204, None)


@pytest.mark.parametrize(
    ("outcome", "status", "error"),
    [
        (200, 200, None),
        (299, 299, None),
        (301, 301, "redirects are not followed"),
        (307, 307, "redirects are not followed"),
        (400, 400, "answered 400"),
        (500, 500, "answered 500"),
        (OutgoingFailedError("no answer"), None, "no answer"),
    ],
)
def test_only_a_2xx_counts_as_delivered(outcome: int | Exception, status: int | None, error: str | None) -> None:
    attempt = call_endpoint(FakeCalls(outcome), DESTINATION, SECRET, DELIVERY, {})
    assert attempt.response_status == status
    assert attempt.is_delivered == (error is None)
    assert (error or "") in (attempt.error or "")


@pytest.mark.parametrize("error", [OutgoingRefusedError("not public"), OutgoingFailedError("does not resolve")])
def test_address_that_may_not_be_called_is_a_failed_attempt(error: Exception) -> None:
    assert resolve_endpoint(FakeCalls(error), "demo", "https://x") == Attempt(None, str(error))
    assert resolve_endpoint(FakeCalls(200), "demo", "https://x") == DESTINATION


def test_secret_differs_with_each_of_its_parts_and_is_the_same_for_the_same() -> None:
    places = [("demo", "ci", 1), ("demo", "ci", 2), ("demo", "ci2", 1), ("demo2", "ci", 1), ("demo", "ci", 11)]
    secrets = [derive_secret(make_environment(), *place) for place in places]
    secrets.append(derive_secret(make_environment("other" * 10), "demo", "ci", 1))
    assert len(set(secrets)) == len(secrets)
    assert derive_secret(make_environment(), "demo", "ci", 1) == secrets[0]
    assert all(len(Webhook(secret)._whsecret) == 32 for secret in secrets)


def test_six_attempts_within_an_hour_and_a_half() -> None:
    assert MAX_ATTEMPTS == 6
    assert RETRY_SECONDS == (5, 30, 3 * 60, 15 * 60, 60 * 60)
