from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from coordination.database import Database, Transaction
from coordination.environment import Environment
from coordination.errors import (
    DatabaseUnavailableError,
    IdempotencyCapacityError,
    IdempotencyInProgressError,
    IdempotencyKeyReusedError,
    OutcomeNotStoredError,
    OutcomeUnknownError,
    ProblemError,
)
from coordination.idempotency.key import digest_key
from coordination.idempotency.local_write import perform_local_write
from coordination.idempotency.records import KeyedWrite, Performed, StoredAnswer
from coordination.queries import load_queries
from coordination.settings import IdempotencySettings, TransactionSettings
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Wire

SETTINGS = IdempotencySettings()
INSERT_PROJECT = (
    "INSERT INTO coordination.projects (id, created_by) VALUES (%(id)s::text, 'test') ON CONFLICT (id) DO NOTHING"
    " RETURNING id"
)
INSERT_CLAIM = """
WITH claims AS (
    INSERT INTO coordination.idempotency_records
        (tenant_id, principal, key_sha256, operation, fingerprint, state, owner_token, deadline_at, expires_at)
    SELECT '-', 'key:1', sha256(convert_to(%(prefix)s::text || n, 'UTF8')), 'test.write', %(fingerprint)s, 'claimed',
           gen_random_uuid(), clock_timestamp() + %(deadline)s::interval, clock_timestamp() + interval '7 days'
    FROM generate_series(1, %(count)s) AS n
    RETURNING tenant_id, principal)
INSERT INTO coordination.idempotency_scopes AS s (tenant_id, principal, records)
SELECT tenant_id, principal, count(*) FROM claims GROUP BY tenant_id, principal
ON CONFLICT (tenant_id, principal) DO UPDATE SET records = s.records + excluded.records
"""
COUNT_RECORDS = "SELECT count(*) FROM coordination.idempotency_records"
COUNT_PROJECTS = "SELECT count(*) FROM coordination.projects"


def write_of(key: str = "k", *, body: str = "a", principal: str = "key:1", tenant: str = "-") -> KeyedWrite:
    return KeyedWrite(
        tenant=tenant,
        principal=principal,
        key_sha256=digest_key(key),
        operation="test.write",
        compute_fingerprint=lambda: digest_key(body),
    )


def answer_of(project: str, body: bytes | None = None) -> StoredAnswer:
    headers = {"content-type": "application/json", "location": f"/{project}"}
    return StoredAnswer(201, headers, f'{{"id":"{project}"}}'.encode() if body is None else body)


def insert(project: str, body: bytes | None = None) -> Callable[[Transaction], tuple[str, StoredAnswer]]:
    """Return an effect that inserts a project, which cannot be done twice."""

    def effect(transaction: Transaction) -> tuple[str, StoredAnswer]:
        row = transaction.fetch_one(INSERT_PROJECT, {"id": project})
        assert row is not None, "the effect ran twice"
        return project, answer_of(project, body)

    return effect


def never(transaction: Transaction) -> tuple[str, StoredAnswer]:
    # What the claim says arrives with the first read.
    transaction.fetch_one("SELECT 1 AS read")
    raise AssertionError("the effect must not run")


def let_expire(database: FreshDatabase) -> None:
    database.look("UPDATE coordination.idempotency_records SET expires_at = clock_timestamp() - interval '1 ms'")


@pytest.fixture
def other(make_environments: Callable[..., Environment]) -> Database:
    """Return the database as another environment has it."""
    return make_environments().database


class Pause:
    """Holds an effect until it is let go: the explicit hand-over between two connections."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()

    def around(
        self, effect: Callable[[Transaction], tuple[str, StoredAnswer]]
    ) -> Callable[[Transaction], tuple[str, StoredAnswer]]:
        def paused(transaction: Transaction) -> tuple[str, StoredAnswer]:
            result = effect(transaction)
            self.entered.set()
            assert self.go.wait(30)
            return result

        return paused


def test_retry_returns_the_stored_answer_byte_for_byte(app: Database, other: Database) -> None:
    first = perform_local_write(app, write_of(), SETTINGS, insert("demo", b'{"id": "demo",  "odd":1.0}\n'))
    assert first == Performed("demo")
    again = perform_local_write(other, write_of(), SETTINGS, never)
    assert again == answer_of("demo", b'{"id": "demo",  "odd":1.0}\n')


def test_hundred_retries_straight_after_completion_are_all_replays(app: Database, other: Database) -> None:
    perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    answers = [perform_local_write(other, write_of(), SETTINGS, never) for _ in range(100)]
    assert answers == [answer_of("demo")] * 100


def test_other_body_under_a_completed_key_is_refused(app: Database) -> None:
    perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    with pytest.raises(IdempotencyKeyReusedError) as caught:
        perform_local_write(app, write_of(body="b"), SETTINGS, never)
    assert (caught.value.status, caught.value.code) == (422, "idempotency_key_reused")


def test_other_body_under_a_tombstone_is_refused(app: Database) -> None:
    perform_local_write(app, write_of(), IdempotencySettings(max_outcome_bytes=1), insert("demo"))
    with pytest.raises(IdempotencyKeyReusedError):
        perform_local_write(app, write_of(body="b"), SETTINGS, never)


@pytest.mark.parametrize(
    ("deadline", "code", "retry_after"),
    [("1 minute", "idempotency_in_progress", 60), ("-1 minute", "idempotency_uncertain", None)],
)
def test_claim_of_remote_mode_is_in_progress_until_its_deadline_and_uncertain_after_it(
    app: Database, database: FreshDatabase, deadline: str, code: str, retry_after: int | None
) -> None:
    params = {"prefix": "k", "fingerprint": digest_key("a"), "deadline": deadline, "count": 1}
    database.look(INSERT_CLAIM, params)
    with pytest.raises(ProblemError) as caught:
        perform_local_write(app, write_of("k1"), SETTINGS, never)
    assert (caught.value.status, caught.value.code, caught.value.retry_after_seconds) == (409, code, retry_after)
    with pytest.raises(IdempotencyKeyReusedError):
        perform_local_write(app, write_of("k1", body="b"), SETTINGS, never)


@pytest.mark.parametrize("body", ["a", "b"])
def test_loser_of_an_uncommitted_write_is_told_so_at_once_whatever_its_body(
    app: Database, other: Database, body: str
) -> None:
    pause = Pause()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(perform_local_write, app, write_of(), SETTINGS, pause.around(insert("demo")))
        assert pause.entered.wait(30)
        with pytest.raises(IdempotencyInProgressError) as caught:
            perform_local_write(other, write_of(body=body), SETTINGS, never)
        pause.go.set()
        assert first.result(30) == Performed("demo")
    assert caught.value.retry_after_seconds == 1


def test_loser_whose_turn_comes_after_the_commit_gets_a_replay_or_a_422(app: Database, other: Database) -> None:
    pause = Pause()
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(perform_local_write, app, write_of(), SETTINGS, pause.around(insert("demo")))
        assert pause.entered.wait(30)
        pause.go.set()
        first.result(30)
    assert perform_local_write(other, write_of(), SETTINGS, never) == answer_of("demo")
    with pytest.raises(IdempotencyKeyReusedError):
        perform_local_write(other, write_of(body="b"), SETTINGS, never)


def test_error_of_the_effect_leaves_nothing_and_a_retry_runs(app: Database, database: FreshDatabase) -> None:
    class EffectError(Exception):
        pass

    def fail(transaction: Transaction) -> tuple[str, StoredAnswer]:
        insert("demo")(transaction)
        raise EffectError

    with pytest.raises(EffectError):
        perform_local_write(app, write_of(), SETTINGS, fail)
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (0, 0)
    assert perform_local_write(app, write_of(body="b"), SETTINGS, insert("demo")) == Performed("demo")


def test_crash_before_the_commit_leaves_nothing_and_a_retry_runs(
    app: Database, other: Database, database: FreshDatabase
) -> None:
    def crash(transaction: Transaction) -> tuple[str, StoredAnswer]:
        result = insert("demo")(transaction)
        row = transaction.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row is not None
        database.look("SELECT pg_terminate_backend(%(pid)s, 5000)", row)
        return result

    with pytest.raises((DatabaseUnavailableError, OutcomeUnknownError)):
        perform_local_write(app, write_of(), SETTINGS, crash)
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (0, 0)
    assert perform_local_write(other, write_of(), SETTINGS, insert("demo")) == Performed("demo")


def test_no_advisory_lock_is_left_after_success_failure_or_replay(app: Database, database: FreshDatabase) -> None:
    perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    perform_local_write(app, write_of(), SETTINGS, never)
    with pytest.raises(AssertionError):
        perform_local_write(app, write_of("other"), SETTINGS, never)
    assert database.look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def run_together(
    environments: Sequence[Environment],
    act: Callable[[int, Database], Any],
) -> list[Any]:
    """Act in every environment at the same time; a problem is a result."""
    for environment in environments:
        environment.database.fetch_one("SELECT 1 AS connected")
    start = threading.Barrier(len(environments))

    def run(number: int) -> Any:
        start.wait(30)
        try:
            return act(number, environments[number].database)
        except ProblemError as error:
            return error

    with ThreadPoolExecutor(len(environments)) as threads:
        return list(threads.map(run, range(len(environments))))


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_cap_of_5_admits_exactly_5_of_15_concurrent_new_keys(
    database: FreshDatabase, make_environments: Callable[..., Environment], isolation: str
) -> None:
    options = f"-c default_transaction_isolation={isolation.replace(' ', '\\ ')}"
    environments = [make_environments(make_conninfo(database.app_url, options=options)) for _ in range(15)]
    cap = IdempotencySettings(max_records=5)
    results = run_together(
        environments, lambda number, app: perform_local_write(app, write_of(f"k{number}"), cap, insert(f"p{number}"))
    )
    admitted = [result for result in results if isinstance(result, Performed)]
    refused = [result for result in results if isinstance(result, IdempotencyCapacityError)]
    assert (len(admitted), len(refused)) == (5, 10)
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (5, 5)
    for error in refused:
        assert error.status == 429
        assert error.retry_after_seconds is not None
        assert 86_000 < error.retry_after_seconds <= 86_400


def test_full_scope_still_replays_what_it_has(app: Database) -> None:
    cap = IdempotencySettings(max_records=1)
    perform_local_write(app, write_of(), cap, insert("demo"))
    with pytest.raises(IdempotencyCapacityError):
        perform_local_write(app, write_of("new"), cap, insert("other"))
    assert perform_local_write(app, write_of(), cap, never) == answer_of("demo")


def test_200_concurrent_duplicates_have_one_effect_and_a_definite_answer_each(
    database: FreshDatabase, make_environments: Callable[..., Environment]
) -> None:
    environments = [make_environments() for _ in range(50)]

    def four_times(_: int, app: Database) -> list[Any]:
        results: list[Any] = []
        for _ in range(4):
            try:
                results.append(perform_local_write(app, write_of(), SETTINGS, insert("demo")))
            except IdempotencyInProgressError as error:
                results.append(error)
        return results

    results = [result for four in run_together(environments, four_times) for result in four]
    performed = [result for result in results if isinstance(result, Performed)]
    replayed = [result for result in results if isinstance(result, StoredAnswer)]
    waiting = [result for result in results if isinstance(result, IdempotencyInProgressError)]
    assert performed == [Performed("demo")]
    assert replayed == [answer_of("demo")] * len(replayed)
    assert len(performed) + len(replayed) + len(waiting) == 200
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (1, 1)


def test_answer_lost_after_the_commit_is_read_back(wired: Environment, wire: Wire, database: FreshDatabase) -> None:
    wire.cut = "after"
    assert perform_local_write(wired.database, write_of(), SETTINGS, insert("demo")) == Performed("demo")
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (1, 1)
    assert perform_local_write(wired.database, write_of(), SETTINGS, never) == answer_of("demo")


def end_cut_backends(database: FreshDatabase) -> None:
    """Wait until the server has noticed a cut line and rolled back."""
    database.look(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE usename = 'evalward_app' AND state LIKE 'idle in transaction%%'",
        {},
    )


def test_commit_that_never_arrived_leaves_nothing_and_says_that_the_outcome_is_unknown(
    wired: Environment, wire: Wire, database: FreshDatabase
) -> None:
    wire.cut, wire.on_cut = "before", lambda: end_cut_backends(database)
    with pytest.raises(OutcomeUnknownError) as caught:
        perform_local_write(wired.database, write_of(), SETTINGS, insert("demo"))
    assert (caught.value.status, caught.value.retry_after_seconds) == (503, 1)
    assert (database.look_up(COUNT_PROJECTS), database.look_up(COUNT_RECORDS)) == (0, 0)
    assert perform_local_write(wired.database, write_of(), SETTINGS, insert("demo")) == Performed("demo")


def test_commit_that_never_arrived_answers_what_another_call_with_the_key_did_meanwhile(
    wired: Environment, wire: Wire, other: Database, database: FreshDatabase
) -> None:
    def let_other_win() -> None:
        end_cut_backends(database)
        perform_local_write(other, write_of(), SETTINGS, insert("theirs"))

    wire.cut, wire.on_cut = "before", let_other_win
    assert perform_local_write(wired.database, write_of(), SETTINGS, insert("ours")) == answer_of("theirs")
    assert database.look("SELECT id FROM coordination.projects") == [{"id": "theirs"}]


def test_unkeyed_transaction_cut_at_the_commit_says_that_the_outcome_is_unknown(
    wired: Environment, wire: Wire, database: FreshDatabase
) -> None:
    wire.cut = "after"
    with pytest.raises(OutcomeUnknownError), wired.database.transaction("-") as transaction:
        insert("demo")(transaction)
    assert database.look_up(COUNT_PROJECTS) == 1


@pytest.mark.parametrize(("principal", "tenant"), [("key:2", "-"), ("key:1", "demo"), ("key:2", "demo")])
def test_same_key_under_another_principal_or_project_is_another_record(
    app: Database, database: FreshDatabase, principal: str, tenant: str
) -> None:
    perform_local_write(app, write_of(), SETTINGS, insert("first"))
    elsewhere = write_of(principal=principal, tenant=tenant, body="b")
    assert perform_local_write(app, elsewhere, SETTINGS, insert("second")) == Performed("second")
    assert database.look_up(COUNT_RECORDS) == 2


@pytest.mark.parametrize("limits", [{"max_outcome_bytes": 50}, {"max_bytes": 50}])
def test_answer_too_large_to_keep_becomes_a_tombstone_and_the_effect_is_not_repeated(
    app: Database, database: FreshDatabase, limits: dict[str, int]
) -> None:
    settings = IdempotencySettings(**limits)
    assert perform_local_write(app, write_of(), settings, insert("demo", b"x" * 100)) == Performed("demo")
    with pytest.raises(OutcomeNotStoredError) as caught:
        perform_local_write(app, write_of(), settings, never)
    assert (caught.value.status, caught.value.code) == (409, "idempotency_outcome_not_stored")
    stored = database.look("SELECT state, body, headers, stored_bytes FROM coordination.idempotency_records")
    assert stored == [{"state": "tombstone", "body": None, "headers": None, "stored_bytes": 0}]


def test_scope_counts_its_stored_bytes_together(app: Database, database: FreshDatabase) -> None:
    settings = IdempotencySettings(max_bytes=400)
    for number in range(4):
        perform_local_write(app, write_of(f"k{number}"), settings, insert(f"p{number}", b"x" * 100))
    states = database.look("SELECT state FROM coordination.idempotency_records ORDER BY completed_at")
    assert [row["state"] for row in states] == ["completed", "completed", "tombstone", "tombstone"]
    assert database.look_up("SELECT sum(stored_bytes) <= 400 FROM coordination.idempotency_records") is True


def test_expired_key_runs_again(app: Database, database: FreshDatabase) -> None:
    perform_local_write(app, write_of(), SETTINGS, insert("first"))
    let_expire(database)
    assert perform_local_write(app, write_of(body="b"), SETTINGS, insert("second")) == Performed("second")
    assert database.look_up(COUNT_RECORDS) == 1


def test_keyed_write_prunes_the_expired_records_of_its_own_scope_only(app: Database, database: FreshDatabase) -> None:
    for number in range(3):
        perform_local_write(app, write_of(f"k{number}"), SETTINGS, insert(f"p{number}"))
    perform_local_write(app, write_of(principal="key:2"), SETTINGS, insert("other"))
    let_expire(database)
    perform_local_write(app, write_of("new"), SETTINGS, insert("new"))
    kept = database.look("SELECT principal, count(*) AS records FROM coordination.idempotency_records GROUP BY 1")
    assert sorted((row["principal"], row["records"]) for row in kept) == [("key:1", 1), ("key:2", 1)]


def test_expired_records_do_not_count_against_the_cap(app: Database, database: FreshDatabase) -> None:
    cap = IdempotencySettings(max_records=1)
    perform_local_write(app, write_of(), cap, insert("first"))
    let_expire(database)
    assert perform_local_write(app, write_of("new"), cap, insert("second")) == Performed("second")


def test_retry_after_at_the_cap_leads_to_the_next_expiry(app: Database, database: FreshDatabase) -> None:
    cap = IdempotencySettings(max_records=2)
    for number in range(2):
        perform_local_write(app, write_of(f"k{number}"), cap, insert(f"p{number}"))
    database.look(
        "UPDATE coordination.idempotency_records SET expires_at = clock_timestamp() + interval '90 s'"
        " WHERE key_sha256 = %(key)s",
        {"key": digest_key("k1")},
    )
    with pytest.raises(IdempotencyCapacityError) as caught:
        perform_local_write(app, write_of("new"), cap, insert("new"))
    assert caught.value.retry_after_seconds in (89, 90)


def test_thousand_uncertain_claims_fill_their_own_scope_and_no_other(app: Database, database: FreshDatabase) -> None:
    params = {"prefix": "u", "fingerprint": digest_key("a"), "deadline": "-1 minute", "count": 1024}
    database.look(INSERT_CLAIM, params)
    with pytest.raises(IdempotencyCapacityError):
        perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    assert database.look_up(COUNT_PROJECTS) == 0
    elsewhere = write_of(principal="key:2")
    assert perform_local_write(app, elsewhere, SETTINGS, insert("demo")) == Performed("demo")


def test_lock_of_one_scope_holds_up_no_other_scope(
    make_environments: Callable[..., Environment], database: FreshDatabase
) -> None:
    app = make_environments(transactions=TransactionSettings(lock_timeout_ms=50)).database
    with database.connect("app") as holder, holder.transaction():
        holder.execute(
            load_queries("locks")["take_advisory_lock"], {"namespace": "idempotency-scope", "name": "- key:1"}
        )
        other = write_of(principal="key:2")
        assert perform_local_write(app, other, SETTINGS, insert("other")) == Performed("other")
        with pytest.raises(DatabaseUnavailableError):
            perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    assert database.look("SELECT id FROM coordination.projects") == [{"id": "other"}]


def test_wait_for_the_scope_is_not_taken_off_the_time_an_outcome_is_kept(
    app: Database, database: FreshDatabase
) -> None:
    # Both times are read after the lock, on the same clock.
    perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    lifetime = "SELECT expires_at - completed_at = interval '24 hours' FROM coordination.idempotency_records"
    assert database.look_up(lifetime) is True


def test_clock_and_time_zone_of_the_application_decide_nothing(
    database: FreshDatabase, make_environments: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    app = make_environments(make_conninfo(database.app_url, options="-c TimeZone=Asia/Kolkata")).database
    perform_local_write(app, write_of(), SETTINGS, insert("demo"))
    assert perform_local_write(app, write_of(), SETTINGS, never) == answer_of("demo")
    fresh = (
        "SELECT bool_and(completed_at > clock_timestamp() - interval '1 minute' AND"
        " expires_at > clock_timestamp() + interval '23 hours') FROM coordination.idempotency_records"
    )
    assert database.look_up(fresh) is True


def test_keys_are_stored_as_digests_only(app: Database, database: FreshDatabase) -> None:
    perform_local_write(app, write_of("a key that is a secret"), SETTINGS, insert("demo"))
    stored = database.look_up("SELECT r::text FROM coordination.idempotency_records r")
    assert "a key" not in stored
    assert digest_key("a key that is a secret").hex() in stored


def test_error_of_the_database_that_is_none_of_ours_passes_unchanged(app: Database) -> None:
    def divide(transaction: Transaction) -> tuple[str, StoredAnswer]:
        transaction.fetch_one("SELECT 1 / 0 AS never")
        raise AssertionError

    with pytest.raises(psycopg.errors.DivisionByZero):
        perform_local_write(app, write_of(), SETTINGS, divide)


def test_one_key_is_looked_up_by_the_primary_key_before_there_are_statistics(database: FreshDatabase) -> None:
    # Both looked alike to the planner when the table was new, and a scope of 1024 records was read for one key.
    look_up = (
        "EXPLAIN SELECT expires_at FROM coordination.idempotency_records"
        " WHERE tenant_id = '-' AND principal = 'key:1' AND key_sha256 = '\\x00'"
    )
    plan = " ".join(next(iter(row.values())) for row in database.look(look_up))
    # The table of this test is so small that it may be read whole.
    assert "idempotency_records_by_expiry" not in plan


@pytest.mark.parametrize("role", ["app", "owner"])
@pytest.mark.parametrize(
    "broken",
    [
        {"key_sha256": b"short"},
        {"fingerprint": b"short"},
        {"stored_bytes": -1},
        {"state": "lost"},
        {"body": None},
        {"headers": None},
        {"status": None},
        {"completed_at": None},
        {"state": "tombstone", "completed_at": None},
        {"state": "claimed"},
        {"state": "claimed", "owner_token": uuid4(), "deadline_at": "2026-01-01T00:00:00Z", "id": None},
        {"state": "claimed", "owner_token": uuid4(), "id": uuid4()},
        {"state": "claimed", "deadline_at": "2026-01-01T00:00:00Z", "id": uuid4()},
    ],
)
def test_record_that_is_not_whole_is_refused(database: FreshDatabase, role: str, broken: dict[str, Any]) -> None:
    record: dict[str, Any] = {
        "tenant_id": "-",
        "principal": "key:1",
        "key_sha256": b"k" * 32,
        "id": None,
        "operation": "test.write",
        "fingerprint": b"f" * 32,
        "state": "completed",
        "completed_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-02T00:00:00Z",
        "status": 201,
        "headers": Jsonb({}),
        "body": b"{}",
        "stored_bytes": 4,
    }
    with database.connect(role) as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT scheduler_app.begin_tenant('-', 1000, 5000)")
        insert_record(connection, record)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="record_is_whole"), connection.transaction():
            insert_record(connection, record | {"key_sha256": b"l" * 32} | broken)


def insert_record(connection: psycopg.Connection[Any], record: dict[str, Any]) -> None:
    connection.execute(
        sql.SQL("INSERT INTO coordination.idempotency_records ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, record)), sql.SQL(", ").join(map(sql.Placeholder, record))
        ),
        record,
    )


def test_scope_notes_when_the_next_of_its_records_expires(app: Database, database: FreshDatabase) -> None:
    next_expiry = (
        "SELECT s.next_expiry_at = (SELECT min(r.expires_at) FROM coordination.idempotency_records r)"
        " FROM coordination.idempotency_scopes s"
    )
    perform_local_write(app, write_of("long"), SETTINGS, insert("p1"))
    assert database.look_up(next_expiry) is True
    perform_local_write(app, write_of("short"), IdempotencySettings(retention_seconds=60), insert("p2"))
    assert database.look_up(next_expiry) is True
    database.look(
        "UPDATE coordination.idempotency_records SET expires_at = clock_timestamp() - interval '1 ms'"
        " WHERE key_sha256 = %(key)s",
        {"key": digest_key("short")},
    )
    assert database.look_up(next_expiry) is True
    perform_local_write(app, write_of("new"), SETTINGS, insert("p3"))
    assert database.look_up(next_expiry) is True
    assert database.look_up("SELECT count(*) FROM coordination.idempotency_records") == 2
    # One that is gone may be noted still: then there is nothing to prune, and the next write notes what is.
    database.look(
        "DELETE FROM coordination.idempotency_records WHERE key_sha256 = %(key)s", {"key": digest_key("long")}
    )
    database.look("UPDATE coordination.idempotency_scopes SET next_expiry_at = clock_timestamp() - interval '1 ms'")
    perform_local_write(app, write_of("newest"), SETTINGS, insert("p4"))
    assert database.look_up(next_expiry) is True
    assert database.look_up("SELECT count(*) FROM coordination.idempotency_records") == 2


def test_scope_counts_what_it_holds_through_storing_pruning_and_refusing(
    app: Database, database: FreshDatabase
) -> None:
    def counted() -> tuple[int, int]:
        (row,) = database.look("SELECT records, stored_bytes FROM coordination.idempotency_scopes")
        (held,) = database.look(
            "SELECT count(*) AS records, sum(stored_bytes)::bigint AS stored_bytes"
            " FROM coordination.idempotency_records"
        )
        assert row == held
        return row["records"], row["stored_bytes"]

    cap = IdempotencySettings(max_records=3, max_bytes=400)
    for number in range(3):
        perform_local_write(app, write_of(f"k{number}"), cap, insert(f"p{number}", b"x" * 100))
    records, stored_bytes = counted()
    assert records == 3
    assert 0 < stored_bytes <= 400
    with pytest.raises(IdempotencyCapacityError):
        perform_local_write(app, write_of("new"), cap, insert("new"))
    assert counted() == (records, stored_bytes)
    let_expire(database)
    perform_local_write(app, write_of("new"), cap, insert("new", b"x" * 100))
    assert counted()[0] == 1


def test_full_scope_is_named_however_the_answers_come_in(app: Database) -> None:
    # COMMIT follows in the same packet, and is told only that the pipeline was aborted: at times in a read of its own.
    cap = IdempotencySettings(max_records=1)
    perform_local_write(app, write_of(), cap, insert("first"))
    for number in range(100):
        with pytest.raises(IdempotencyCapacityError):
            perform_local_write(app, write_of(f"k{number}"), cap, insert(f"p{number}"))
