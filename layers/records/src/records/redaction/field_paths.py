"""Paths to fields that are dropped: the part of JSONPath (RFC 9535) that names places without looking at values.

`$.metadata.user`, `$.trajectory.steps[*].args`, `$.metadata['user.email']`, `$.context[0]`, `$.metadata.*.phone`.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

EVERY = "*"
MAX_PATH_CHARACTERS = 500

type Step = str | int
type Path = tuple[Step, ...]

_STEP = re.compile(
    r"""\.(?P<name>[A-Za-z_][A-Za-z0-9_-]*)|\.(?P<any>\*)|\[(?P<every>\*)\]|\[(?P<index>[0-9]{1,9})\]"""
    r"""|\['(?P<single>(?:[^'\\]|\\.)+)'\]|\["(?P<double>(?:[^"\\]|\\.)+)"\]"""
)


class _Every(str):
    """Every member or item; a type of its own, so that a member that is called `*` is another step."""

    __slots__ = ()


ALL = _Every(EVERY)


def parse_path(text: str) -> Path:
    """Read a path.

    Raises
    ------
    ValueError
        It is none of the paths this module knows; the message says which those are.
    """
    rest = text.removeprefix("$")
    if text and rest == text and not text.startswith((".", "[")):
        rest = f".{text}"
    steps: list[Step] = []
    at = 0
    while at < len(rest):
        match = _STEP.match(rest, at)
        if match is None:
            break
        steps.append(_read_step(match))
        at = match.end()
    if not steps or at < len(rest) or len(text) > MAX_PATH_CHARACTERS:
        message = (
            f"{text[:60]!r} is no path to a field: write $.metadata.user, $.trajectory.steps[*].args or "
            "$.metadata['user.email'], without filters and without `..`"
        )
        raise ValueError(message)
    return tuple(steps)


def drop_path(value: Any, path: Path) -> int:
    """Take every place that a path names out of a value, in place.

    Items of a list that are dropped become null, so that the others keep their places.

    Returns
    -------
    int
        How many places there were.
    """
    parents = [value]
    for step in path[:-1]:
        parents = [child for parent in parents for child in _children(parent, step)]
    return sum(_drop(parent, path[-1]) for parent in parents)


def _read_step(match: re.Match[str]) -> Step:
    if match["any"] or match["every"]:
        return ALL
    if match["index"]:
        return int(match["index"])
    if match["name"]:
        return match["name"]
    return re.sub(r"\\(.)", r"\1", match["single"] or match["double"])


def _children(parent: Any, step: Step) -> Iterator[Any]:
    if isinstance(parent, dict):
        members = cast("dict[str, Any]", parent)
        if step is ALL:
            yield from members.values()
        elif step in members:
            yield members[step]
    elif isinstance(parent, list):
        items = cast("list[Any]", parent)
        if step is ALL:
            yield from items
        elif isinstance(step, int) and step < len(items):
            yield items[step]


def _drop(parent: Any, step: Step) -> int:
    if isinstance(parent, dict):
        members = cast("dict[str, Any]", parent)
        names = list(members) if step is ALL else [name for name in (step,) if name in members]
        for name in names:
            del members[name]
        return len(names)
    if isinstance(parent, list):
        items = cast("list[Any]", parent)
        places = range(len(items)) if step is ALL else [at for at in (step,) if isinstance(at, int) and at < len(items)]
        for at in places:
            items[at] = None
        return len(places)
    return 0
