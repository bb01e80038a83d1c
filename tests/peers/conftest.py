"""Peers that run beside us; without their environments these tests are left out, and say so."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from evalward_local.peer_servers import PeerServer, has_environment, run_mlflow, run_phoenix


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[PeerServer]:
    """Run MLflow for all tests of the session; a test makes experiments of its own."""
    _require("mlflow")
    with run_mlflow(tmp_path_factory.mktemp("mlflow")) as server:
        yield server


@pytest.fixture(scope="session")
def phoenix_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[PeerServer]:
    """Run Phoenix for all tests of the session; a test makes projects of its own."""
    _require("phoenix")
    with run_phoenix(tmp_path_factory.mktemp("phoenix")) as server:
        yield server


def _require(name: str) -> None:
    if not has_environment(name):
        pytest.skip(f"LEFT OUT: the {name} server is not set up (make peers)")
