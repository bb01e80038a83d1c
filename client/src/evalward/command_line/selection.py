"""How a command's argument names a dataset or a run."""

import difflib
import re
from collections.abc import Callable
from itertools import islice

from evalward.client import Client
from evalward.errors import ConfigurationError
from evalward.transport import JsonObject

_WORDS = ("latest", "previous")
_WITH_REPORT = ("succeeded", "failed")
_LOOKED_BACK = 2000


def is_sha256(named: str) -> bool:
    """Tell whether a dataset is named by its content."""
    return re.fullmatch(r"[0-9a-f]{64}", named) is not None


def find_nearest(named: str, names: list[str]) -> str | None:
    """Return the name that was probably meant, if one is close."""
    return next(iter(difflib.get_close_matches(named, names, n=1, cutoff=0.7)), None)


def find_dataset(client: Client, project: str, named: str) -> JsonObject:
    """Return a dataset by sha256, by name@version, or by name (its newest version).

    Raises
    ------
    ConfigurationError
        No version has the name.
    """
    if "@" in named or is_sha256(named):
        return client.datasets.get(project, named)
    newest = client.datasets.page(project, name=named, limit=1)["items"]
    if not newest:
        names = [str(dataset["name"]) for dataset in client.datasets.page(project, limit=200)["items"]]
        nearest = find_nearest(named, names)
        meant = f" Did you mean {nearest}?" if nearest else ""
        raise ConfigurationError(
            f"{project} has no dataset {named}.{meant} `evalward datasets list` shows what it has."
        )
    return newest[0]


def is_word(named: str) -> bool:
    """Tell whether a run is named by its place among the others, which changes with time.

    Raises
    ------
    ConfigurationError
        It is nearly such a word.
    """
    if named not in _WORDS and (meant := find_nearest(named, [*_WORDS])):
        raise ConfigurationError(f"{named} is no id of a run. Did you mean {meant}?")
    return named in _WORDS


def find_run(client: Client, project: str, named: str, before: str | None = None) -> str:
    """Return a run's id.

    Parameters
    ----------
    client, project
        Where to look.
    named
        An id; `latest`, the run created last; or `previous`, the newest one that was created before another run, has
        its name and its source, and a report.
    before
        That other run's id; None for the latest.

    Raises
    ------
    ConfigurationError
        There is no such run, or a word is misspelt.
    """
    if not is_word(named):
        return named
    if named == "latest":
        return str(_find_latest(client, project)["id"])
    run = _find_latest(client, project) if before is None else client.runs.get(project, before)
    is_earlier = False
    for other in islice(client.runs.each(project), _LOOKED_BACK):
        if is_earlier and other["state"] in _WITH_REPORT and _identify(other) == _identify(run):
            return str(other["id"])
        is_earlier = is_earlier or other["id"] == run["id"]
    raise ConfigurationError(
        f"{project} has no run with a report that was created before {run['id']} and is named {run['name']!r} too, "
        f"among its newest {_LOOKED_BACK}: `evalward runs list` shows what it has."
    )


def finder(client: Client, project: str, named: str) -> Callable[[], str] | None:
    """Return what finds a run for a write to it, or None when it is named by its id.

    Raises
    ------
    ConfigurationError
        As `is_word`.
    """
    return (lambda: find_run(client, project, named)) if is_word(named) else None


def _find_latest(client: Client, project: str) -> JsonObject:
    newest = client.runs.page(project, limit=1)["items"]
    if not newest:
        raise ConfigurationError(f"{project} has no run yet: `evalward runs create -f run.yaml` makes one.")
    return newest[0]


def _identify(run: JsonObject) -> tuple[str, str | None]:
    return run["name"], run["source"]["id"] if run.get("source") else None
