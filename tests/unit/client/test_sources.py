"""A source becomes what a document says, wherever that was interrupted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from evalward.errors import ConfigurationError, OutcomeUnknownError
from evalward.pending_writes import PendingWrites
from evalward.resources.sources import Sources
from evalward.transport import Transport

from .conftest import Service, problem

type Connect = Callable[..., Transport]
WANTED: dict[str, Any] = {"id": "nightly", "connector": "otlp_s3", "labels": {"team": "search"}}


def is_there(team: str, minute: int = 0) -> httpx.Response:
    present = {**WANTED, "labels": {"team": team}, "paused": False, "updated_at": f"2027-01-31T00:{minute:02}:00Z"}
    return httpx.Response(200, json=present)


def apply(connect: Connect, **options: Any) -> str:
    return Sources(connect(patience_seconds=0)).apply("demo", WANTED, **options)[0]


def steps(service: Service) -> list[str]:
    return [f"{request.method} {request.url.path.removeprefix('/v1/projects/demo/')}" for request in service.requests]


def lose(service: Service, connect: Connect, first: httpx.Response) -> None:
    """Let the answer of the write be lost."""
    service.answers = [first, httpx.ReadTimeout("read")]
    with pytest.raises(OutcomeUnknownError):
        apply(connect)


def test_what_differs_is_changed_and_nothing_else(service: Service, connect: Connect, pending: PendingWrites) -> None:
    service.answers = [problem(404, "not_found"), httpx.Response(201, json=WANTED)]
    assert apply(connect) == "created"
    service.answers = [is_there("support"), is_there("search")]
    assert apply(connect) == "updated"
    service.answers = [is_there("search")]
    assert apply(connect) == "unchanged"

    get = "GET sources/nightly"
    assert steps(service) == [get, "POST sources", get, "PATCH sources/nightly", get]
    assert json.loads(service.requests[3].content) == {"labels": {"team": "search"}}
    assert pending.entries() == []


def test_another_connector_is_another_source(service: Service, connect: Connect, pending: PendingWrites) -> None:
    service.answers = [httpx.Response(200, json={**WANTED, "connector": "mlflow"})]
    with pytest.raises(ConfigurationError, match="another id"):
        apply(connect)
    assert pending.entries() == []


@pytest.mark.parametrize("first", [problem(404, "not_found"), is_there("support")], ids=["create", "update"])
def test_a_write_whose_answer_was_lost_is_over_when_the_source_says_the_same(
    service: Service, connect: Connect, pending: PendingWrites, first: httpx.Response
) -> None:
    lose(service, connect, first)
    assert len(pending.entries()) == 1
    service.answers = [is_there("search", minute=1)]
    assert apply(connect) == "unchanged"
    assert pending.entries() == []


def test_an_update_that_did_not_happen_is_sent_under_its_key(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    lose(service, connect, is_there("support"))
    service.answers = [is_there("support"), is_there("search")]
    assert apply(connect) == "updated"
    assert service.keys[1] == service.keys[3]
    assert pending.entries() == []


def test_an_update_of_a_source_that_was_changed_meanwhile_is_another_request(
    service: Service, connect: Connect
) -> None:
    lose(service, connect, is_there("support"))
    service.answers = [is_there("support", minute=5), is_there("search")]
    assert apply(connect) == "updated"
    assert service.keys[1] != service.keys[3], "the answer to the first would be replayed, and the source stay"


def test_a_key_of_the_callers_own_leaves_room_for_what_tells_requests_apart(service: Service, connect: Connect) -> None:
    service.answers = [is_there("support"), is_there("search")]
    apply(connect, idempotency_key="k" * 112)
    sent = service.keys[1] or ""
    assert sent.startswith("k" * 112)
    assert len(sent) <= 128
