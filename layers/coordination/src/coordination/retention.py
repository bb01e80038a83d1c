"""How long a project keeps its ended runs: `720h`, `30d`, ISO 8601 (`P30D`), or `"0"` for ever.

Precedence: the project's own field, then the deployment's map of projects, then the deployment's default. Where nothing
is set, runs are kept for ever.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

_SHORT = re.compile(r"([0-9]{1,6})([hd])")
_ISO = re.compile(r"P(?:(\d{1,6})D)?(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,6})S)?)?", re.ASCII)
_MINIMUM_SECONDS = 3600


def parse_retention_seconds(text: str) -> int | None:
    """Read a retention period.

    Returns
    -------
    int or None
        Seconds (>= 3600); None for `"0"`, which keeps for ever.

    Raises
    ------
    ValueError
        Another form, or under one hour: the sweep is hourly.
    """
    if text == "0":
        return None
    seconds: int | None = None
    if short := _SHORT.fullmatch(text):
        seconds = int(short[1]) * (3600 if short[2] == "h" else 86_400)
    elif (iso := _ISO.fullmatch(text)) and any(iso.groups()):
        days, hours, minutes, rest = (int(part or 0) for part in iso.groups())
        seconds = days * 86_400 + hours * 3600 + minutes * 60 + rest
    if seconds is None:
        raise ValueError('write a retention period as "720h", "30d", ISO 8601 such as "P30D", or "0" for ever')
    if seconds < _MINIMUM_SECONDS:
        raise ValueError("the shortest retention period is one hour")
    return seconds


def _check(text: str) -> str:
    parse_retention_seconds(text)
    return text


type RetentionPeriod = Annotated[
    str, AfterValidator(_check), Field(description='age at which finished runs go: "720h", "30d", "P30D", "0" = never')
]


def choose_retention_seconds(
    project: str, own: str | None, by_project: Mapping[str, str], default: str | None
) -> int | None:
    """Return how long a project keeps its ended runs.

    Parameters
    ----------
    project
        Its id.
    own
        Its own field; wins when set.
    by_project
        Of the deployment, by project id; wins over the default.
    default
        Of the deployment.

    Returns
    -------
    int or None
        Seconds (>= 3600); None when runs are kept for ever.

    Raises
    ------
    ValueError
        The period that counts has no form that is understood.
    """
    period = own if own is not None else by_project.get(project, default)
    return None if period is None else parse_retention_seconds(period)
