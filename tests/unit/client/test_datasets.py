"""A dataset that is deleted by its name is deleted once, and no other with it."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from evalward.errors import OutcomeUnknownError
from evalward.pending_writes import PendingWrites
from evalward.resources.datasets import Datasets
from evalward.transport import Transport

from .conftest import Service

type Connect = Callable[..., Transport]
FIRST, SECOND = "a" * 64, "b" * 64


def test_a_deletion_made_again_does_not_follow_the_name_to_another_content(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    datasets = Datasets(connect(patience_seconds=0))
    service.answers = [httpx.ReadTimeout("read")]
    with pytest.raises(OutcomeUnknownError):
        datasets.delete_named("demo", "answers", lambda: FIRST)

    service.answers = [httpx.Response(200, json={"sha256": FIRST})]
    assert datasets.delete_named("demo", "answers", lambda: SECOND) == {"sha256": FIRST}

    assert {request.url.path for request in service.requests} == {f"/v1/projects/demo/datasets/{FIRST}"}
    assert len(set(service.keys)) == 1
    assert pending.entries() == []

    service.answers = [httpx.Response(200, json={"sha256": SECOND})]
    assert datasets.delete_named("demo", "answers", lambda: SECOND) == {"sha256": SECOND}


class UndecidedError(BaseException):
    """Somebody is asked, and goes away."""


def test_a_deletion_that_was_not_agreed_to_leaves_nothing_pending(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    def find() -> str:
        raise UndecidedError

    with pytest.raises(UndecidedError):
        Datasets(connect()).delete_named("demo", "answers", find)
    assert service.requests == []
    assert pending.entries() == []
