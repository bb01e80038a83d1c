"""An S3 server that checks signatures, sizes, checksums and conditions, which moto does not."""

from collections.abc import Generator
from contextlib import closing

import boto3
import pytest
from evalward_local.children import Children
from evalward_local.kept_objects import start_kept_objects


@pytest.fixture(scope="session")
def strict_s3(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Return the address of a SeaweedFS with the bucket `evalward-test`; its keys are `test` and `test`."""
    folder = tmp_path_factory.mktemp("weed")
    children = Children()
    kept = start_kept_objects(folder / "objects", folder / "weed.log", children)
    client = boto3.client(
        "s3",
        endpoint_url=kept.endpoint_url,
        region_name="eu-central-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    try:
        with closing(client):
            client.create_bucket(Bucket="evalward-test")
        yield kept.endpoint_url
    finally:
        kept.stop()
        children.end_all()
