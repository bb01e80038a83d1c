"""What `sam build` needs before it runs, and what is done to its result afterwards."""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evalward_local.template import Template, read_template

UNZIPPED_LIMIT_BYTES = 250 * 1024 * 1024
# What the wheels carry and no function needs: tests, stubs, C headers and sources, and the parts of Arrow for other
# stores and wire protocols. Its main library links compute, acero, dataset, parquet and substrait: those stay.
_DISPENSABLE = (
    # A documentation page of Powertools' own that no route shows.
    "aws_lambda_powertools/event_handler/openapi/swagger_ui/*.min.*",
    # What else of Powertools nothing of ours imports.
    "aws_lambda_powertools/metrics/provider/datadog",
    "aws_lambda_powertools/utilities/auth_alpha",
    "aws_lambda_powertools/utilities/circuit_breaker",
    "aws_lambda_powertools/utilities/data_masking",
    "aws_lambda_powertools/utilities/feature_flags",
    "aws_lambda_powertools/utilities/idempotency",
    "aws_lambda_powertools/utilities/kafka",
    "aws_lambda_powertools/utilities/parameters",
    "aws_lambda_powertools/utilities/streaming",
    "aws_lambda_powertools/utilities/validation",
    # Time zones of dateutil's own: croniter works in UTC.
    "dateutil/zoneinfo/*.tar.gz",
    "mpmath/tests",
    # A plugin of a type checker, stubs, and the first version, which nothing asks for that has only second ones.
    "pydantic/mypy.py",
    "pydantic/v1",
    "**/*.pyi",
    "pyarrow/**/*.pxd",
    "pyarrow/**/*.pxi",
    "pyarrow/**/*.pyx",
    "pyarrow/_flight.*",
    "pyarrow/_gcsfs.*",
    "pyarrow/_s3fs.*",
    "pyarrow/include",
    "pyarrow/libarrow_flight.so*",
    # Copies of libarrow_python.so.NNNN: a zip file, and so a wheel, has no links.
    "pyarrow/libarrow_python.so",
    "pyarrow/libarrow_python.so.*.*",
    "pyarrow/libarrow_s3.so*",
    "pyarrow/src",
    "pyarrow/tests",
)
_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


class PackagingError(Exception):
    """A step of the packaging failed; the message is what the tool said."""


@dataclass(frozen=True)
class BuiltSize:
    """Unzipped size of a function.

    Attributes
    ----------
    function_id
        Logical id.
    function_bytes, layers_bytes
        Its own folder, and its layers together.
    """

    function_id: str
    function_bytes: int
    layers_bytes: int

    @property
    def total_bytes(self) -> int:
        """What Lambda counts against its limit."""
        return self.function_bytes + self.layers_bytes


def write_requirements(template_path: Path, uv: Path) -> list[Path]:
    """Write `requirements.txt` beside the code of every layer and function, from the lock file.

    Nothing is packed twice: a layer leaves out what the layers before it bring, a function what any layer brings. Every
    function therefore has to name all layers, in the template's order.

    Parameters
    ----------
    template_path
        The SAM template, in the folder of `uv.lock`.
    uv
        The program.

    Returns
    -------
    list of pathlib.Path
        The files written.

    Raises
    ------
    PackagingError
        When uv fails.
    """
    template = read_template(template_path)
    project = template_path.resolve().parent
    layer_packages = {layer_id: _package_name(folder.parent) for layer_id, folder in template.layer_folders.items()}
    brought: set[str] = set()
    written: list[Path] = []
    for layer_id, folder in template.layer_folders.items():
        others = [name for other_id, name in layer_packages.items() if other_id != layer_id]
        text = _export(project, uv, layer_packages[layer_id], prune=others, leave_out=brought)
        brought |= set(_REQUIREMENT.findall(text))
        written.append(_write(folder / "requirements.txt", text))
    for folder in template.code_folders.values():
        text = _export(project, uv, _package_name(folder), prune=[], leave_out=brought)
        written.append(_write(folder / "requirements.txt", text))
    return written


def trim_build(template_path: Path) -> None:
    """Delete what the packages brought along and no function needs.

    Parameters
    ----------
    template_path
        The SAM template whose build it is.
    """
    template = read_template(template_path)
    build = template_path.resolve().parent / ".aws-sam" / "build"
    roots = [build / name for name in template.code_folders] + [
        build / name / "python" for name in template.layer_folders
    ]
    for path in [path for root in roots for pattern in _DISPENSABLE for path in root.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def compile_bytecode(template_path: Path, python: str) -> None:
    """Compile everything below `.aws-sam/build`, never to be checked against the sources again.

    A function starts more than twice as fast with it, and its own folder is read-only on Lambda.

    Parameters
    ----------
    template_path
        The SAM template whose build it is.
    python
        An interpreter of the version Lambda runs: bytecode is only good for that one.

    Raises
    ------
    PackagingError
        When a file does not compile.
    """
    template = read_template(template_path)
    build = template_path.resolve().parent / ".aws-sam" / "build"
    for stale in build.rglob("__pycache__"):
        shutil.rmtree(stale)
    for mount, names in (("/var/task", template.code_folders), ("/opt", template.layer_folders)):
        for name in names:
            folder = build / name
            options = ["--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", mount]
            _run([python, "-I", "-m", "compileall", "-q", *options, str(folder)], build)


def measure_build(template_path: Path) -> list[BuiltSize]:
    """Return the unzipped size of each function with its layers, as built.

    Parameters
    ----------
    template_path
        The SAM template whose build it is.

    Raises
    ------
    PackagingError
        When something has not been built.
    """
    template = read_template(template_path)
    build = template_path.resolve().parent / ".aws-sam" / "build"
    return [_measure(template, build, function_id) for function_id in template.code_folders]


def _measure(template: Template, build: Path, function_id: str) -> BuiltSize:
    layers = [build / layer_id for layer_id in template.layers_of(function_id)]
    for folder in (build / function_id, *layers):
        if not folder.is_dir():
            raise PackagingError(f"{folder} is missing")
    return BuiltSize(function_id, _folder_bytes([build / function_id]), _folder_bytes(layers))


def _folder_bytes(folders: Iterable[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())


def _package_name(folder: Path) -> str:
    name: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    return name


def _export(project: Path, uv: Path, package: str, *, prune: Iterable[str], leave_out: Iterable[str]) -> str:
    command = [
        str(uv),
        "export",
        "--frozen",
        "--quiet",
        "--no-dev",
        "--no-emit-workspace",
        "--no-annotate",
        "--no-header",
    ]
    command += ["--package", package]
    command += [part for name in prune for part in ("--prune", name)]
    command += [part for name in sorted(leave_out) for part in ("--no-emit-package", name)]
    return _run(command, project)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603
    if result.returncode != 0:
        raise PackagingError(f"{' '.join(command[:3])}: {(result.stderr or result.stdout)[-2000:]}")
    return result.stdout
