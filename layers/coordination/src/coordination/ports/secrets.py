"""Secrets Manager."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from coordination.ports.client_configs import make_service_config

if TYPE_CHECKING:
    from mypy_boto3_secretsmanager import SecretsManagerClient

_NOT_TO_BE_HAD = frozenset(
    {
        "AccessDeniedException",
        "DecryptionFailure",
        "InvalidParameterException",
        "InvalidRequestException",
        "ResourceNotFoundException",
        "ValidationException",
    }
)


class SecretUnavailableError(Exception):
    """Secrets Manager did not answer, or had too much to do: another time it may."""


class Secrets:
    """Reads and writes JSON secrets; a secret is read once per environment unless a fresh copy is asked for."""

    def __init__(self) -> None:
        self._cache: dict[str, dict[str, Any]] = {}

    @cached_property
    def _client(self) -> "SecretsManagerClient":
        import boto3

        return boto3.client("secretsmanager", config=make_service_config())

    def read(self, secret_id: str, is_fresh: bool = False) -> dict[str, Any]:
        """Return the JSON object of a secret.

        Raises
        ------
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
            The secret cannot be reached or may not be read.
        """
        if is_fresh or secret_id not in self._cache:
            self._cache[secret_id] = orjson.loads(self._client.get_secret_value(SecretId=secret_id)["SecretString"])
        return self._cache[secret_id]

    def read_foreign(self, secret_id: str) -> Any:
        """Return the JSON of a secret that a project named, as it is now; None when it cannot be had.

        Parameters
        ----------
        secret_id
            Whether the project may name it is the caller's to check.

        Raises
        ------
        SecretUnavailableError
            Secrets Manager did not answer; another time it may.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            text = self._client.get_secret_value(SecretId=secret_id).get("SecretString", "")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _NOT_TO_BE_HAD:
                return None
            raise SecretUnavailableError from error
        except BotoCoreError as error:
            raise SecretUnavailableError from error
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return None

    def write(self, secret_id: str, value: dict[str, Any]) -> None:
        """Put a new version of a secret.

        Raises
        ------
        botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError
            The secret cannot be reached or may not be written.
        """
        self._client.put_secret_value(SecretId=secret_id, SecretString=orjson.dumps(value).decode())
        self._cache.pop(secret_id, None)
