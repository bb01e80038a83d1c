"""S3."""

import base64
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, BinaryIO, cast

from coordination.errors import StorageUnavailableError
from coordination.ports.client_configs import make_service_config

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


class ObjectNotFoundError(Exception):
    """No object at that key."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that is about to be read.

    Attributes
    ----------
    bytes
        Its size.
    body
        Its content, streamed.
    """

    bytes: int
    body: BinaryIO


class _TranslatedBody:
    """An object's content, whose errors are those of the port."""

    def __init__(self, body: BinaryIO, translated: Callable[[], AbstractContextManager[None]]) -> None:
        self._body = body
        self._translated = translated

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, all that is left when it is negative."""
        with self._translated():
            return self._body.read(size) if size >= 0 else self._body.read()


class Objects:
    """Reads and writes the objects of one bucket; the client is made at the first use.

    Parameters
    ----------
    bucket
        Name of the bucket.
    """

    def __init__(self, bucket: str) -> None:
        self.bucket = bucket

    @cached_property
    def _client(self) -> "S3Client":
        import boto3
        from botocore.config import Config

        # Presigned URLs bind headers only with this signature version.
        config = make_service_config().merge(Config(signature_version="s3v4"))
        return boto3.client("s3", config=config)

    def open(self, key: str, version_id: str | None = None) -> StoredObject:
        """Begin to read an object; reading its body raises `StorageUnavailableError` when S3 stops in the middle.

        Raises
        ------
        ObjectNotFoundError
            There is none.
        StorageUnavailableError
            S3 cannot be reached or refused.
        """
        with self._translated():
            if version_id is None:
                answer = self._client.get_object(Bucket=self.bucket, Key=key)
            else:
                answer = self._client.get_object(Bucket=self.bucket, Key=key, VersionId=version_id)
        body = _TranslatedBody(cast("BinaryIO", answer["Body"]), self._translated)
        return StoredObject(answer["ContentLength"], cast("BinaryIO", body))

    def read(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return an object's bytes, or those of the range [start, end).

        Raises
        ------
        ObjectNotFoundError
            There is none.
        StorageUnavailableError
            S3 cannot be reached or refused.
        """
        with self._translated():
            if start is None or end is None:
                return self._client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            return self._client.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={start}-{end - 1}")["Body"].read()

    def put(self, key: str, body: bytes | BinaryIO, content_type: str) -> bool:
        """Write an object unless one is there already.

        Returns
        -------
        bool
            Whether it was written; False when the key is taken, which for a content-addressed key means the same bytes.

        Raises
        ------
        StorageUnavailableError
            S3 cannot be reached or refused.
        """
        from botocore.exceptions import ClientError

        with self._translated():
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=key, Body=body, ContentType=content_type, IfNoneMatch="*"
                )
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") == "PreconditionFailed":
                    return False
                raise
        return True

    def presign_get(self, key: str, valid_seconds: int, file_name: str) -> str:
        """Return a URL that reads an object without credentials for `valid_seconds`."""
        return self._client.generate_presigned_url(
            "get_object",
            Params={
                "Bucket": self.bucket,
                "Key": key,
                "ResponseContentDisposition": f'attachment; filename="{file_name}"',
            },
            ExpiresIn=valid_seconds,
        )

    def presign_put(self, key: str, size: int, sha256: str, valid_seconds: int) -> tuple[str, dict[str, str]]:
        """Return a URL that takes one object of exactly this size and content, and the headers to send with it.

        Parameters
        ----------
        size
            Bytes of the object.
        sha256
            Of its content, 64 hex digits.
        valid_seconds
            How long an upload may begin.
        """
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        url = self._client.generate_presigned_url(
            "put_object",
            Params={
                "Bucket": self.bucket,
                "Key": key,
                "ContentLength": size,
                "ChecksumSHA256": checksum,
                "IfNoneMatch": "*",
            },
            ExpiresIn=valid_seconds,
        )
        return url, {"content-length": str(size), "x-amz-checksum-sha256": checksum, "if-none-match": "*"}

    def list_page(self, prefix: str, after: str, limit: int) -> list[tuple[str, datetime]]:
        """Return up to `limit` keys below a prefix with the time each was written, in key order after a key.

        Raises
        ------
        StorageUnavailableError
            S3 cannot be reached or refused.
        """
        with self._translated():
            page = self._client.list_objects_v2(Bucket=self.bucket, Prefix=prefix, StartAfter=after, MaxKeys=limit)
        return [
            (entry["Key"], entry["LastModified"])
            for entry in page.get("Contents", [])
            if "Key" in entry and "LastModified" in entry
        ]

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; one that is not there is no error.

        Raises
        ------
        StorageUnavailableError
            S3 cannot be reached or refused.
        """
        with self._translated():
            for key in keys:
                self._client.delete_object(Bucket=self.bucket, Key=key)

    @contextmanager
    def _translated(self) -> Generator[None]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in {"NoSuchKey", "NoSuchVersion", "404"}:
                raise ObjectNotFoundError from error
            raise StorageUnavailableError(
                "The object store refused the request. Try again; nothing was published.", retry_after_seconds=5
            ) from error
        except BotoCoreError as error:
            raise StorageUnavailableError(
                "The object store cannot be reached. Try again; nothing was published.", retry_after_seconds=5
            ) from error
