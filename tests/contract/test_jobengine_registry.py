"""The registry, the classes in the database, the SQL routines, the indexes and the CHECK constraints say the same."""

from __future__ import annotations

import ast
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from coordination.jobengine.registry import CAPACITY_ENTRIES, MEASURED_TABLES, OPERATIONAL_TABLES, OperationalTable
from coordination.queries import load_queries
from coordination.settings import RetentionSettings

if TYPE_CHECKING:
    from conftest import FreshDatabase

SAFETY_TESTS = Path(__file__).parents[1] / "integration" / "jobengine"
# The contract's own list.
EIGHT = {
    "scheduler.jobs",
    "scheduler.runs",
    "scheduler.graph_jobs",
    "scheduler.policy_run_jobs",
    "scheduler.estate_run_queue",
    "packs.pack_storage_outbox",
    "scheduler.failure_signatures",
    "scheduler.workers",
}
TABLES = """
SELECT n.nspname || '.' || c.relname AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('scheduler', 'packs')
"""
STATES = """
SELECT pg_get_constraintdef(k.oid) AS definition FROM pg_constraint k JOIN pg_attribute a
    ON a.attrelid = k.conrelid AND k.conkey = ARRAY[a.attnum]
WHERE k.contype = 'c' AND k.conrelid = %(table)s::regclass AND a.attname = %(column)s
"""
every_table = pytest.mark.parametrize("table", OPERATIONAL_TABLES, ids=lambda table: table.name)


def squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", text)).strip()


def read_function(database: FreshDatabase, name: str) -> str:
    return squeeze(
        database.look_up(
            "SELECT p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'scheduler_app' AND p.proname = %(name)s",
            {"name": name},
        )
    )


def test_every_table_of_both_schemas_has_a_class_and_a_reason(database: FreshDatabase) -> None:
    classed = {row["table_name"]: row for row in database.look("SELECT * FROM scheduler.table_classes")}
    assert classed.keys() == {row["name"] for row in database.look(TABLES)}
    assert all(row["reason"] for row in classed.values())


def test_operational_tables_are_those_of_the_registry(database: FreshDatabase) -> None:
    classed = database.look("SELECT table_name FROM scheduler.table_classes WHERE class = 'operational'")
    assert {row["table_name"] for row in classed} == {table.name for table in OPERATIONAL_TABLES}
    assert set(MEASURED_TABLES) == EIGHT
    assert set(CAPACITY_ENTRIES) == EIGHT | {"scheduler.job_history", "packs.packs"}
    assert len(CAPACITY_ENTRIES) == 10


@every_table
def test_table_is_bound_to_window_budget_routine_check_and_a_safety_test_that_exists(table: OperationalTable) -> None:
    settings = RetentionSettings()
    assert table.retention(settings).days in {90, 365}
    assert table.row_budget(settings) == (10_000 if table.name in EIGHT else None)
    assert table.routine in load_queries("jobengine")
    assert (table.doctor_check == "doctor.jobengine.retention.terminal-budgets") == (table.name in EIGHT)
    functions = {
        node.name
        for path in SAFETY_TESTS.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert table.safety_test in functions


@every_table
def test_routine_chooses_and_deletes_by_the_predicate_of_the_registry(
    database: FreshDatabase, table: OperationalTable
) -> None:
    routine = read_function(database, table.routine)
    conditions = [*([] if table.terminal == "true" else [table.terminal]), *table.guards]
    if not table.is_global:
        conditions.append("t.tenant_id = tenant")
        assert "PERFORM scheduler_app.raise_unless_tenant(tenant);" in routine
    place = f"(t.{table.age_column}, t.id)"
    conditions += [f"{place} < (before_at, before_id)", f"{place} > (after_at, after_id)"]
    at_once, around_locks = routine.split("RETURN QUERY")
    place_found, _, at_once = at_once.partition(" INTO last_at, last_id ")[2].partition("; IF FOUND THEN")
    chosen, _, around_locks = around_locks.partition("gone AS (")
    for choice, rest, beginning, bound in (
        (place_found, at_once, f"DELETE FROM {table.name} t WHERE ", f"{place} <= (last_at, last_id)"),
        (
            chosen,
            around_locks,
            f"DELETE FROM {table.name} t USING candidates c WHERE t.ctid = c.place AND ",
            f"{place} <= ((SELECT l.ended_at FROM last l), (SELECT l.id FROM last l))",
        ),
    ):
        deletion = re.split(r" RETURNING|;", rest[rest.index("DELETE FROM") :])[0].strip()
        assert [condition for condition in conditions if condition not in choice] == []
        assert f"ORDER BY {place[1:-1]}" in choice
        # Nothing else either: what is deleted is what was chosen.
        assert deletion.startswith(beginning)
        deletion = deletion.removeprefix(beginning)
        for condition in [*conditions, bound]:
            assert condition in deletion
            deletion = deletion.replace(condition, "", 1)
        assert set(deletion.split()) <= {"AND"}
    assert place_found.endswith("OFFSET batch - 1 LIMIT 1")
    assert "candidates AS MATERIALIZED" in chosen
    assert "LIMIT batch FOR UPDATE OF t SKIP LOCKED" in chosen


@every_table
def test_what_has_expired_is_found_by_the_predicate_of_the_registry(
    database: FreshDatabase, table: OperationalTable
) -> None:
    text = read_function(database, f"find_expired_{table.bare_name}")
    conditions = [*([] if table.terminal == "true" else [table.terminal]), *table.guards]
    conditions += [] if table.is_global else ["t.tenant_id = tenant"]
    bound, _, existence = text.partition("PERFORM FROM")
    for part in (bound, existence):
        assert [condition for condition in conditions if condition not in part] == []
    age = f"t.{table.age_column}"
    assert f"ORDER BY {age} DESC, t.id DESC OFFSET row_budget - 1 LIMIT 1;" in bound
    assert f"AND ({age}, t.id) < (before_at, before_id) ORDER BY {age}, t.id LIMIT 1; is_expired := FOUND;" in existence


@every_table
def test_terminal_rows_and_their_index_follow_the_predicate(database: FreshDatabase, table: OperationalTable) -> None:
    text = read_function(database, f"terminal_{table.bare_name}")
    selected, _, condition = text.partition("FROM " + table.name + " t WHERE ")
    expected = [*([] if table.is_global else ["t.tenant_id = tenant"])]
    expected += [] if table.terminal == "true" else [table.terminal]
    assert condition == " AND ".join(expected)
    guards = [guard.removeprefix("NOT ") for guard in table.guards]
    assert selected == f"SELECT t.{table.age_column}, t.id, {' OR '.join(guards) or 'false'} "
    keys = [] if table.is_global else ["tenant_id"]
    found = database.look_up(
        "SELECT pg_get_indexdef(%(name)s::regclass)", {"name": f"{table.name.split('.')[0]}.{table.bare_name}_terminal"}
    )
    assert f"({', '.join([*keys, table.age_column, 'id'])})" in found


@pytest.mark.parametrize("table", [table for table in OPERATIONAL_TABLES if table.state_column], ids=lambda t: t.name)
def test_every_state_is_classed_as_terminal_or_active(database: FreshDatabase, table: OperationalTable) -> None:
    definitions = database.look(STATES, {"table": table.name, "column": table.state_column})
    (states,) = [re.findall(r"'([a-z_]+)'::text", row["definition"]) for row in definitions]
    assert sorted(states) == sorted([*table.terminal_states, *table.active_states])
    assert not set(table.terminal_states) & set(table.active_states)


@pytest.mark.parametrize("table", [table for table in OPERATIONAL_TABLES if table.doctor_check], ids=lambda t: t.name)
def test_active_states_are_what_the_doctor_counts_as_open(database: FreshDatabase, table: OperationalTable) -> None:
    text = read_function(database, f"open_{table.bare_name}")
    if table.active_states:
        assert f"t.state IN ({', '.join(repr(state) for state in table.active_states)})" in text


def test_every_foreign_key_to_a_swept_table_is_indexed(database: FreshDatabase) -> None:
    keys = database.look(
        """
        SELECT k.conrelid::regclass::text AS table_name, k.conname, EXISTS (
            SELECT 1 FROM pg_index i
            WHERE i.indrelid = k.conrelid AND i.indpred IS NULL
              AND (i.indkey::int2[])[0:cardinality(k.conkey) - 1] @> k.conkey) AS is_indexed
        FROM pg_constraint k
        WHERE k.contype = 'f' AND k.confrelid = ANY(%(swept)s::regclass[])
        """,
        {"swept": [table.name for table in OPERATIONAL_TABLES]},
    )
    assert [key for key in keys if not key["is_indexed"]] == []
    assert {key["table_name"] for key in keys} == {"scheduler.triggers"}


def test_classes_are_named_in_the_schema_file_by_their_migration() -> None:
    migration = files("coordination").joinpath("sql", "migrations", "0012_class_tables.sql").read_text("utf-8")
    assert all(f"'{table.name}', 'operational'" in migration for table in OPERATIONAL_TABLES)
