"""One running stack for all end-to-end tests; each test works in a project of its own."""

import itertools
import os
from collections.abc import Callable, Generator
from typing import Any

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

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
