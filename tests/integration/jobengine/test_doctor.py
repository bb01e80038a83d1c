"""The doctor's route: who may ask, what each check says, and every cause that makes it unhealthy."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from api.doctor import measure_scopes as measuring
from coordination.jobengine.registry import CAPACITY_ENTRIES, OPERATIONAL_TABLES
from coordination.settings import (
    CapacityLimit,
    CapacitySettings,
    IdempotencySettings,
    JobEngineSettings,
    QueueSettings,
    RetentionSettings,
)
from moto import mock_aws
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from coordination.environment import Environment
    from integration.conftest import Api
    from integration.jobengine.conftest import Tables

PATH = "/doctor/jobengine-web/checks"
RETENTION = "doctor.jobengine.retention.terminal-budgets"
CAPACITY = "doctor.jobengine.capacity.budget"
EIGHT = [table.name for table in OPERATIONAL_TABLES if table.doctor_check is not None]
IDS = [
    RETENTION,
    CAPACITY,
    "doctor.pipeline.sources.cursor-lag",
    "doctor.pipeline.idempotency.capacity",
    "doctor.pipeline.dispatch.stuck",
    "doctor.pipeline.queues.dead-letters",
]
type Examine = Callable[..., Any]


@pytest.fixture(autouse=True)
def project(make_project: Callable[..., str], database: FreshDatabase) -> None:
    """Make a project, and a database that is well."""
    make_project("demo")
    put_receipt(database)
    put_capacity(database)


def put_receipt(database: FreshDatabase, *, hours: float = 1, deleted: int = 0, remaining: int = 0) -> None:
    told = {"deleted": deleted, "remaining": remaining, "is_behind": remaining > 0, "oldest_age_seconds": None}
    database.look(
        "INSERT INTO scheduler.sweep_receipts (started_at, finished_at, scope_count, failed_scope_count, tables)"
        " VALUES (now() - %(age)s, now(), 1, 0, %(tables)s)",
        {"age": timedelta(hours=hours), "tables": Jsonb({"scheduler.jobs": told})},
    )


def put_capacity(database: FreshDatabase, *, hours: float = 1, without: str = "", **sizes: int) -> None:
    entries = {name: sizes.get(name.rpartition(".")[2], 1) for name in CAPACITY_ENTRIES if name != without}
    database.look(
        "INSERT INTO scheduler.capacity_probe_receipt (measured_at, database_bytes, entries)"
        " VALUES (now() - %(age)s, %(bytes)s, %(entries)s)",
        {"age": timedelta(hours=hours), "bytes": sizes.get("whole", 1), "entries": Jsonb(entries)},
    )


@pytest.fixture
def examine(make_environments: Callable[..., Environment], open_api: Callable[[Environment], Api]) -> Examine:
    """Return a function that asks the doctor and returns the check of an id; keywords are settings of retention."""

    def ask(check_id: str, *, capacity: CapacitySettings | None = None, **retention: Any) -> Any:
        jobengine = JobEngineSettings(
            retention=RetentionSettings.model_validate(retention), capacity=capacity or CapacitySettings()
        )
        reply = open_api(make_environments(jobengine=jobengine)).get(PATH)
        assert reply.status == 200, reply.json
        checks = {check["id"]: check for check in reply.json["checks"]}
        assert list(checks) == IDS
        check = checks[check_id]
        assert (check["remediation"] == "") == (check["status"] == "healthy")
        return check

    return ask


@pytest.mark.parametrize(("key", "status"), [("", 401), ("ew_0123456789abcdef_" + "0" * 64, 401)])
def test_caller_without_a_valid_key_is_unknown(service: Api, key: str | None, status: int) -> None:
    assert service.get(PATH, key=key).status == status


@pytest.mark.parametrize("role", ["viewer", "runner", "editor", "admin"])
def test_caller_without_the_permission_is_refused(service: Api, make_key: Callable[..., str], role: str) -> None:
    assert service.get(PATH, key=make_key({"project": "*", "role": role})).status == 403


def test_caller_with_ops_health_alone_is_answered(service: Api, make_key: Callable[..., str]) -> None:
    reply = service.get(PATH, key=make_key({"project": "*", "permissions": ["ops.health"]}))
    assert reply.status == 200
    assert [check["id"] for check in reply.json["checks"]] == IDS
    assert {tuple(sorted(check)) for check in reply.json["checks"]} == {
        ("evidence", "id", "remediation", "status", "summary")
    }


def test_permission_on_a_project_is_not_enough(service: Api, make_key: Callable[..., str]) -> None:
    assert service.get(PATH, key=make_key({"project": "demo", "role": "admin"})).status == 403


def test_database_that_is_well_is_healthy(examine: Examine) -> None:
    assert {examine(check_id)["status"] for check_id in IDS} == {"healthy"}


def test_evidence_names_windows_budgets_and_counts_of_the_eight_tables(tables: Tables, examine: Examine) -> None:
    tables.put("scheduler.jobs", days=1)
    protected = tables.put("scheduler.jobs", days=400)
    tables.put_trigger(protected)
    tables.put("scheduler.jobs", "queued", days=None)
    tables.put("scheduler.failure_signatures", "wont_fix", days=None)
    check = examine(RETENTION)
    evidence = check["evidence"]
    assert check["status"] == "healthy"
    assert (evidence["scope_count"], evidence["measured_scope_count"]) == (3, 3)
    assert evidence["windows_days"] == {"terminal": 90, "failure_signatures": 90, "job_history": 365}
    assert evidence["budgets"]["maximum_terminal_rows_per_scope"] == 10_000
    assert evidence["tables"].keys() == set(EIGHT)
    assert evidence["tables"]["scheduler.jobs"] == {
        "maximum_eligible_terminal_rows_per_scope": 1, "expired_rows": 0, "protected_rows": 2, "incomplete_rows": 0,
    }  # fmt: skip
    assert evidence["tables"]["scheduler.failure_signatures"]["protected_rows"] == 1


def test_evidence_holds_no_tenant_and_no_payload(tables: Tables, examine: Examine, make_project: Any) -> None:
    make_project("tenant-with-a-name")
    for table in EIGHT:
        tables.put(table, tenant="tenant-with-a-name", days=1)
        tables.put(table, tenant="tenant-with-a-name", days=400)
    tables.database.look("UPDATE scheduler.jobs SET payload = jsonb_build_object('secret', 'of the payload')")
    for check_id in IDS:
        text = json.dumps(examine(check_id))
        assert "tenant-with-a-name" not in text
        assert "of the payload" not in text


@pytest.mark.parametrize("table", EIGHT)
def test_expired_row_is_unhealthy(tables: Tables, examine: Examine, table: str) -> None:
    tables.put(table, days=90.1)
    check = examine(RETENTION)
    assert check["status"] == "unhealthy"
    assert check["evidence"]["tables"][table]["expired_rows"] == 1
    assert f"still there: {table}" in check["summary"]


def test_grace_tolerates_a_row_until_the_next_sweep(tables: Tables, examine: Examine) -> None:
    tables.put("scheduler.jobs", days=90.5)
    assert examine(RETENTION, doctor_grace="1.00:00:00")["status"] == "healthy"
    assert examine(RETENTION, doctor_grace="06:00:00")["status"] == "unhealthy"


@pytest.mark.parametrize("table", EIGHT)
def test_exceeded_row_budget_is_unhealthy(tables: Tables, examine: Examine, table: str) -> None:
    for _ in range(3):
        tables.put(table, days=1)
    assert examine(RETENTION, maximum_terminal_rows_per_scope=3)["status"] == "healthy"
    check = examine(RETENTION, maximum_terminal_rows_per_scope=2)
    assert check["status"] == "unhealthy"
    assert f"more than 2 ended rows in a scope: {table}" in check["summary"]


def test_budget_is_judged_by_the_fullest_scope_and_not_by_the_sum(
    tables: Tables, examine: Examine, make_project: Any
) -> None:
    make_project("other")
    for tenant in ("demo", "other"):
        for _ in range(2):
            tables.put("scheduler.jobs", days=1, tenant=tenant)
    check = examine(RETENTION, maximum_terminal_rows_per_scope=2)
    assert check["status"] == "healthy"
    assert check["evidence"]["tables"]["scheduler.jobs"]["maximum_eligible_terminal_rows_per_scope"] == 2


@pytest.mark.parametrize("table", ["scheduler.jobs", "scheduler.runs", "scheduler.failure_signatures"])
def test_incomplete_row_is_unhealthy_and_counted(tables: Tables, examine: Examine, table: str) -> None:
    tables.put(table, days=None)
    check = examine(RETENTION)
    assert check["status"] == "unhealthy"
    assert check["evidence"]["tables"][table]["incomplete_rows"] == 1
    assert table in check["summary"]


def test_dispatch_with_an_outcome_that_nobody_acknowledged_is_incomplete(tables: Tables, examine: Examine) -> None:
    tables.put("scheduler.estate_run_queue", days=1)
    tables.database.look("UPDATE scheduler.estate_run_queue SET acknowledged_at = NULL")
    check = examine(RETENTION)
    assert check["status"] == "unhealthy"
    assert check["evidence"]["tables"]["scheduler.estate_run_queue"]["incomplete_rows"] == 1


def test_disabled_keeper_is_unhealthy(examine: Examine) -> None:
    check = examine(RETENTION, enabled=False)
    assert check["status"] == "unhealthy"
    assert "disabled" in check["summary"]


def test_no_receipt_for_two_intervals_is_unhealthy(examine: Examine, database: FreshDatabase) -> None:
    assert examine(RETENTION, sweep_interval="00:31:00")["status"] == "healthy"
    check = examine(RETENTION, sweep_interval="00:29:00")
    assert check["status"] == "unhealthy"
    assert "no sweep has left a receipt" in check["summary"]


def test_keeper_that_never_swept_is_unhealthy_two_intervals_after_its_first_sweep_was_due(
    examine: Examine, database: FreshDatabase
) -> None:
    database.look("DELETE FROM scheduler.sweep_receipts")
    assert examine(RETENTION, sweep_interval="1.00:00:00", start_delay="00:05:00")["status"] == "healthy"
    assert examine(RETENTION, sweep_interval="00:00:01", start_delay=0, doctor_grace=0)["status"] == "unhealthy"


def test_two_sweeps_without_progress_while_rows_are_expired_are_unhealthy(
    examine: Examine, database: FreshDatabase
) -> None:
    put_receipt(database, hours=0.5, remaining=4)
    assert examine(RETENTION)["status"] == "healthy"
    put_receipt(database, hours=0.2, remaining=4)
    check = examine(RETENTION)
    assert check["status"] == "unhealthy"
    assert "no progress" in check["summary"]
    assert check["evidence"]["last_sweeps"][0]["behind"] == ["scheduler.jobs"]
    put_receipt(database, hours=0.1, deleted=1, remaining=3)
    assert examine(RETENTION)["status"] == "healthy"


def test_walk_that_runs_out_of_time_says_so(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_SPARE_SECONDS", 1000.0)
    check = examine(RETENTION)
    assert (check["status"], check["evidence"]["measured_scope_count"]) == ("unhealthy", 0)


def test_counts_are_capped_so_that_a_huge_backlog_costs_no_more(tables: Tables, examine: Examine) -> None:
    for _ in range(6):
        tables.put("scheduler.jobs", days=400)
    check = examine(RETENTION, maximum_terminal_rows_per_scope=3)
    assert check["evidence"]["counted_up_to"] == 4
    assert check["evidence"]["tables"]["scheduler.jobs"]["expired_rows"] == 4


def test_no_receipt_of_the_probe_asks_for_a_pause(examine: Examine, database: FreshDatabase) -> None:
    assert examine(CAPACITY)["evidence"]["pause_required"] is False
    database.look("DELETE FROM scheduler.capacity_probe_receipt")
    check = examine(CAPACITY)
    assert (check["status"], check["evidence"]["pause_required"]) == ("unhealthy", True)
    assert "within five minutes" in check["remediation"]


def test_stale_receipt_asks_for_a_pause(examine: Examine, database: FreshDatabase) -> None:
    database.look("UPDATE scheduler.capacity_probe_receipt SET measured_at = now() - interval '179 min'")
    assert examine(CAPACITY)["status"] == "healthy"
    database.look("UPDATE scheduler.capacity_probe_receipt SET measured_at = now() - interval '181 min'")
    check = examine(CAPACITY)
    assert (check["status"], check["evidence"]["pause_required"]) == ("unhealthy", True)


@pytest.mark.parametrize("entry", CAPACITY_ENTRIES)
def test_missing_entry_asks_for_a_pause(examine: Examine, database: FreshDatabase, entry: str) -> None:
    put_capacity(database, hours=0, without=entry)
    check = examine(CAPACITY)
    assert (check["status"], check["evidence"]["pause_required"]) == ("unhealthy", True)
    assert check["summary"] == f"{entry} was not measured"


def test_stop_line_of_an_entry_and_of_the_database_asks_for_a_pause(examine: Examine, database: FreshDatabase) -> None:
    limit = CapacityLimit(budget_bytes=200, stop_line_bytes=100)
    capacity = CapacitySettings(
        entries={"packs.packs": limit}, database=CapacityLimit(budget_bytes=9, stop_line_bytes=9)
    )
    put_capacity(database, hours=0.2, packs=99, whole=8)
    assert examine(CAPACITY, capacity=capacity)["status"] == "healthy"
    put_capacity(database, hours=0.1, packs=100, whole=9)
    check = examine(CAPACITY, capacity=capacity)
    assert check["summary"] == "packs.packs has reached its stop line; the database has reached its stop line"
    assert check["evidence"]["pause_required"] is True
    assert check["evidence"]["entries"]["packs.packs"] == {"bytes": 100, "budget_bytes": 200, "stop_line_bytes": 100}


def test_run_that_nobody_takes_up_is_stuck_unless_its_project_is_paused(
    examine: Examine, tables: Tables, database: FreshDatabase
) -> None:
    tables.put("scheduler.estate_run_queue", "waiting", days=None)
    assert examine("doctor.pipeline.dispatch.stuck")["status"] == "healthy"
    database.look("UPDATE scheduler.estate_run_queue SET queued_at = now() - interval '16 min'")
    check = examine("doctor.pipeline.dispatch.stuck")
    assert (check["status"], check["evidence"]["stuck_dispatches"]) == ("unhealthy", 1)
    database.look("UPDATE coordination.projects SET paused = true")
    assert examine("doctor.pipeline.dispatch.stuck")["status"] == "healthy"


def test_work_that_is_due_and_was_not_sent_is_stuck(examine: Examine, database: FreshDatabase) -> None:
    database.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, due_at)"
        " VALUES ('delivery', 'demo', 'sink', 'x', now() - interval '11 min')"
    )
    check = examine("doctor.pipeline.dispatch.stuck")
    assert (check["status"], check["evidence"]["unsent_wake_ups"]) == ("unhealthy", 1)
    database.look("UPDATE coordination.wake_ups SET sent_at = now()")
    assert examine("doctor.pipeline.dispatch.stuck")["status"] == "healthy"


def test_tick_that_is_due_and_not_decided_is_a_lag(examine: Examine, database: FreshDatabase) -> None:
    database.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, due_at)"
        " VALUES ('pull', 'demo', 'source_tick', 's', now() - interval '11 min')"
    )
    check = examine("doctor.pipeline.sources.cursor-lag")
    assert (check["status"], check["evidence"]["late_tick_count"]) == ("unhealthy", 1)
    assert check["evidence"]["oldest_late_seconds"] >= 660


def test_window_that_was_missed_within_the_day_is_told(examine: Examine, tables: Tables) -> None:
    tables.put("scheduler.runs", days=1)
    tables.database.look("""
        INSERT INTO evals.sources (tenant_id, id, config, config_sha256)
        VALUES ('demo', 's', '{"starting_deadline_seconds": 3600}', repeat('a', 64));
        INSERT INTO evals.source_windows (tenant_id, source_id, tick_at, window_start, window_end, state)
        VALUES ('demo', 's', now(), now() - interval '2 h', now() - interval '1 h', 'missed_deadline'),
               ('demo', 's', now() - interval '3 d', now() - interval '74 h', now() - interval '73 h',
                'missed_overlap')""")
    check = examine("doctor.pipeline.sources.cursor-lag")
    assert check["status"] == "unhealthy"
    assert (check["evidence"]["source_count"], check["evidence"]["missed_windows"]) == (1, 1)
    assert check["evidence"]["missed_ticks_by_reason"] == {"not_begun": 1}


def test_missed_window_that_is_a_day_long_is_told(examine: Examine, tables: Tables) -> None:
    tables.put("scheduler.runs", days=1)
    tables.database.look("""
        INSERT INTO evals.sources (tenant_id, id, config, config_sha256)
        VALUES ('demo', 's', '{"starting_deadline_seconds": 3600}', repeat('a', 64));
        INSERT INTO evals.source_windows (tenant_id, source_id, tick_at, window_start, window_end, ticks, state)
        VALUES ('demo', 's', now() - interval '2 h', now() - interval '26 h', now() - interval '2 h', 1,
                'missed_deadline'),
               ('demo', 's', now() - interval '3 h', now() - interval '75 h', now() - interval '3 h', 3,
                'missed_overlap')""")
    check = examine("doctor.pipeline.sources.cursor-lag")
    assert check["status"] == "unhealthy"
    assert (check["evidence"]["sources_with_missed_windows"], check["evidence"]["missed_windows"]) == (1, 2)
    assert check["evidence"]["missed_ticks_by_reason"] == {"not_begun": 1, "overlap": 3}


def test_idempotency_scope_that_is_nearly_full_is_told(
    make_environments: Callable[..., Environment], open_api: Callable[[Environment], Api]
) -> None:
    service = open_api(make_environments(idempotency=IdempotencySettings(max_records=5)))
    key = "doctor.pipeline.idempotency.capacity"

    def ask() -> Any:
        return next(check for check in service.get(PATH).json["checks"] if check["id"] == key)

    for number in range(4):
        assert ask()["status"] == "healthy"
        # Projects belong to the installation, whose scope counts too.
        reply = service.post("/v1/projects", {"id": f"p{number}"}, idempotency_key=f"key-number-{number}")
        assert reply.status == 201
    assert ask()["evidence"]["fullest_scope_records_percent"] == 80
    assert ask()["status"] == "unhealthy"


def test_messages_in_a_dead_letter_queue_are_told(
    make_environments: Callable[..., Environment], open_api: Callable[[Environment], Api]
) -> None:
    with mock_aws():
        client = boto3.client("sqs")
        url = client.create_queue(QueueName="delivery-dead-letters")["QueueUrl"]
        service = open_api(make_environments(queues=QueueSettings(dead_letter_urls=(url,))))
        assert service.get(PATH).json["checks"][-1]["status"] == "healthy"
        client.send_message(QueueUrl=url, MessageBody="x")
        check = service.get(PATH).json["checks"][-1]
    assert (check["status"], check["evidence"]) == ("unhealthy", {"queues": {"delivery-dead-letters": 1}})


def test_check_that_cannot_be_made_is_unhealthy_and_keeps_no_other_from_being_made(
    make_environments: Callable[..., Environment], open_api: Callable[[Environment], Api]
) -> None:
    with mock_aws():
        gone = "https://sqs.eu-central-1.amazonaws.com/123456789012/gone"
        service = open_api(make_environments(queues=QueueSettings(dead_letter_urls=(gone,))))
        checks = service.get(PATH).json["checks"]
    assert [check["status"] for check in checks] == ["healthy"] * 5 + ["unhealthy"]
    assert checks[-1]["summary"] == "the check could not be made"
