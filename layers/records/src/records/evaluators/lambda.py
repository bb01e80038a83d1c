# ruff: noqa: N999 - an evaluator is named like its file, and nobody imports this one by name
"""Lambda: a customer's Lambda function scores batches of records.

Only the parameters are here: the call is made by who may make calls.
"""

from typing import Any

from pydantic import Field

from records.evaluators.bounds import BoundsParams
from records.evaluators.contract import Evaluator, refuse_to_build


class LambdaParams(BoundsParams):
    """Parameters of lambda."""

    function: str = Field(
        max_length=300,
        pattern=r"^arn:[a-z0-9-]+:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?$",
        description="ARN of a function that the deployment lists for the project.",
    )
    batch_size: int = Field(default=20, ge=1, le=100, description="Records of one call at most.")
    settings: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Handed to the function with every batch, as it is."
    )
    timeout_seconds: float = Field(default=60.0, gt=0, le=60, description="Time-out of one call, in seconds.")


EVALUATOR = Evaluator(
    name="lambda",
    version=1,
    kind="number",
    description="What a Lambda function of yours says of the record.",
    score_meaning="The number that the function answers. With min or max, a record passes within them; without, when "
    "the function says so. Skipped where the function answers no score.",
    params=LambdaParams,
    build=refuse_to_build,
    calls_out=True,
)
