"""Real servers of MLflow and Phoenix, each in an environment of its own (`make peers` sets them up)."""

import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from evalward_local.children import Children, plain_environment
from evalward_local.listener import find_free_ports

ENVIRONMENTS = Path(__file__).resolve().parents[3] / ".local"
_START_PATIENCE_SECONDS = 180.0
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class PeerServer:
    """A running server.

    Attributes
    ----------
    url
        Its root, without a slash at the end.
    host
        `127.0.0.1:port`, as a deployment lists it among its allowed hosts.
    folder
        Where it keeps its database.
    process
        Its first process.
    """

    url: str
    host: str
    folder: Path
    process: subprocess.Popen[bytes]


def has_environment(name: str) -> bool:
    """Tell whether the environment of a peer is set up."""
    return (ENVIRONMENTS / name / ".ready").exists()


@contextmanager
def run_mlflow(folder: Path) -> Generator[PeerServer]:
    """Run an MLflow server over SQLite while the block runs."""
    (port,) = find_free_ports(1)
    command = [
        *(str(ENVIRONMENTS / "mlflow/bin/python"), "-m", "mlflow", "server", "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"),
        *("--artifacts-destination", str(folder / "artifacts")),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    settings = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with _run("mlflow", command, settings, folder, port, "/health") as server:
        yield server


@contextmanager
def run_phoenix(folder: Path) -> Generator[PeerServer]:
    """Run a Phoenix server over SQLite while the block runs; it is kept from calling anybody."""
    port, grpc_port = find_free_ports(2)
    settings = {
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
        "PHOENIX_AGENTS_DISABLE_WEB_ACCESS": "true",
        "PHOENIX_ENABLE_MCP_SERVER": "false",
    }
    command = [str(ENVIRONMENTS / "phoenix/bin/phoenix"), "serve"]
    with _run("phoenix", command, settings, folder, port, "/healthz") as server:
        yield server


@contextmanager
def _run(
    name: str, command: list[str], settings: Mapping[str, str], folder: Path, port: int, health: str
) -> Generator[PeerServer]:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**plain_environment(), "HOME": str(folder), **settings}
    # Its own tools first: MLflow starts the server by name.
    environment["PATH"] = f"{ENVIRONMENTS / name / 'bin'}:{environment['PATH']}"
    log = folder / f"{name}.log"
    children = Children()
    with log.open("wb") as output:
        process = children.start(command, environment=environment, output=output, cwd=folder)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(name, process, f"{url}{health}", log)
        yield PeerServer(url, f"127.0.0.1:{port}", folder, process)
    finally:
        # Kills the whole process group: MLflow has workers below it.
        children.end_all()
        process.wait()


def _wait(name: str, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    give_up_at = time.monotonic() + _START_PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        try:
            if httpx.get(url, timeout=5).is_success:
                return
        except httpx.HTTPError:
            pass
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"{name} did not start:\n{log.read_text(errors='replace')[-4000:]}")
