import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from evalward_local.running_stack import running_stack
from evalward_local.stack_file import StackFile

PROBE_TEMPLATE = Path(__file__).with_name("probe_template.yaml")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackFile]:
    with running_stack(tmp_path_factory.mktemp("stack"), template=PROBE_TEMPLATE, environments=2) as running:
        yield running


@pytest.fixture(scope="session")
def http() -> Generator[httpx.Client]:
    with httpx.Client(trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def make_client(stack: StackFile) -> Callable[[str], Any]:
    def make(service: str) -> Any:
        session: Any = boto3.Session()
        return session.client(
            service,
            endpoint_url=stack.control_url if service == "lambda" else stack.aws_endpoint_url,
            region_name=stack.region,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(proxies={}, retries={"total_max_attempts": 1}),
        )

    return make


def poll[T](look: Callable[[], T | None], seconds: float = 30) -> T:
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Any]:
    return poll
