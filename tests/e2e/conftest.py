"""One running stack for all end-to-end tests; each test works in a project of its own."""

import itertools
import json
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.showcase import Showcase, fill_project
from evalward_local.stack_client import StackClient
from evalward_local.webhook_receiver import WebhookReceiver

# Read here: the tests' environment is cleaned of such variables before the first fixture.
IS_BUILT = os.environ.get("EVALWARD_E2E_BUILT") == "1"
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackClient]:
    with (
        running_stack(tmp_path_factory.mktemp("stack"), is_built=IS_BUILT) as stack,
        StackClient(stack) as client,
    ):
        yield client


@pytest.fixture
def project(client: StackClient) -> str:
    name = f"project-{next(_numbers)}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    return name


@pytest.fixture
def make_key(client: StackClient) -> Callable[..., str]:
    """Return a function that makes a key with grants and answers with its text."""

    def make(*grants: dict[str, Any]) -> str:
        key = client.expect(201, "POST", "/v1/keys", json={"name": "test", "grants": list(grants)})
        return str(key["secret"])

    return make


@pytest.fixture(scope="module")
def receiver() -> Generator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def calling_client(tmp_path_factory: pytest.TempPathFactory, receiver: WebhookReceiver) -> Generator[StackClient]:
    """A stack of the module's own, which may call the receiver."""
    hosts = {"OutgoingAllowedHosts": json.dumps({"*": [receiver.host]})}
    with (
        running_stack(tmp_path_factory.mktemp("stack"), environments=4, parameters=hosts) as stack,
        StackClient(stack) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def showcase(calling_client: StackClient, receiver: WebhookReceiver) -> Showcase:
    """A project with something of everything in it, on that stack."""
    return fill_project(calling_client, "support", receiver.url)
