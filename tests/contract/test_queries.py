from __future__ import annotations

import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any, cast

import psycopg
import pytest
from coordination.queries import load_queries, parse_queries

if TYPE_CHECKING:
    from conftest import FreshDatabase

ROOMS = sorted(
    entry.name.removesuffix(".sql")
    for entry in files("coordination").joinpath("sql", "queries").iterdir()
    if entry.name.endswith(".sql")
)
TEXTS = {room: files("coordination").joinpath("sql", "queries", f"{room}.sql").read_text("utf-8") for room in ROOMS}
NAMED = [(room, name) for room in ROOMS for name in load_queries(room)]
# Not by evalward_app, or not something that has a plan.
RUN_BY_THE_OWNER = {"create_ledger_schema": "DDL of the migrator", "create_ledger": "DDL of the migrator"}
FOR_THE_OWNER = {"insert_first_key": "deployment", "find_installation_key": "deployment", "read_ledger": "migrator",
                 "insert_ledger": "migrator", "insert_capacity_receipt": "capacity probe",
                 "prune_capacity_receipts": "capacity probe",
                 **dict.fromkeys(load_queries("adoption"), "migrator")}  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_every_statement_can_be_planned_with_null_parameters(database: FreshDatabase, room: str) -> None:
    failed: dict[str, str] = {}
    for name, query in load_queries(room).items():
        if name in RUN_BY_THE_OWNER:
            continue
        text = query.as_string()
        parameters = dict.fromkeys(re.findall(r"%\((\w+)\)s", text))
        with database.connect("owner" if name in FOR_THE_OWNER else "app") as connection:
            try:
                with connection.transaction():
                    connection.execute("SELECT scheduler_app.begin_tenant('demo', 1000, 5000)")
                    connection.execute(cast("Any", f"EXPLAIN {text}"), parameters or None)
            except psycopg.Error as error:
                failed[name] = str(error)
    assert failed == {}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT no_such FROM evals.runs",
        "SELECT id FROM evals.runs WHERE name = %(name)s::no_type",
        "SELECT %(a)s + %(a)s",
    ],
)
def test_planning_finds_wrong_columns_and_untyped_parameters(database: FreshDatabase, query: str) -> None:
    with database.connect("app") as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT scheduler_app.begin_tenant('demo', 1000, 5000)")
        with pytest.raises(psycopg.Error):
            connection.execute(cast("Any", f"EXPLAIN {query}"), dict.fromkeys(re.findall(r"%\((\w+)\)s", query)))


def find_untyped_placeholders(code: str) -> list[str]:
    """Return the placeholders without a cast that are no argument of a routine, whose signature types them."""
    text, before = re.sub(r"%\((\w+)\)s", r"$\1", code), ""
    while text != before:
        before, text = text, re.sub(r"\b(?:coordination|scheduler_app)\.\w+\([^()]*\)", "called", text)
    return re.findall(r"\$\w+\b(?!::)", text)


@pytest.mark.parametrize(
    ("code", "untyped"),
    [
        ("SELECT id FROM evals.runs WHERE id = %(id)s", ["$id"]),
        ("SELECT coordination.one(scheduler_app.two(%(a)s), %(b)s), %(c)s", ["$c"]),
        ("SELECT lower(%(a)s), %(b)s::text", ["$a"]),
    ],
)
def test_untyped_placeholders_are_found(code: str, untyped: list[str]) -> None:
    assert find_untyped_placeholders(code) == untyped


@pytest.mark.parametrize(("room", "name"), NAMED)
def test_statement_is_one_explained_qualified_and_cast(room: str, name: str) -> None:
    body = parse_queries(TEXTS[room])[name]
    comment = [line for line in body.splitlines() if line.startswith("--")]
    code = "\n".join(line for line in body.splitlines() if not line.startswith("--"))
    assert comment, "what it is for, its parameters with their units"
    assert re.search(r"[Ll]ocks?\b", " ".join(comment)), "its locks, or: No lock."
    assert ";" not in code
    assert not re.search(r"\bSELECT\s+\*", code)
    assert find_untyped_placeholders(code) == [], "every placeholder is cast or the argument of a routine"
    tables = re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+([a-z_]+)(?!\.|\w|\()", code)
    own = set(re.findall(r"\b([a-z_]+) AS (?:MATERIALIZED )?\(", code)) | {"lateral", "unnest", "of"}
    assert [table for table in tables if table not in own and not re.search(rf"\bFOR UPDATE\b.*{table}", code)] == []


def test_names_are_unique_over_all_files() -> None:
    names = [name for _, name in NAMED]
    assert sorted({name for name in names if names.count(name) > 1}) == []
