"""Who may import whom and what: every rule with a sample that breaks it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = [
    path
    for room in ("client", "functions", "layers")
    for path in sorted((ROOT / room).rglob("*.py"))
    if ".aws-sam" not in path.parts
]
# A function that starts a process of its own hands on the two variables that find the interpreter and its libraries.
MAY_READ_ENVIRONMENT = {"settings.py", "parquet_process.py", "configuration.py"}


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def imports_boto3_outside_ports(path: Path, source: str) -> bool:
    is_port = path.parent.name == "ports"
    return not is_port and any(name.split(".")[0] in ("boto3", "botocore") for name in imports(source))


def reads_environment(path: Path, source: str) -> bool:
    if path.name in MAY_READ_ENVIRONMENT:
        return False
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    imported = {
        name.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for name in node.names
    }
    return bool({"environ", "getenv", "environb"} & (names | imported))


def is_long_handler(path: Path, source: str) -> bool:
    return path.name == "handler.py" and len(source.splitlines()) > 60


def has_sql_in_handler(path: Path, source: str) -> bool:
    return (
        path.name == "handler.py" and re.search(r"\b(SELECT|INSERT INTO|UPDATE \w|DELETE FROM)\b", source) is not None
    )


def has_no_name(path: Path, source: str) -> bool:
    return re.fullmatch(r"(utils?|helpers?|common|managers?|misc|base)", path.stem) is not None


def builds_sql_from_parts(path: Path, source: str) -> bool:
    """Tell whether an f-string, a concatenation or a format makes SQL."""
    return any(
        isinstance(node, ast.JoinedStr)
        and re.match(
            r"\s*(SELECT|INSERT|UPDATE|DELETE)\s",
            "".join(str(part.value) for part in node.values if isinstance(part, ast.Constant)),
        )
        for node in ast.walk(ast.parse(source))
    )


def commits_in_a_store(path: Path, source: str) -> bool:
    return path.name == "store.py" and any(
        isinstance(node, ast.Attribute) and node.attr in ("commit", "rollback") for node in ast.walk(ast.parse(source))
    )


def connects_at_import(path: Path, source: str) -> bool:
    body = ast.parse(source).body
    calls = (
        node for statement in body if isinstance(statement, ast.Assign | ast.Expr) for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    )  # fmt: skip
    called = {ast.unparse(call.func) for call in calls}
    return bool(called & {"load_settings", "load_environment", "psycopg.connect", "boto3.client", "boto3.resource"})


RULES: list[tuple[Callable[[Path, str], bool], str, str]] = [
    (imports_boto3_outside_ports, "runs.py", "import boto3"),
    (imports_boto3_outside_ports, "runs.py", "def f():\n    from botocore.config import Config"),
    (reads_environment, "runs.py", "import os\nx = os.environ['A']"),
    (reads_environment, "runs.py", "from os import getenv"),
    (is_long_handler, "handler.py", "\n" * 61),
    (has_sql_in_handler, "handler.py", "x = 'SELECT 1'"),
    (has_no_name, "utils.py", ""),
    (has_no_name, "helpers.py", ""),
    (builds_sql_from_parts, "runs.py", "x = f'SELECT {name} FROM t'"),
    (commits_in_a_store, "store.py", "def f(c):\n    c.commit()"),
    (connects_at_import, "runs.py", "SETTINGS = load_settings()"),
    (connects_at_import, "runs.py", "client = boto3.client('s3')"),
]


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, _, _ in RULES), ids=lambda rule: rule.__name__)
def test_code_keeps_the_rule(rule: Callable[[Path, str], bool]) -> None:
    assert [str(path.relative_to(ROOT)) for path in CODE if rule(path, path.read_text())] == []


@pytest.mark.parametrize(("rule", "name", "source"), RULES)
def test_rule_finds_a_sample_that_breaks_it(rule: Callable[[Path, str], bool], name: str, source: str) -> None:
    assert rule(Path("functions/api/api") / name, source)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=paths_of(folder))


def paths_of(folder: Path) -> dict[str, str]:
    places = [*sorted((folder / "functions").glob("*")), *sorted(folder.glob("layers/*/src"))]
    places += [folder / "local" / "src", folder / "client" / "src"]
    return {"PYTHONPATH": ":".join(map(str, places)), "PATH": "/usr/bin:/bin", "HOME": str(folder)}


BREACHES = {
    "A function never imports another function": ("functions/api/api/handler.py", "import delivery"),
    "The layers never import a function, and records never imports coordination": (
        "layers/coordination/src/coordination/clock.py",
        "import api",
    ),
    "records is pure: no database, no AWS": ("layers/records/src/records/record.py", "import psycopg"),
    "pyarrow only in dataset_conversion": ("functions/api/api/handler.py", "import pyarrow"),
    "The client knows the API and nothing behind it": ("client/src/evalward/client.py", "import coordination"),
    "No function takes the client along": ("functions/api/api/handler.py", "import evalward"),
}


@pytest.fixture(scope="module")
def copy_of_the_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what the import rules look at."""
    folder = tmp_path_factory.mktemp("copy")
    for room in ("client", "functions", "layers", "local"):
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__", "*.sql", "*.json"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_import_contract_has_a_sample_that_breaks_it() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {contract["name"] for contract in config["contracts"]} == set(BREACHES)
    functions = {path.name for path in (ROOT / "functions").iterdir() if (path / "pyproject.toml").exists()}
    assert functions < set(config["root_packages"]), "every function is under the rules"


def test_import_contracts_are_kept_by_the_code(copy_of_the_code: Path) -> None:
    result = lint_imports(copy_of_the_code)
    assert result.returncode == 0, result.stdout
    assert result.stdout.count("KEPT") == len(BREACHES)


@pytest.mark.parametrize("contract", list(BREACHES))
def test_import_contract_finds_a_breach(copy_of_the_code: Path, contract: str) -> None:
    name, line = BREACHES[contract]
    path = copy_of_the_code / name
    text = path.read_text()
    path.write_text(f"{text}\n{line}\n")
    try:
        result = lint_imports(copy_of_the_code)
    finally:
        path.write_text(text)
    assert f"{contract} BROKEN" in " ".join(result.stdout.split())
