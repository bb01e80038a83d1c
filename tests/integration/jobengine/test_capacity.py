"""The capacity probe, as the owner, and what the runtime role may do with its receipts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from api.doctor.check_capacity import check_capacity
from capacity_probe.measure_capacity import measure_capacity
from coordination.environment import Environment
from coordination.jobengine.registry import CAPACITY_ENTRIES

if TYPE_CHECKING:
    from conftest import FreshDatabase

RECEIPTS = "SELECT count(*) FROM scheduler.capacity_probe_receipt"


@pytest.fixture
def owner(database: FreshDatabase, make_environments: Callable[..., Environment]) -> Callable[[], Environment]:
    """Return a function that makes an environment of the owner."""
    return lambda: make_environments(database.server.url(database.name, "owner"))


def test_receipt_holds_the_size_of_each_entry_and_of_the_database(
    owner: Callable[[], Environment], database: FreshDatabase
) -> None:
    counts = measure_capacity(owner())
    (receipt,) = database.look("SELECT database_bytes, entries FROM scheduler.capacity_probe_receipt")
    assert counts == {"measured": 10, "database_bytes": receipt["database_bytes"]}
    assert receipt["entries"].keys() == set(CAPACITY_ENTRIES)
    # An empty table has its indexes.
    assert all(size >= 8192 for size in receipt["entries"].values())
    assert receipt["database_bytes"] > sum(receipt["entries"].values())
    assert receipt["entries"]["packs.packs"] == database.look_up("SELECT pg_total_relation_size('packs.packs')")


def test_double_and_concurrent_events_leave_one_receipt(
    owner: Callable[[], Environment], database: FreshDatabase
) -> None:
    environments = [owner() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        counts = list(threads.map(measure_capacity, environments))
    assert sorted(count["measured"] for count in counts) == [0, 0, 0, 10]
    assert measure_capacity(environments[0]) == {"measured": 0}
    assert database.look_up(RECEIPTS) == 1


def test_first_pulse_of_a_deployment_makes_its_check_healthy(
    owner: Callable[[], Environment], environment: Environment
) -> None:
    assert check_capacity(environment).status == "unhealthy"
    measure_capacity(owner())
    assert check_capacity(environment).status == "healthy"


@pytest.mark.parametrize(("age", "measured"), [("59 min", 0), ("60 min", 10)])
def test_probe_measures_hourly(
    owner: Callable[[], Environment], database: FreshDatabase, age: str, measured: int
) -> None:
    environment = owner()
    measure_capacity(environment)
    database.look(
        "UPDATE scheduler.capacity_probe_receipt SET measured_at = measured_at - %(age)s::interval", {"age": age}
    )
    assert measure_capacity(environment)["measured"] == measured


def test_table_that_a_deployment_adds_is_measured_by_the_next_pulse(
    owner: Callable[[], Environment], database: FreshDatabase
) -> None:
    environment = owner()
    measure_capacity(environment)
    database.look("UPDATE scheduler.capacity_probe_receipt SET entries = entries - 'packs.packs'")
    assert measure_capacity(environment)["measured"] == 10


def test_table_that_is_not_there_is_no_reason_to_measure_at_each_pulse(
    owner: Callable[[], Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capacity_probe.measure_capacity.CAPACITY_ENTRIES", (*CAPACITY_ENTRIES, "scheduler.gone"))
    environment = owner()
    assert measure_capacity(environment)["measured"] == 10
    assert measure_capacity(environment)["measured"] == 0


def test_newest_ninety_receipts_are_kept_by_time_and_id(
    owner: Callable[[], Environment], database: FreshDatabase
) -> None:
    database.look("""
        INSERT INTO scheduler.capacity_probe_receipt (measured_at, database_bytes, entries)
        SELECT now() - interval '1 day', n, '{}' FROM generate_series(1, 120) n""")
    measure_capacity(owner())
    kept = database.look(
        "SELECT database_bytes FROM scheduler.capacity_probe_receipt ORDER BY measured_at DESC, id DESC"
    )
    assert [row["database_bytes"] for row in kept[1:]] == list(range(120, 31, -1))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO scheduler.capacity_probe_receipt (database_bytes, entries) VALUES (1, '{}')",
        "UPDATE scheduler.capacity_probe_receipt SET database_bytes = 1",
        "DELETE FROM scheduler.capacity_probe_receipt",
    ],
)
def test_runtime_role_reads_receipts_and_writes_none(database: FreshDatabase, statement: Any) -> None:
    with database.connect("app") as connection:
        connection.execute(RECEIPTS)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)
