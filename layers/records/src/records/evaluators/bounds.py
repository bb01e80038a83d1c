"""Bounds on a number with a unit, for evaluators that measure something."""

from typing import Any, Self

from pydantic import Field, model_validator

from records.evaluators.contract import EvaluatorParams, Score, UnscorableError, scored


class BoundsParams(EvaluatorParams):
    """Bounds within which a record passes; without any, nothing passes or fails."""

    min: float | None = Field(default=None, description="Smallest number that passes, in the unit of the score.")
    max: float | None = Field(default=None, description="Largest number that passes, in the unit of the score.")

    @model_validator(mode="after")
    def are_in_order(self) -> Self:
        """Refuse bounds that nothing can satisfy."""
        if self.min is not None and self.max is not None and self.min > self.max:
            message = f"min ({self.min:g}) is larger than max ({self.max:g}), so that nothing could pass; swap them"
            raise ValueError(message)
        return self

    def score(self, number: float) -> Score:
        """Score the number, passed when it is within the bounds."""
        return scored(float(number), at_least=self.min, at_most=self.max)


def read_usage(usage: dict[str, Any] | None, field: str) -> float | None:
    """Return one number of a record's usage, ``None`` when it is not there.

    Raises
    ------
    UnscorableError
        It is not a number, or less than 0: a measurement that went wrong must not enter a mean.
    """
    value: Any = None if usage is None else usage.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        message = f"usage.{field} is not a number"
        raise UnscorableError(message)
    if value < 0:
        message = f"usage.{field} is less than 0"
        raise UnscorableError(message)
    return value
