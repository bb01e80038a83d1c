"""`stack.json`: where other programs find a running stack."""

import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

_FILE_NAME = "stack.json"


class RunningFunction(BaseModel):
    """A function of the stack: logical id, name at Lambda, and how many environments it may have."""

    model_config = ConfigDict(frozen=True)

    id: str
    name: str
    environments: int


class StackFile(BaseModel):
    """What a running stack tells about itself.

    Attributes
    ----------
    api_url, control_url, aws_endpoint_url
        Base URLs without a final slash.
    admin_key
        The installation's first API key; empty when the template has none.
    database_url, superuser_url
        libpq URIs of evalward_app and of the server's superuser.
    pg_bin_dir
        Folder with psql and pg_dump of the server's version; empty for a server of somebody else's.
    s3_endpoint_url
        Where S3 is, when it is not at `aws_endpoint_url`.
    bucket, region
        The dataset bucket, and the region every client has to name.
    pid
        Of the stack's process.
    functions
        The functions of the template.
    """

    model_config = ConfigDict(frozen=True)

    api_url: str
    control_url: str
    admin_key: str
    database_url: str
    superuser_url: str
    pg_bin_dir: str
    bucket: str
    aws_endpoint_url: str
    region: str
    pid: int
    functions: tuple[RunningFunction, ...]
    s3_endpoint_url: str | None = None


def read_stack_file(state_folder: Path) -> StackFile | None:
    """Return the stack that runs with this state folder, or None when there is none alive.

    Parameters
    ----------
    state_folder
        The `--state` of the stack.
    """
    try:
        stack = StackFile.model_validate_json((state_folder / _FILE_NAME).read_text())
    except (OSError, ValidationError):
        return None
    return stack if _is_alive(stack.pid) else None


def write_stack_file(state_folder: Path, stack: StackFile) -> None:
    """Write the file in one step, readable by its owner only: it holds keys."""
    descriptor, name = tempfile.mkstemp(dir=state_folder, prefix=f".{_FILE_NAME}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(stack.model_dump_json(indent=2, exclude_none=True))
    Path(name).replace(state_folder / _FILE_NAME)


def remove_stack_file(state_folder: Path) -> None:
    """Remove the file; a missing one is fine."""
    (state_folder / _FILE_NAME).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
