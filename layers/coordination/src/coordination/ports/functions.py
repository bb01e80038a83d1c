"""Lambda functions of others."""

from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

from coordination.ports.client_configs import make_caller_config
from coordination.ports.remote_calls import CallFailedError

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_PASSING = frozenset(
    {
        "EC2ThrottledException",
        "ResourceConflictException",
        "ServiceException",
        "SnapStartTimeoutException",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)


@lru_cache(maxsize=8)
def _make_client(timeout_seconds: float) -> "LambdaClient":
    import boto3

    return boto3.client("lambda", config=make_caller_config(timeout_seconds))


class Functions:
    """Invokes Lambda functions and waits for their answers."""

    def prepare(self, timeout_seconds: float) -> None:
        """Make the client before threads do: making one is not safe in several at once."""
        _make_client(timeout_seconds)

    def invoke(self, function: str, payload: bytes, *, timeout_seconds: float, max_bytes: int) -> bytes:
        """Invoke a function and return the JSON it answered.

        Parameters
        ----------
        function
            ARN; whether it may be invoked is the caller's to check.
        payload
            JSON.
        timeout_seconds
            For the connection and between two reads; one of a few values, as each has a client of its own.
        max_bytes
            A longer answer is refused.

        Raises
        ------
        CallFailedError
            It was not invoked, ended in an error of its own, took too long or answered too much.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from urllib3.exceptions import HTTPError

        try:
            answer = _make_client(timeout_seconds).invoke(FunctionName=function, Payload=payload)
            # Closed also when it is not read to its end: the connection would stay open for nobody.
            with closing(answer["Payload"]) as body:
                content = body.read(max_bytes + 1)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise CallFailedError(
                f"the function was not invoked ({code})", may_pass=code in _PASSING or status >= 500
            ) from error
        except (BotoCoreError, HTTPError) as error:
            raise CallFailedError(f"the function did not answer ({type(error).__name__})", may_pass=True) from error
        if "FunctionError" in answer:
            raise CallFailedError(f"the function ended in an error ({answer['FunctionError']})", may_pass=True)
        if len(content) > max_bytes:
            raise CallFailedError(f"the function's answer has more than {max_bytes} bytes")
        return content
