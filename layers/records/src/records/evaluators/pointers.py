"""What pydantic refused, as JSON Pointers with messages that a person can act on."""

from dataclasses import dataclass

from pydantic import ValidationError

from records.evaluators.json_values import escape_pointer


@dataclass(frozen=True, slots=True)
class ParameterProblem:
    """One thing that is wrong with parameters.

    Parameters
    ----------
    pointer
        Where: a JSON Pointer (RFC 6901) from the root that the validating function was told.
    message
        What is wrong and what would be right.
    """

    pointer: str
    message: str


def describe_problems(error: ValidationError, at: str) -> tuple[ParameterProblem, ...]:
    """Turn a refusal of pydantic into problems.

    Parameters
    ----------
    error
        The refusal.
    at
        JSON Pointer of the value that was validated.
    """
    problems: list[ParameterProblem] = []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        message = detail["msg"].removeprefix("Value error, ")
        if detail["type"] == "extra_forbidden":
            message = "there is no such parameter; remove it"
        elif detail["type"] == "missing":
            message = "this parameter is required"
        elif detail["type"] == "model_type":
            message = "must be a JSON object"
        pointer = at + "".join(f"/{escape_pointer(str(step))}" for step in detail["loc"])
        problems.append(ParameterProblem(pointer, message))
    return tuple(problems)
