"""Which places a source of a project may read: files in buckets, and stores at an endpoint.

Checked when a source is made and again at every pull: the deployment's lists may have become shorter.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from coordination.errors import Fault
from coordination.remote_places import find_secret_fault
from coordination.settings import list_allowed

type ConnectorName = Literal["mlflow", "phoenix", "langfuse", "otlp_s3"]

_LOCATION = {
    "mlflow": (re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII), "must be the id of an experiment"),
    "phoenix": (re.compile(r"[^/?#\x00-\x1f\x7f]{1,200}"), "must be the name of a project, without slashes"),
    "langfuse": (re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII), "must be the id of the project the keys belong to"),
}
_BUCKET_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/[^\\%?#\x00]*)?", re.ASCII)


class LocationRefusedError(ValueError):
    """A project may not read there; the message says where it may, and follows the words `the location`."""


@dataclass(frozen=True, slots=True)
class FilesLocation:
    """Where files are.

    Attributes
    ----------
    bucket
        Its name.
    prefix
        Ends with a slash, or is empty: the whole bucket.
    """

    bucket: str
    prefix: str


def read_files_location(
    location: str, bucket: str, project: str, allowed_buckets: Mapping[str, Sequence[str]]
) -> FilesLocation:
    """Return the place that `s3://<bucket>/<prefix>` names.

    Parameters
    ----------
    location
        Below `s3://<bundle bucket>/traces/<project>/`, or in a bucket, or below a prefix of one, that is listed.
    bucket
        The bundle's.
    allowed_buckets
        Project id or `*` -> `<bucket>` or `<bucket>/<prefix>`.

    Raises
    ------
    LocationRefusedError
        It lies elsewhere, or holds `.`, `..`, empty or encoded segments.
    """
    home = f"{bucket}/traces/{project}"
    match = _BUCKET_ADDRESS.fullmatch(location)
    if match is not None:
        path = f"{match[1]}{match[2] or ''}".removesuffix("/")
        listed = list_allowed(allowed_buckets, project)
        # The bundle's own bucket holds what belongs to other projects: a list opens nothing of it.
        roots = [home, *(root.removesuffix("/") for root in listed if root.split("/")[0] != bucket)]
        is_clean = all(segment not in ("", ".", "..") for segment in path.split("/"))
        if is_clean and any(path == root or path.startswith(f"{root}/") for root in roots):
            name, _, prefix = path.partition("/")
            return FilesLocation(name, f"{prefix}/" if prefix else "")
    raise LocationRefusedError(
        f"must lie under s3://{home}/, or in a bucket that the deployment lists (SourceAllowedBuckets), written "
        "without encoding"
    )


def find_place_faults(
    connector: ConnectorName, endpoint: str | None, credentials: str | None, location: str, project: str
) -> list[Fault]:
    """Find what is wrong with the place that a source names: nothing is resolved, and no bucket looked at."""
    if connector == "otlp_s3":
        named = {"endpoint": endpoint, "credentials": credentials}
        return [Fault(f"/{name}", "is none of an otlp_s3 source") for name, value in named.items() if value is not None]
    faults: list[Fault] = []
    if endpoint is None:
        faults.append(Fault("/endpoint", f"is missing: a {connector} source needs the address of its server"))
    elif set(endpoint) & set("?#"):
        faults.append(Fault("/endpoint", "must be an address without query and fragment"))
    if credentials is not None:
        message = find_secret_fault(credentials, project)
        faults += [Fault("/credentials", message)] if message else []
    elif connector == "langfuse":
        faults.append(Fault("/credentials", "is missing: Langfuse wants a public and a secret key"))
    pattern, message = _LOCATION[connector]
    if not pattern.fullmatch(location) or location in (".", ".."):
        faults.append(Fault("/location", message))
    return faults
