"""Targets of runs: what makes the output of a record."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_CALL_SECONDS = 60
"""Longest time-out of one call: an invocation has room for it and for what comes after it."""

type CallSeconds = Annotated[float, Field(gt=0, le=MAX_CALL_SECONDS, description="time-out of one call, in seconds")]
type SecretId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=500,
        description="Secrets Manager id below evalward/<project>/ whose JSON object holds request headers, as in "
        '{"authorization": "Bearer …"}; never a value',
        examples=["evalward/demo/support-bot"],
    ),
]
type FunctionArn = Annotated[
    str,
    Field(
        max_length=300,
        pattern=r"^arn:[a-z0-9-]+:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?$",
        description="ARN of a Lambda function that the deployment lists for the project",
        examples=["arn:aws:lambda:eu-central-1:123456789012:function:support-bot"],
    ),
]
type ModelId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=500,
        description="id or ARN of a Bedrock model or inference profile that the deployment lists for the project",
        examples=["eu.anthropic.claude-sonnet-4-20250514-v1:0"],
    ),
]


class TargetModel(BaseModel):
    """A target, as it is sent and as it is kept in a run."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class RecordedTarget(TargetModel):
    """The outputs that the records carry: nothing is called."""

    kind: Literal["recorded"] = "recorded"


class HttpTarget(TargetModel):
    """An endpoint to which each record's input is POSTed."""

    kind: Literal["http"]
    url: Annotated[str, Field(max_length=2000, description="https; the answer is JSON with a member `output`")]
    timeout_seconds: CallSeconds = 20.0
    secret: SecretId | None = None


class LambdaTarget(TargetModel):
    """A Lambda function that is invoked with each record's input."""

    kind: Literal["lambda"]
    function: FunctionArn
    timeout_seconds: CallSeconds = 30.0


class BedrockTarget(TargetModel):
    """A model that is asked by Amazon Bedrock's Converse."""

    kind: Literal["bedrock"]
    model: ModelId
    system: Annotated[str | None, Field(max_length=20_000, description="system prompt")] = None
    max_tokens: Annotated[int, Field(ge=1, le=100_000, description="tokens of one output at most")] = 1024
    temperature: Annotated[float | None, Field(ge=0, le=1, description="unset: the model's own")] = None
    timeout_seconds: CallSeconds = 60.0
    input_usd_per_million: Annotated[float | None, Field(ge=0, description="price of a million input tokens")] = None
    output_usd_per_million: Annotated[float | None, Field(ge=0, description="price of a million output tokens")] = None

    def price(self, input_tokens: int, output_tokens: int) -> float | None:
        """Return what an answer cost in US dollars; None without both prices: Bedrock itself names none."""
        if self.input_usd_per_million is None or self.output_usd_per_million is None:
            return None
        return (input_tokens * self.input_usd_per_million + output_tokens * self.output_usd_per_million) / 1_000_000


type Target = Annotated[RecordedTarget | HttpTarget | LambdaTarget | BedrockTarget, Field(discriminator="kind")]
