"""What statement text may not hold: it would pin a proxy's session, or outlive the transaction."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = [path for room in ("functions", "layers") for path in sorted((ROOT / room).rglob("*.py"))]
QUERIES = sorted((ROOT / "layers/coordination/src/coordination/sql/queries").glob("*.sql"))
MIGRATIONS = sorted((ROOT / "layers/coordination/src/coordination/sql/migrations").glob("*.sql"))

EVERYWHERE = {
    "session-level advisory lock": r"pg_(?:try_)?advisory_(?:lock|unlock)",
    "shared advisory lock": r"advisory_xact_lock_shared",
    "LISTEN, NOTIFY": r"(?:\A|;)\s*(?:LISTEN|NOTIFY|UNLISTEN)\b",
    "temporary table": r"\bCREATE\s+(?:LOCAL\s+|GLOBAL\s+)?TEMP(?:ORARY)?\b",
}
IN_STATEMENT_TEXT = EVERYWHERE | {
    "SET": r"(?:\A|;)\s*(?:SET|RESET|DISCARD)\s+[a-zA-Z]",
    "set_config": r"\bset_config\s*\(",
    "server-side cursor": r"(?:\A|;)\s*DECLARE\b",
    "PREPARE": r"(?:\A|;)\s*(?:PREPARE|DEALLOCATE)\b",
    "another isolation": r"ISOLATION\s+LEVEL\s+(?!READ\s+COMMITTED)[A-Z]",
    "lock function": r"\bpg_(?:try_)?advisory",
}
# The migrator logs in directly, never through a proxy, and has no function to call yet.
MAY_LOCK_IN_TEXT = {"migrations.sql"}


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def faults(text: str, rules: dict[str, str]) -> list[str]:
    return [name for name, rule in rules.items() if re.search(rule, text)]


def strings_in(source: str) -> Iterator[str]:
    """Yield the strings of a module, its docstrings left out."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | bare:
            yield node.value


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_query_file_keeps_sessions_clean(path: Path) -> None:
    rules = {name: rule for name, rule in IN_STATEMENT_TEXT.items() if name != "lock function"}
    rules = rules if path.name in MAY_LOCK_IN_TEXT else IN_STATEMENT_TEXT
    assert faults(without_comments(path.read_text()), rules) == []


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.stem)
def test_migration_keeps_sessions_clean_and_bounds_its_waits(path: Path) -> None:
    text = without_comments(path.read_text())
    assert faults(text, EVERYWHERE) == []
    assert re.match(r"\s*SET LOCAL lock_timeout = '\d+s';", text), "the first statement bounds the waits for locks"
    assert re.search(r"^SET (?!LOCAL)", text, re.MULTILINE) is None
    assert re.fullmatch(r"\d{4}_[a-z]+(_[a-z0-9]+)+\.sql", path.name)


def test_strings_of_the_code_keep_sessions_clean() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in CODE
        if (wrong := [fault for text in strings_in(path.read_text()) for fault in faults(text, IN_STATEMENT_TEXT)])
    }
    assert found == {}


@pytest.mark.parametrize(
    "sql",
    ["SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock_all()", "SELECT pg_advisory_xact_lock_shared(1)",
     "LISTEN news", "SELECT 1; NOTIFY x", "CREATE TEMP TABLE t ()", "SET search_path = x", "set_config('a', 'b', true)",
     "DECLARE c CURSOR FOR SELECT 1", "PREPARE p AS SELECT 1", "BEGIN ISOLATION LEVEL SERIALIZABLE",
     "SELECT pg_try_advisory_xact_lock(1)"],
)  # fmt: skip
def test_rules_find_what_they_forbid(sql: str) -> None:
    assert faults(sql, IN_STATEMENT_TEXT) != []


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE t\nSET a = 1",
        "BEGIN ISOLATION LEVEL READ COMMITTED",
        "SELECT coordination.take_advisory_lock('a', 'b')",
        "the declared listener is set",
    ],
)
def test_rules_let_ordinary_text_pass(sql: str) -> None:
    assert faults(sql, IN_STATEMENT_TEXT) == []


def squawk(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("squawk")), *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_migrations_pass_squawk() -> None:
    result = squawk(*MIGRATIONS)
    assert result.returncode == 0, result.stdout + result.stderr


def test_squawk_refuses_a_migration_that_would_lock_a_table_for_long(tmp_path: Path) -> None:
    bad = tmp_path / "0001_bad.sql"
    bad.write_text("SET LOCAL lock_timeout = '5s';\nALTER TABLE evals.runs ADD COLUMN x integer NOT NULL;\n")
    assert squawk(bad).returncode != 0
