"""JobEngine on a running stack: the bundle's own functions fill every operational table, and the sweep empties them.

The keeper is fired through its schedule; ages are moved in the rows.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from coordination.jobengine.registry import CAPACITY_ENTRIES, MEASURED_TABLES

if TYPE_CHECKING:
    from evalward_local.stack_client import StackClient

ROWS = b'{"id": "a", "output": "yes", "reference": "yes"}\n{"id": "b", "output": "no", "reference": "yes"}\n'
AGED = timedelta(days=100)
# From when the age of each table's rows counts, spelled out: the registry is what is tried.
AGES = {
    "scheduler.jobs": "completed_at",
    "scheduler.runs": "finished_at",
    "scheduler.graph_jobs": "updated_at",
    "scheduler.policy_run_jobs": "updated_at",
    "scheduler.estate_run_queue": "completed_at",
    "packs.pack_storage_outbox": "published_at",
    "scheduler.failure_signatures": "resolved_at",
}


def nanoseconds(instant: datetime) -> str:
    return str(int(instant.timestamp()) * 10**9)


def make_trace(start: datetime) -> bytes:
    """Make an OTLP file with one trace."""
    span = {
        "traceId": "1" * 32,
        "spanId": "2" * 16,
        "parentSpanId": "",
        "name": "chat",
        "startTimeUnixNano": nanoseconds(start),
        "endTimeUnixNano": nanoseconds(start + timedelta(seconds=2)),
        "attributes": [{"key": "output.value", "value": {"stringValue": "an answer"}}],
    }
    return gzip.compress(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode() + b"\n")


def import_files(client: StackClient, project: str) -> None:
    """Drop two good files and a broken one, then the broken one mended: jobs, outbox, failures."""
    for name, content in {"first": ROWS, "second": ROWS.replace(b"no", b"on"), "third": b"{broken\n"}.items():
        key = f"datasets/incoming/{project}/{name}.jsonl"
        client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=content)
        client.drain()
    for failure in client.expect(200, "GET", f"/v1/projects/{project}/failures")["items"]:
        path = f"/v1/projects/{project}/failures/{failure['id']}/resolve"
        client.expect(200, "POST", path, json={}, headers={"Idempotency-Key": f"resolve-{failure['id']}"})


def run_twice(client: StackClient, project: str) -> None:
    """Two runs with a sink each: dispatch, shards, jobs."""
    for number in range(2):
        body = {
            "name": f"run {number}",
            "dataset": {"name": "first"},
            "evaluators": [{"name": "exact_match"}],
            "sinks": [{"kind": "s3", "prefix": f"exports/{project}/{number}/"}],
        }
        run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=body)
        client.wait_for_run(project, run["id"])
    client.drain()


def pull_twice(client: StackClient, project: str) -> None:
    """Two sources, each with a tick that is due: ticks and assemblies."""
    tick = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=20)
    start = tick - timedelta(minutes=1)
    key = f"traces/{project}/{start:year=%Y/month=%m/day=%d/hour=%H/minute=%M}/traces_1.json.gz"
    client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=make_trace(start))
    for name in ("one", "two"):
        body = {
            "id": name,
            "connector": "otlp_s3",
            "location": f"s3://{client.stack.bucket}/traces/{project}/",
            "schedule": {"cron": f"{tick.minute} * * * *"},
            "window": {"seconds": 3600, "settle_seconds": 0},
            "evaluators": [{"name": "length", "params": {"max": 100}}],
        }
        client.expect(201, "POST", f"/v1/projects/{project}/sources", json=body)
    moved = {"at": tick - timedelta(minutes=1), "project": project}
    client.look("UPDATE scheduler.schedules SET cursor_at = %(at)s WHERE tenant_id = %(project)s", moved)
    client.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp()"
        " WHERE project = %(project)s AND kind = 'source_tick'",
        moved,
    )
    client.fire("ScheduledPullPulse")
    client.drain()


def ids(client: StackClient, table: str, project: str) -> set[str]:
    return {str(row["id"]) for row in client.look(f"SELECT id FROM {table} WHERE tenant_id = %(p)s", {"p": project})}


def age_half(client: StackClient, table: str, project: str) -> set[str]:
    """Age every second ended row of a table and return the ids of those."""
    column = AGES[table]
    rows = client.look(
        f"WITH ended AS (SELECT id, row_number() OVER (ORDER BY id) AS place FROM {table}"
        f" WHERE tenant_id = %(p)s AND {column} IS NOT NULL)"
        f" UPDATE {table} t SET {column} = {column} - %(age)s FROM ended"
        " WHERE t.tenant_id = %(p)s AND t.id = ended.id AND ended.place %% 2 = 1 RETURNING t.id",
        {"p": project, "age": AGED},
    )
    return {str(row["id"]) for row in rows}


def ask_doctor(client: StackClient) -> dict[str, Any]:
    checks = client.expect(200, "GET", "/doctor/jobengine-web/checks")["checks"]
    return {check["id"]: check for check in checks}


def test_every_operational_table_is_filled_by_the_bundle_and_swept_by_its_schedule(
    client: StackClient, project: str
) -> None:
    import_files(client, project)
    run_twice(client, project)
    pull_twice(client, project)

    before = {table: ids(client, table, project) for table in AGES}
    assert {table for table, found in before.items() if not found} == set()
    workers = client.look("SELECT DISTINCT function FROM scheduler.workers")
    assert len(workers) == 4
    assert set(AGES) | {"scheduler.workers"} == set(MEASURED_TABLES)

    aged = {table: age_half(client, table, project) for table in AGES}
    assert {table for table, found in aged.items() if not found} == set()
    kept = {
        str(row["last_job_id"])
        for row in client.look("SELECT last_job_id FROM scheduler.triggers WHERE tenant_id = %(p)s", {"p": project})
    }
    assert kept
    # An environment that died half a day after it was busy, long ago; its row alone is left of it.
    dead = "00000000-0000-0000-0000-00000000dead"
    client.look(
        "INSERT INTO scheduler.workers (id, function, active_count, heartbeat_at)"
        " VALUES (%(id)s, 'gone', 1, clock_timestamp() - %(age)s)",
        {"id": dead, "age": AGED},
    )
    # The installation is minutes old; the first sweep waits for five.
    client.look("UPDATE coordination.schema_migrations SET applied_at = applied_at - interval '1 hour'")
    client.look("DELETE FROM scheduler.sweep_receipts")

    swept = client.fire("KeeperPulse")

    assert (swept["swept"], swept["failed"], swept["remaining"]) == (1, 0, 0)
    after = {table: ids(client, table, project) for table in AGES}
    expected = {table: before[table] - aged[table] for table in AGES}
    expected["scheduler.jobs"] |= aged["scheduler.jobs"] & kept
    assert after == expected
    history = ids(client, "scheduler.job_history", project)
    assert history == aged["scheduler.jobs"] - kept
    assert client.look("SELECT 1 FROM scheduler.workers WHERE id = %(id)s", {"id": dead}) == []
    assert client.look("SELECT 1 FROM scheduler.workers") != []
    # What was decided stays: datasets, their events, runs and their reports, schedules.
    assert len(client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"]) == 2
    assert len(client.expect(200, "GET", f"/v1/projects/{project}/runs")["items"]) == 4

    # A second pulse finds the receipt.
    assert client.fire("KeeperPulse")["swept"] == 0
    # The summary of a source comes from the tick that is left; without one it says nothing.
    left = {
        row["schedule_id"]
        for row in client.look("SELECT schedule_id FROM scheduler.runs WHERE tenant_id = %(p)s", {"p": project})
    }
    for source in ("one", "two"):
        summary = client.expect(200, "GET", f"/v1/projects/{project}/sources/{source}/summary")
        assert (summary["last_tick"] is not None) == (source in left), summary

    client.fire("CapacityProbePulse")
    checks = ask_doctor(client)
    retention = checks["doctor.jobengine.retention.terminal-budgets"]["evidence"]
    assert {table: told["expired_rows"] for table, told in retention["tables"].items()} == dict.fromkeys(
        MEASURED_TABLES, 0
    )
    capacity = checks["doctor.jobengine.capacity.budget"]
    assert capacity["status"] == "healthy"
    assert capacity["evidence"]["entries"].keys() == set(CAPACITY_ENTRIES)
    assert capacity["evidence"]["pause_required"] is False
    assert checks["doctor.pipeline.queues.dead-letters"]["evidence"]["queues"].keys() != set()
