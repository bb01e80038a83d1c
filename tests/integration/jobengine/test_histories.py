"""Histories in every state, of every age, with leases and references: the sweep leaves what a plain model leaves.

`EVALWARD_HYPOTHESIS=thorough` runs many more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest
from coordination.jobengine.registry import OPERATIONAL_TABLES
from coordination.settings import JobEngineSettings, RetentionSettings
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from retention_sweep.keep_tables import keep_tables

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from coordination.environment import Environment

IS_THOROUGH = os.environ.get("EVALWARD_HYPOTHESIS") == "thorough"
HISTORY = "scheduler.job_history"
# Days. No age is a window's, so that the model needs no clock.
WINDOWS = {"scheduler.failure_signatures": 20, HISTORY: 30}
AGES = [1, 5, 9, 11, 15, 19, 21, 25, 29, 31, 40]
CAN_LACK_ITS_END = ["scheduler.jobs", "scheduler.runs", "scheduler.failure_signatures"]
LEASED = {
    "scheduler.jobs": "sink",
    "scheduler.policy_run_jobs": "shard",
    "scheduler.estate_run_queue": "run",
}


@dataclass(frozen=True)
class Row:
    """One row.

    Attributes
    ----------
    table, tenant, state, days
        Where it is, whose, how it is, and how long ago that began.
    lacks_end
        Whether the time of its end is missing.
    lease
        Seconds until its lease expires; None for no lease.
    is_referenced
        Whether a trigger refers to it.
    """

    table: str
    tenant: str
    state: str
    days: int
    lacks_end: bool
    lease: int | None
    is_referenced: bool

    def can_go(self, terminal: Any) -> bool:
        """Whether nothing but its age keeps it."""
        # All ages are more than half an hour: an environment that was silent for so long has stopped.
        has_ended = self.state in terminal[self.table] or self.table == "scheduler.workers"
        lacks_end = self.lacks_end and self.table in CAN_LACK_ITS_END
        is_leased = self.lease is not None and self.lease > 0 and self.table in LEASED
        return (
            has_ended and not lacks_end and not is_leased and not (self.is_referenced and self.table.endswith(".jobs"))
        )


def expect(rows: Sequence[tuple[UUID, Row]], retention: RetentionSettings, terminal: Any) -> dict[str, set[UUID]]:
    """Return what is left of each table after one sweep, without SQL."""
    left = {table.name: {row_id for row_id, row in rows if row.table == table.name} for table in OPERATIONAL_TABLES}
    history = [(row_id, row) for row_id, row in rows if row.table == HISTORY]
    calls = retention.batch_size * retention.max_batches_per_sweep
    for table in OPERATIONAL_TABLES:
        chosen = history if table.name == HISTORY else [one for one in rows if one[1].table == table.name]
        for tenant in {row.tenant for _, row in chosen} if not table.is_global else {None}:
            eligible = sorted(
                (-row.days, row_id)
                for row_id, row in chosen
                if tenant in (None, row.tenant) and (table.name == HISTORY or row.can_go(terminal))
            )
            window = WINDOWS.get(table.name, 10)
            surplus = len(eligible) - (retention.maximum_terminal_rows_per_scope if table.has_row_budget else 10**9)
            goes = [row_id for place, (age, row_id) in enumerate(eligible) if -age > window or place < surplus][:calls]
            left[table.name] -= set(goes)
            if table.name == "scheduler.jobs":
                archived = [(row_id, row) for row_id, row in chosen if row_id in goes]
                # Archived in this sweep, these may go in the next one.
                left[HISTORY] |= {row_id for row_id, _ in archived}
    return left


@pytest.fixture
def sweep(
    database: FreshDatabase,
    make_environments: Callable[..., Environment],
    make_project: Callable[..., str],
    inserts: dict[str, str],
    context: Callable[[float], Any],
) -> Callable[[Sequence[tuple[UUID, Row]], RetentionSettings], dict[str, set[UUID]]]:
    """Return a function that writes rows into empty tables, sweeps them and returns what is left."""
    for project in ("demo", "other"):
        make_project(project)

    def run(rows: Sequence[tuple[UUID, Row]], retention: RetentionSettings) -> dict[str, set[UUID]]:
        environment = make_environments(jobengine=JobEngineSettings(retention=retention))
        with database.connect("superuser") as connection:
            connection.execute(
                "TRUNCATE scheduler.sweep_receipts, scheduler.triggers, coordination.leases, packs.pack_storage_events,"
                " scheduler.schedules, scheduler.jobs, scheduler.runs, scheduler.graph_jobs, scheduler.policy_run_jobs,"
                " scheduler.estate_run_queue, packs.pack_storage_outbox, scheduler.failure_signatures,"
                " scheduler.workers, scheduler.job_history CASCADE"
            )
            found = connection.execute("SELECT clock_timestamp() AS now").fetchone()
            assert found is not None
            for row_id, row in rows:
                lacks_end = row.lacks_end and row.table in CAN_LACK_ITS_END
                params = {
                    "tenant": row.tenant,
                    "id": str(row_id),
                    "state": "stopped" if row.state == "busy" else row.state,
                    "ended_at": None if lacks_end else found["now"] - timedelta(days=row.days),
                    "kind": "sink_export",
                    "active_count": int(row.state == "busy"),
                }
                connection.execute(cast("Any", inserts[row.table]), params)
                if row.lease is not None and row.table in LEASED:
                    connection.execute(
                        "INSERT INTO coordination.leases"
                        " VALUES (%(n)s, gen_random_uuid(), 1, clock_timestamp() + %(s)s)",
                        {"n": f"{LEASED[row.table]}:{row.tenant}:{row_id}", "s": timedelta(seconds=row.lease)},
                    )
                if row.is_referenced and row.table == "scheduler.jobs":
                    connection.execute(
                        "INSERT INTO scheduler.triggers (tenant_id, kind, name, last_job_id)"
                        " VALUES (%(t)s, 'route', %(i)s::uuid::text, %(i)s::uuid)",
                        {"t": row.tenant, "i": str(row_id)},
                    )
            keep_tables(environment, context(300))
            environment.database.close()
            return {
                table.name: {one["id"] for one in connection.execute(cast("Any", f"SELECT id FROM {table.name}"))}
                for table in OPERATIONAL_TABLES
            }

    return run


def test_sweep_leaves_what_the_model_leaves(
    sweep: Callable[..., dict[str, set[UUID]]], terminal: dict[str, list[str]], active: dict[str, list[str]]
) -> None:
    states = {table.name: [*terminal[table.name], *active.get(table.name, [])] for table in OPERATIONAL_TABLES}
    rows = st.sampled_from([table.name for table in OPERATIONAL_TABLES]).flatmap(
        lambda table: st.builds(
            Row,
            table=st.just(table),
            tenant=st.sampled_from(["demo", "other", "default"]),
            state=st.sampled_from(states[table]),
            days=st.sampled_from(AGES),
            lacks_end=st.sampled_from([False, False, False, True]),
            lease=st.sampled_from([None, None, 600, -5]),
            is_referenced=st.sampled_from([False, False, True]),
        )
    )

    @settings(
        max_examples=400 if IS_THOROUGH else 15,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        histories=st.lists(st.tuples(st.uuids(), rows), min_size=10, max_size=60, unique_by=lambda one: one[0]),
        budget=st.integers(1, 5),
        batch=st.integers(1, 4),
        calls=st.integers(1, 4),
    )
    def check(histories: list[tuple[UUID, Row]], budget: int, batch: int, calls: int) -> None:
        retention = RetentionSettings(
            start_delay=timedelta(0),
            terminal_retention_days=10,
            failure_signature_retention_days=20,
            job_history_retention_days=30,
            maximum_terminal_rows_per_scope=budget,
            batch_size=batch,
            max_batches_per_sweep=calls,
        )
        expected = expect(histories, retention, terminal)
        event(f"deleted {'some' if sum(map(len, expected.values())) < len(histories) else 'none'}")
        assert sweep(histories, retention) == expected

    check()
