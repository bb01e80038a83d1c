"""What each field of a canonical row may hold, as checks that say what to do about anything else."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import orjson

ID_CHARACTERS_MAX = 256

_STEP_TEXTS = ("type", "name", "start_time", "end_time")
_TRAJECTORY_TEXTS = ("trace_id", "session_id")
_TOKEN_COUNTS = ("input_tokens", "output_tokens")
_AMOUNTS = ("cost_usd", "latency_ms")


class Misfit(NamedTuple):
    """A value of the wrong kind: where below the field, and what was expected."""

    path: tuple[str | int, ...]
    message: str


def check_context(value: Any) -> Misfit | None:
    """Accept a list, one text (which becomes a list of it), and null."""
    if value is None or type(value) is list or type(value) is str:
        return None
    return Misfit((), f"context is a list of passages or one text, not {name_kind(value)}")


def check_metadata(value: Any) -> Misfit | None:
    """Accept an object, and null."""
    if value is None or type(value) is dict:
        return None
    return Misfit((), f"metadata is an object, not {name_kind(value)}")


def check_trajectory(value: Any) -> Misfit | None:
    """Accept ``{"trace_id"?, "session_id"?, "steps": [{...}]}``; members of other names are data."""
    if value is None:
        return None
    if type(value) is not dict:
        return Misfit((), f"trajectory is an object with steps, not {name_kind(value)}")
    trajectory = cast("dict[str, Any]", value)
    for name in _TRAJECTORY_TEXTS:
        if not isinstance(trajectory.get(name), str | None):
            return Misfit((name,), f"{name} is a text, not {name_kind(trajectory[name])}")
    steps = trajectory.get("steps")
    if type(steps) is not list:
        return Misfit(("steps",), "a trajectory has steps: a list of objects")
    for position, step in enumerate(cast("list[Any]", steps)):
        if type(step) is not dict:
            return Misfit(("steps", position), f"a step is an object, not {name_kind(step)}")
        members = cast("dict[str, Any]", step)
        for name in _STEP_TEXTS:
            if not isinstance(members.get(name), str | None):
                return Misfit(("steps", position, name), f"{name} is a text, not {name_kind(members[name])}")
        if not isinstance(members.get("attributes"), dict | None):
            message = f"attributes is an object, not {name_kind(members['attributes'])}"
            return Misfit(("steps", position, "attributes"), message)
    return None


def check_usage(value: Any) -> Misfit | None:
    """Accept numbers of at least 0, whole ones for tokens; members of other names are data."""
    if value is None:
        return None
    if type(value) is not dict:
        return Misfit((), f"usage is an object of numbers, not {name_kind(value)}")
    usage = cast("dict[str, Any]", value)
    for name in _TOKEN_COUNTS:
        number = _read_number(usage.get(name))
        if number is _NO_NUMBER or not (number is None or (number >= 0 and number == int(number))):
            return Misfit((name,), f"{name} is a whole number of at least 0")
    for name in _AMOUNTS:
        number = _read_number(usage.get(name))
        if number is _NO_NUMBER or not (number is None or number >= 0):
            return Misfit((name,), f"{name} is a number of at least 0")
    return None


TYPE_CHECKS: dict[str, Callable[[Any], Misfit | None]] = {
    "context": check_context,
    "metadata": check_metadata,
    "trajectory": check_trajectory,
    "usage": check_usage,
}


def name_kind(value: Any) -> str:
    """Return what JSON calls the kind of `value`, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case int():
            return "an integer"
        case _:
            return "a number with a fraction or exponent"


_NO_NUMBER: Any = object()


def _read_number(value: Any) -> Any:
    if value is None or type(value) in {int, float}:
        return value
    # A number whose canonical text is not orjson's own travels as a fragment of that text.
    return float(orjson.dumps(value)) if type(value) is orjson.Fragment else _NO_NUMBER
