"""LLM judge: a model grades the output by a rubric.

Only the parameters are here: the call is made by who may make calls. The model is shown the record as material that it
must not take orders from, and answers with a grade in a shape that is checked; whatever is not such a grade is asked
for again and in the end an error of its row, never a score.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from records.evaluators.contract import Evaluator, EvaluatorParams, refuse_to_build

type ShownField = Literal["input", "output", "reference", "context", "trajectory", "metadata"]


class LlmJudgeParams(EvaluatorParams):
    """Parameters of llm_judge."""

    provider: Literal["bedrock", "openai"] = Field(
        description="bedrock: Converse of Amazon Bedrock; openai: an endpoint with OpenAI's chat completions."
    )
    model: str = Field(
        min_length=1,
        max_length=500,
        description="Id of the model; for bedrock a model or an inference profile that the deployment lists for the "
        "project.",
    )
    rubric: str = Field(
        min_length=1,
        max_length=20_000,
        description="What is graded and what each grade means, in words.",
        examples=["Is the answer supported by the context? 5: all of it; 3: its main point; 1: none of it."],
    )
    lowest: int = Field(default=1, ge=0, le=100, description="Worst grade: score 0.")
    highest: int = Field(default=5, ge=0, le=100, description="Best grade: score 1.")
    pass_at_least: float | None = Field(
        default=None, ge=0, le=1, description="Smallest score that passes; unset: nothing passes or fails."
    )
    show: list[ShownField] = Field(
        default_factory=lambda: ["input", "output", "reference"],
        min_length=1,
        max_length=6,
        description="Fields of the record that the model is shown.",
    )
    url: str | None = Field(
        default=None,
        max_length=2000,
        description="For openai: the address of the endpoint, as in https://api.example.com/v1/chat/completions.",
    )
    secret: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="For openai: Secrets Manager id below evalward/<project>/ whose JSON object holds request headers; "
        "never a value.",
    )
    temperature: float | None = Field(default=None, ge=0, le=2, description="Unset: the model's own.")
    max_tokens: int = Field(default=1024, ge=16, le=100_000, description="Tokens of one verdict at most.")
    timeout_seconds: float = Field(default=30.0, gt=0, le=60, description="Time-out of one call, in seconds.")

    @model_validator(mode="after")
    def makes_sense(self) -> Self:
        """Refuse grades without an order and places that the provider does not have."""
        if self.lowest >= self.highest:
            message = f"lowest ({self.lowest}) must be less than highest ({self.highest})"
            raise ValueError(message)
        if (self.provider == "openai") != (self.url is not None):
            message = "url goes with provider openai and is needed there"
            raise ValueError(message)
        if self.provider == "bedrock" and self.secret is not None:
            message = "secret goes with provider openai; bedrock is called in the deployment's own name"
            raise ValueError(message)
        if "output" not in self.show:
            message = "show must hold output: it is what is graded"
            raise ValueError(message)
        return self


EVALUATOR = Evaluator(
    name="llm_judge",
    version=1,
    kind="number",
    description="How a model grades the output by a rubric.",
    score_meaning="The grade on a scale from 0 (lowest) to 1 (highest). With pass_at_least, a record passes from there "
    "on. Skipped without an output. An answer of the model that is no grade is asked for again, and is an error in the "
    "end.",
    params=LlmJudgeParams,
    build=refuse_to_build,
    minimum=0.0,
    maximum=1.0,
    calls_out=True,
)
