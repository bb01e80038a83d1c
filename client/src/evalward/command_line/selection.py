"""How a command's argument names a dataset or a run."""

import re

from evalward.client import Client
from evalward.errors import ConfigurationError
from evalward.transport import JsonObject


def is_sha256(named: str) -> bool:
    """Tell whether a dataset is named by its content."""
    return re.fullmatch(r"[0-9a-f]{64}", named) is not None


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
        raise ConfigurationError(f"{project} has no dataset {named}: `evalward datasets list` shows what it has.")
    return newest[0]


def find_run(client: Client, project: str, named: str) -> str:
    """Return a run's id; `latest` is the one created last.

    Raises
    ------
    ConfigurationError
        There is no run yet.
    """
    if named != "latest":
        return named
    newest = client.runs.page(project, limit=1)["items"]
    if not newest:
        raise ConfigurationError(f"{project} has no run yet.")
    return str(newest[0]["id"])
