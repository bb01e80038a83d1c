"""Where a function's code is and which interpreter runs it: the source tree, or what `sam build` made."""

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from evalward_local.functions import CodeLocation
from evalward_local.intrinsics import TemplateError

# What Lambda's own python3.13 brings, with what those packages import.
_RUNTIME_MODULES = (
    "awslambdaric",
    "boto3",
    "botocore",
    "dateutil",
    "jmespath",
    "runtime_client",
    "s3transfer",
    "simplejson",
    "six",
    "snapshot_restore_py",
    "urllib3",
)


class BuildMissingError(Exception):
    """`sam build` has not produced what is to run."""


def locate_source(folder: Path) -> CodeLocation:
    """Run a function from its source folder with the environment this program runs in.

    Parameters
    ----------
    folder
        The function's `CodeUri`; its packages and the layers' are installed, editable, beside this program.

    Raises
    ------
    TemplateError
        When the folder does not exist.
    """
    if not folder.is_dir():
        raise TemplateError(f"{folder}: no such folder")
    return CodeLocation(folder, (sys.executable,), ())


def locate_build(build_folder: Path, function_id: str, layer_ids: Sequence[str], runtime_folder: Path) -> CodeLocation:
    """Run a function from its built folder, its layers mounted over it as Lambda mounts them at `/opt`.

    Nothing of the environment this program runs in is visible: the interpreter is the base one without its site
    packages.

    Parameters
    ----------
    build_folder
        `.aws-sam/build`.
    function_id, layer_ids
        Logical ids, the layers in the function's order.
    runtime_folder
        From `mount_runtime`.

    Raises
    ------
    BuildMissingError
        When one of the folders is missing.
    """
    folder = build_folder / function_id
    # Later layers cover earlier ones.
    layers = [build_folder / layer_id / "python" for layer_id in reversed(layer_ids)]
    for path in (folder, *layers):
        if not path.is_dir():
            raise BuildMissingError(f"{path} is missing: run `make build`")
    base_interpreter = getattr(sys, "_base_executable", sys.executable)
    return CodeLocation(folder, (base_interpreter, "-s", "-S", "-P"), (folder, *layers, runtime_folder))


def mount_runtime(folder: Path) -> Path:
    """Link the packages Lambda's runtime itself brings into a folder of their own.

    Parameters
    ----------
    folder
        Made by this function.

    Returns
    -------
    pathlib.Path
        The same folder.
    """
    folder.mkdir(parents=True)
    for name in _RUNTIME_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        (folder / source.name).symlink_to(source)
    return folder
