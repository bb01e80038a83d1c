"""Amazon Bedrock: models by its Converse."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coordination.ports.client_configs import make_caller_config
from coordination.ports.remote_calls import CallFailedError

_PASSING = frozenset(
    {
        "InternalServerException",
        "ModelErrorException",
        "ModelNotReadyException",
        "ModelTimeoutException",
        "ServiceUnavailableException",
        "ThrottlingException",
    }
)


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answered.

    Attributes
    ----------
    text
        Its text, all parts put together; empty when it has none.
    tool_input
        What it called a tool with; None when it called none.
    input_tokens, output_tokens
        As Bedrock counts them.
    """

    text: str
    tool_input: Any
    input_tokens: int
    output_tokens: int


@lru_cache(maxsize=8)
def _make_client(timeout_seconds: float) -> Any:
    import boto3

    make: Any = boto3.client
    return make("bedrock-runtime", config=make_caller_config(timeout_seconds))


class LanguageModels:
    """Asks models and waits for their answers."""

    def prepare(self, timeout_seconds: float) -> None:
        """Make the client before threads do: making one is not safe in several at once."""
        _make_client(timeout_seconds)

    def converse(self, model: str, request: Mapping[str, Any], *, timeout_seconds: float) -> ModelAnswer:
        """Ask a model.

        Parameters
        ----------
        model
            Id or ARN; whether it may be asked is the caller's to check.
        request
            Further arguments of Converse: messages, system, inferenceConfig, toolConfig.
        timeout_seconds
            For the connection and between two reads; one of a few values, as each has a client of its own.

        Raises
        ------
        CallFailedError
            It did not answer, or refused.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            answer: Any = _make_client(timeout_seconds).converse(modelId=model, **request)
            content = answer["output"]["message"]["content"]
            usage = answer["usage"]
            calls = [part["toolUse"]["input"] for part in content if "toolUse" in part]
            return ModelAnswer(
                "".join(part["text"] for part in content if "text" in part),
                calls[0] if calls else None,
                int(usage["inputTokens"]),
                int(usage["outputTokens"]),
            )
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise CallFailedError(
                f"the model was not asked ({code})", may_pass=code in _PASSING or status >= 500
            ) from error
        except BotoCoreError as error:
            raise CallFailedError(f"the model did not answer ({type(error).__name__})", may_pass=True) from error
        except (ResponseParserError, KeyError, TypeError, ValueError) as error:
            raise CallFailedError("the model's answer is not that of Converse") from error
