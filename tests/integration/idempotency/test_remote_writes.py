"""A keyed write with an effect outside the database takes effect at most once, whatever goes wrong around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import RunQuotaExceededError
from coordination.http.operation import Operation
from coordination.idempotency.key import digest_key
from coordination.settings import IdempotencySettings, TransactionSettings
from psycopg import sql

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Wire
    from integration.idempotency.conftest import Answered, Caller, FakeRemote, Mortal, Pause, Records

BODY = {"name": "a"}
OTHER_BODY = {"name": "b"}


class EffectFailedError(Exception):
    """The remote broke off."""


def fail() -> None:
    raise EffectFailedError


def test_retry_gets_the_stored_answer_and_the_effect_stays_one(
    caller: Caller, remote: FakeRemote, remote_operation: Operation
) -> None:
    first = caller.send(remote_operation, BODY, "k")
    again = caller.send(remote_operation, BODY, "k")
    assert (first.status, again.status) == (201, 201)
    assert not first.is_replayed
    assert again.is_replayed
    assert again.content == first.content
    assert remote.effects == {"a": 1}


def test_unkeyed_writes_run_each_and_store_nothing(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records
) -> None:
    assert [caller.send(remote_operation, BODY).status for _ in range(2)] == [201, 201]
    assert remote.effects == {"a": 2}
    assert records.states() == []


def test_crash_after_the_effect_blocks_the_key_for_seven_days(
    caller: Caller,
    make_mortal: Callable[[], Mortal],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
) -> None:
    mortal = make_mortal()

    def crash() -> None:
        mortal.die()
        fail()

    remote.after_effect = crash
    type(caller)(mortal.environment, caller.key).send(remote_operation, BODY, "k", remaining_seconds=20.0)
    remote.after_effect = lambda: None
    assert records.states() == ["claimed"]

    before = caller.send(remote_operation, BODY, "k")
    assert (before.status, before.code) == (409, "idempotency_in_progress")
    assert 0 < int(before.headers["retry-after"]) <= 20

    records.let_pass("21 seconds")
    for passed in ("0", "25 hours", "142 hours"):
        records.let_pass(passed)
        after = caller.send(remote_operation, BODY, "k")
        assert (after.status, after.code) == (409, "idempotency_uncertain"), passed
        assert "retry-after" not in after.headers
        assert after.json["operation"] == "test.remote"
        assert after.json["claimed_at"].endswith("Z")
        assert after.json["reconcile"] == f"/v1/projects/demo/idempotency-claims/{records.claim_id()}/resolve"
        assert remote.effects == {"a": 1}

    records.let_pass("2 hours")
    fresh = caller.send(remote_operation, BODY, "k")
    assert (fresh.status, fresh.is_replayed) == (201, False)
    assert remote.effects == {"a": 2}


@pytest.mark.parametrize("hook", ["before_boundary", "before_effect"])
def test_crash_before_the_effect_leaves_a_claim_that_nobody_repeats(
    caller: Caller,
    make_mortal: Callable[[], Mortal],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    hook: str,
) -> None:
    mortal = make_mortal()

    def crash() -> None:
        mortal.die()
        fail()

    setattr(remote, hook, crash)
    with suppress(EffectFailedError):
        type(caller)(mortal.environment, caller.key).send(remote_operation, BODY, "k")
    setattr(remote, hook, lambda: None)
    records.let_pass("1 minute")
    assert caller.send(remote_operation, BODY, "k").code == "idempotency_uncertain"
    assert remote.effects == {}


def test_error_before_the_boundary_releases_the_key(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records
) -> None:
    def refuse() -> None:
        raise RunQuotaExceededError("full", retry_after_seconds=7)

    remote.before_boundary = refuse
    for _ in range(50):
        refused = caller.send(remote_operation, BODY, "k")
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "run_quota_exceeded", "7")
        assert records.states() == []
    remote.before_boundary = lambda: None
    assert caller.send(remote_operation, OTHER_BODY, "k").status == 201
    assert remote.effects == {"b": 1}


@pytest.mark.parametrize("hook", ["before_effect", "after_effect"])
def test_error_after_the_boundary_leaves_the_write_uncertain(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records, hook: str
) -> None:
    setattr(remote, hook, fail)
    failed = caller.send(remote_operation, BODY, "k")
    assert (failed.status, failed.code) == (503, "outcome_unknown")
    assert "do not use a new key" in failed.json["detail"]
    setattr(remote, hook, lambda: None)
    assert caller.send(remote_operation, BODY, "k").code == "idempotency_in_progress"
    records.let_pass("1 minute")
    assert caller.send(remote_operation, BODY, "k").code == "idempotency_uncertain"
    assert remote.effects == ({"a": 1} if hook == "after_effect" else {})


@pytest.mark.parametrize("state", ["in progress", "uncertain", "completed", "tombstone"])
def test_other_body_is_a_422_in_every_state(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records, state: str, make_caller: Any
) -> None:
    if state == "tombstone":
        caller = make_caller(idempotency=IdempotencySettings(max_outcome_bytes=1))
    if state in ("in progress", "uncertain"):
        remote.after_effect = fail
    caller.send(remote_operation, BODY, "k")
    remote.after_effect = lambda: None
    if state == "uncertain":
        records.let_pass("1 minute")
    seen = caller.send(remote_operation, BODY, "k")
    expected = {"in progress": "in_progress", "uncertain": "uncertain", "tombstone": "outcome_not_stored"}
    assert seen.code == (f"idempotency_{expected[state]}" if state in expected else None)
    for _ in range(2):
        refused = caller.send(remote_operation, OTHER_BODY, "k")
        assert (refused.status, refused.code) == (422, "idempotency_key_reused")
    assert remote.effects == {"a": 1}


def test_refused_duplicates_leave_the_claim_of_the_one_at_work(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    threads: Callable[..., Future[Any]],
    new_pause: type[Pause],
) -> None:
    a, b = make_caller(), make_caller()
    remote.after_effect = pause = new_pause()
    slow = threads(a.send, remote_operation, BODY, "k")
    pause.wait_for_arrival()
    codes = [b.send(remote_operation, body, "k").code for body in (BODY, OTHER_BODY, BODY)]
    assert codes == ["idempotency_in_progress", "idempotency_key_reused", "idempotency_in_progress"]
    pause.go()
    first = slow.result(30)
    assert (first.status, first.is_replayed) == (201, False)
    again = b.send(remote_operation, BODY, "k")
    assert (again.content, again.is_replayed) == (first.content, True)
    assert remote.effects == {"a": 1}


def test_late_owner_changes_nothing_after_the_key_was_resolved_and_claimed_again(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    operations: Mapping[str, Operation],
    records: Records,
    database: FreshDatabase,
    threads: Callable[..., Future[Any]],
    new_pause: type[Pause],
) -> None:
    a, b = make_caller(), make_caller()
    remote.after_effect = pause = new_pause()
    late = threads(a.send, remote_operation, BODY, "k")
    pause.wait_for_arrival()
    records.let_pass("1 minute")
    resolved = b.send(
        operations["claims.resolve"],
        {"outcome": "did_not_happen"},
        path={"project": "demo", "claim": records.claim_id()},
    )
    assert resolved.status == 200
    remote.after_effect = lambda: None
    second = b.send(remote_operation, BODY, "k")
    assert (second.status, second.is_replayed) == (201, False)
    everything = "SELECT r::text, r.xmin::text FROM coordination.idempotency_records r"
    before = database.look(everything)
    pause.go()
    assert late.result(30).code == "outcome_unknown"
    assert database.look(everything) == before
    assert b.send(remote_operation, BODY, "k").content == second.content


@pytest.mark.parametrize(
    ("end", "codes"),
    [("ROLLBACK", [None, "idempotency_key_reused"]), ("COMMIT", ["idempotency_in_progress", "idempotency_key_reused"])],
)
def test_loser_of_an_uncommitted_claim_gets_a_definite_answer_before_and_after_it_ends(
    caller: Caller, remote_operation: Operation, database: FreshDatabase, end: str, codes: list[str | None]
) -> None:
    caller.send(remote_operation, BODY, "earlier")
    earlier = database.look("SELECT principal, operation, fingerprint FROM coordination.idempotency_records")[0]
    with database.connect("app") as winner:
        winner.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        winner.execute("SELECT scheduler_app.begin_tenant('demo', 5000, 20000)")
        winner.execute(
            "SELECT coordination.claim_remote_write('demo', %(principal)s, %(key)s, %(operation)s, %(fingerprint)s,"
            " gen_random_uuid(), 20000, '7 days', 1024, 100000, 100)",
            earlier | {"key": digest_key("k")},
        )
        loser = caller.send(remote_operation, BODY, "k")
        assert (loser.code, loser.headers["retry-after"]) == ("idempotency_in_progress", "1")
        winner.execute(end.encode())
    assert [caller.send(remote_operation, body, "k").code for body in (BODY, OTHER_BODY)] == codes


def test_slow_owner_is_in_progress_until_the_very_deadline(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records
) -> None:
    remote.after_effect = fail
    caller.send(remote_operation, BODY, "k", remaining_seconds=100.0)
    records.let_pass("95 seconds")
    slow = caller.send(remote_operation, BODY, "k")
    assert slow.code == "idempotency_in_progress"
    assert 0 < int(slow.headers["retry-after"]) <= 5


def test_too_little_time_claims_nothing(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, records: Records
) -> None:
    refused = caller.send(remote_operation, BODY, "k", remaining_seconds=4.0)
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "too_little_time", "1")
    assert records.states() == []
    assert remote.effects == {}


def test_time_that_passed_while_claiming_gives_the_claim_back(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    database: FreshDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caller = make_caller()
    passed = iter([6.0, 6.0, 4.0])

    def remaining_seconds(_deadline: Deadline) -> float:
        return next(passed)

    monkeypatch.setattr(Deadline, "remaining_seconds", remaining_seconds)
    refused = caller.send(remote_operation, BODY, "k")
    assert (refused.status, refused.code) == (503, "too_little_time")
    assert records.states() == []
    assert remote.effects == {}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_cap_of_5_admits_5_of_15_concurrent_new_keys_and_their_effects(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    database: FreshDatabase,
    isolation: str,
) -> None:
    role = sql.SQL("ALTER ROLE evalward_app SET default_transaction_isolation = {}")
    with database.connect("superuser") as superuser:
        superuser.execute(role.format(sql.Literal(isolation)))
        try:
            callers = [make_caller(idempotency=IdempotencySettings(max_records=5)) for _ in range(15)]
            for one in callers:
                one.environment.database.fetch_one("SELECT 1 AS connected")
            start = threading.Barrier(15)

            def send(number: int) -> str | None:
                start.wait(30)
                return callers[number].send(remote_operation, BODY, f"k{number}").code

            with ThreadPoolExecutor(15) as pool:
                codes = list(pool.map(send, range(15)))
        finally:
            superuser.execute("ALTER ROLE evalward_app RESET default_transaction_isolation")
    assert sorted(code or "" for code in codes) == [""] * 5 + ["idempotency_capacity"] * 10
    assert remote.effects == {"a": 5}
    assert records.states() == ["completed"] * 5


def test_200_concurrent_duplicates_have_one_effect_one_201_and_a_definite_answer_each(
    make_caller: Callable[..., Caller], remote: FakeRemote, remote_operation: Operation
) -> None:
    callers = [make_caller() for _ in range(40)]
    for one in callers:
        one.environment.database.fetch_one("SELECT 1 AS connected")
    start = threading.Barrier(40)

    def send(caller: Caller) -> list[Any]:
        start.wait(30)
        return [caller.send(remote_operation, BODY, "k") for _ in range(5)]

    with ThreadPoolExecutor(40) as pool:
        answers = [answer for five in pool.map(send, callers) for answer in five]
    fresh = [answer for answer in answers if answer.status == 201 and not answer.is_replayed]
    assert len(fresh) == 1
    assert {answer.content for answer in answers if answer.status == 201} == {fresh[0].content}
    assert {answer.code for answer in answers if answer.status != 201} <= {"idempotency_in_progress"}
    assert remote.effects == {"a": 1}


def test_hundred_retries_straight_after_completion_are_all_replays(
    make_caller: Callable[..., Caller], remote: FakeRemote, remote_operation: Operation
) -> None:
    a, b = make_caller(), make_caller()
    first = a.send(remote_operation, BODY, "k")
    answers = [b.send(remote_operation, BODY, "k") for _ in range(100)]
    assert all(answer.is_replayed and answer.content == first.content for answer in answers)
    assert remote.effects == {"a": 1}


def test_changed_bodies_between_retries_leave_the_stored_answer(
    caller: Caller, remote: FakeRemote, remote_operation: Operation
) -> None:
    first, refused, again = (caller.send(remote_operation, body, "k") for body in (BODY, OTHER_BODY, BODY))
    assert (first.status, refused.status, again.content) == (201, 422, first.content)
    assert remote.effects == {"a": 1}


@pytest.mark.parametrize("where", ["before", "after"])
def test_lost_answer_of_the_claim_is_resolved_by_its_token(
    make_caller: Callable[..., Caller],
    wired: Environment,
    wire: Wire,
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    database: FreshDatabase,
    where: Any,
) -> None:
    caller = type(make_caller())(wired, database.admin_key)
    remote.before_claim = lambda: setattr(wire, "cut", where)
    answer = caller.send(remote_operation, BODY, "k")
    assert wire.cut is None
    assert (answer.status, answer.is_replayed) == (201, False)
    assert records.states() == ["completed"]
    assert remote.effects == {"a": 1}


@pytest.mark.parametrize("where", ["before", "after"])
def test_lost_answer_of_the_completion_is_resolved_by_its_token(
    make_caller: Callable[..., Caller],
    wired: Environment,
    wire: Wire,
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    database: FreshDatabase,
    where: Any,
) -> None:
    caller = type(make_caller())(wired, database.admin_key)

    remote.after_effect = lambda: setattr(wire, "cut", where)
    answer = caller.send(remote_operation, BODY, "k")
    assert wire.cut is None
    assert (answer.status, answer.is_replayed) == (201, False)
    assert records.states() == ["completed"]
    remote.after_effect = lambda: None
    again = caller.send(remote_operation, BODY, "k")
    assert (again.content, again.is_replayed) == (answer.content, True)
    assert remote.effects == {"a": 1}
    assert database.look_up("SELECT count(*) FROM coordination.audit_events WHERE operation = 'test.remote'") == 1


@pytest.mark.parametrize("where", ["before", "after"])
def test_lost_answer_of_a_local_write_leaves_one_effect_and_the_right_record(
    make_caller: Callable[..., Caller],
    wired: Environment,
    wire: Wire,
    remote: FakeRemote,
    local_operation: Operation,
    records: Records,
    database: FreshDatabase,
    where: Any,
) -> None:
    caller = type(make_caller())(wired, database.admin_key)
    remote.before_claim = lambda: setattr(wire, "cut", where)
    answer = caller.send(local_operation, BODY, "k")
    assert wire.cut is None
    remote.before_claim = lambda: None
    assert answer.code == ("outcome_unknown" if where == "before" else None)
    again = caller.send(local_operation, BODY, "k")
    assert (again.status, again.is_replayed) == (201, where == "after")
    assert records.states() == ["completed"]
    assert database.look_up("SELECT count(*) FROM coordination.projects WHERE id LIKE 'a-%%'", {}) == 1


def test_lost_answer_of_the_opening_is_read_again(
    make_caller: Callable[..., Caller],
    wired: Environment,
    wire: Wire,
    remote: FakeRemote,
    remote_operation: Operation,
    database: FreshDatabase,
) -> None:
    caller = type(make_caller())(wired, database.admin_key)
    caller.send(remote_operation, BODY, "k")
    wire.cut = "after"
    assert caller.send(remote_operation, BODY, "k").is_replayed
    assert remote.effects == {"a": 1}


def test_database_that_stays_away_after_the_effect_leaves_the_claim(
    caller: Caller,
    make_mortal: Callable[[], Mortal],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
) -> None:
    mortal = make_mortal()
    remote.after_effect = mortal.die
    failed = type(caller)(mortal.environment, caller.key).send(remote_operation, BODY, "k")
    assert (failed.status, failed.code) == (503, "outcome_unknown")
    assert records.states() == ["claimed"]
    assert remote.effects == {"a": 1}


def test_backend_that_dies_between_claim_and_completion_costs_one_connection_and_no_effect(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, database: FreshDatabase, records: Records
) -> None:
    def end_backends() -> None:
        database.look(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE usename = 'evalward_app' AND datname = current_database()"
        )

    remote.after_effect = end_backends
    assert caller.send(remote_operation, BODY, "k").status == 201
    end_backends()
    assert caller.send(remote_operation, BODY, "k").is_replayed
    assert remote.effects == {"a": 1}
    assert records.states() == ["completed"]


def test_answer_over_the_limit_of_an_outcome_is_given_once_and_not_repeated(
    make_caller: Callable[..., Caller], remote: FakeRemote, remote_operation: Operation, database: FreshDatabase
) -> None:
    caller = make_caller(idempotency=IdempotencySettings(max_outcome_bytes=4000))
    first = caller.send(remote_operation, BODY | {"size": 3000}, "k")
    assert (first.status, len(first.json["filler"])) == (201, 3000)
    again = caller.send(remote_operation, BODY | {"size": 3000}, "k")
    assert (again.status, again.code) == (409, "idempotency_outcome_not_stored")
    assert remote.effects == {"a": 1}
    (row,) = database.look("SELECT state, body, stored_bytes FROM coordination.idempotency_records")
    assert row == {"state": "tombstone", "body": None, "stored_bytes": 0}


def test_answer_over_the_bytes_of_the_scope_is_a_tombstone_and_never_an_error(
    make_caller: Callable[..., Caller], remote: FakeRemote, remote_operation: Operation, records: Records
) -> None:
    caller = make_caller(idempotency=IdempotencySettings(max_bytes=3000))
    assert caller.send(remote_operation, BODY | {"size": 5000}, "k").status == 201
    assert caller.send(remote_operation, BODY | {"size": 5000}, "k").code == "idempotency_outcome_not_stored"
    assert records.states() == ["tombstone"]
    assert remote.effects == {"a": 1}


def test_bytes_are_reserved_while_the_effect_runs(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    threads: Callable[..., Future[Any]],
    new_pause: type[Pause],
) -> None:
    settings = IdempotencySettings(max_bytes=2000)
    a, b = make_caller(idempotency=settings), make_caller(idempotency=settings)
    remote.after_effect = pause = new_pause()
    running = threads(a.send, remote_operation, BODY, "k1")
    pause.wait_for_arrival()
    refused = b.send(remote_operation, BODY, "k2")
    assert (refused.status, refused.code) == (429, "idempotency_capacity")
    assert int(refused.headers["retry-after"]) > 0
    remote.after_effect = lambda: None
    pause.go()
    assert running.result(30).status == 201
    assert b.send(remote_operation, BODY, "k2").status == 201
    assert remote.effects == {"a": 2}


def test_full_scope_refuses_new_keys_replays_old_ones_and_is_freed_by_a_resolution(
    caller: Caller,
    remote: FakeRemote,
    remote_operation: Operation,
    operations: Mapping[str, Operation],
    database: FreshDatabase,
    make_key: Callable[..., str],
) -> None:
    assert caller.send(remote_operation, BODY, "k").status == 201
    database.look(
        "INSERT INTO coordination.idempotency_records (tenant_id, principal, key_sha256, operation, fingerprint,"
        " state, owner_token, claimed_at, deadline_at, expires_at)"
        " SELECT tenant_id, principal, sha256(convert_to(n::text, 'UTF8')), operation, fingerprint, 'claimed',"
        " gen_random_uuid(), clock_timestamp() - interval '1 h', clock_timestamp() - interval '59 min',"
        " clock_timestamp() + interval '6 days' FROM coordination.idempotency_records, generate_series(1, 1023) AS n"
    )
    database.look("UPDATE coordination.idempotency_scopes SET records = records + 1023")
    refused = caller.send(remote_operation, BODY, "new")
    assert (refused.status, refused.code) == (429, "idempotency_capacity")
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert refused.headers["idempotency-capacity-remaining"] == "0"
    assert caller.send(remote_operation, BODY, "k").is_replayed
    other = type(caller)(caller.environment, make_key({"project": "demo", "role": "runner"}))
    assert other.send(remote_operation, BODY, "new").status == 201
    assert remote.effects == {"a": 2}

    listed = caller.send(operations["claims.list"], query=[("limit", "1")])
    resolve = operations["claims.resolve"]
    path = {"project": "demo", "claim": listed.json["items"][0]["id"]}
    assert caller.send(resolve, {"outcome": "did_not_happen"}, path=path).status == 200
    assert caller.send(remote_operation, BODY, "new").status == 201


def test_expired_records_are_pruned_when_their_scope_is_claimed_in_next(
    caller: Caller, remote_operation: Operation, records: Records
) -> None:
    for number in range(3):
        caller.send(remote_operation, BODY, f"k{number}")
    records.let_pass("25 hours")
    assert caller.send(remote_operation, BODY, "new").headers["idempotency-capacity-remaining"] == "1023"
    assert records.states() == ["completed"]


def test_clock_of_the_application_decides_nothing(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    now = time.time
    for shift in (3600.0, -3600.0):

        def shifted(shift: float = shift) -> float:
            return now() + shift

        with monkeypatch.context() as patch:
            patch.setattr(time, "time", shifted)
            remote.after_effect = fail
            caller.send(remote_operation, BODY, f"k{shift}")
            remote.after_effect = lambda: None
            seen = caller.send(remote_operation, BODY, f"k{shift}")
            assert seen.code == "idempotency_in_progress"
            assert 0 < int(seen.headers["retry-after"]) <= 29


def test_lock_of_a_scope_is_waited_for_no_longer_than_the_time_out_and_other_scopes_go_on(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    local_operation: Operation,
    database: FreshDatabase,
    make_key: Callable[..., str],
    records: Records,
) -> None:
    quick = TransactionSettings(lock_timeout_ms=100)
    waiting = [make_caller(transactions=quick) for _ in range(20)]
    other = make_caller(make_key({"project": "demo", "role": "runner"}), transactions=quick)
    principal = f"key:{database.admin_key[3:19]}"
    with database.connect("superuser") as holder, holder.transaction():
        holder.execute(
            "SELECT coordination.take_advisory_lock('idempotency-scope', %(scope)s)", {"scope": f"demo {principal}"}
        )

        def send(number: int) -> Answered:
            operation = remote_operation if number % 2 else local_operation
            return waiting[number].send(operation, BODY, f"k{number}")

        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(send, range(20)))
        assert {(one.status, one.code, one.headers["retry-after"]) for one in answers} == {
            (503, "database_unavailable", "1")
        }
        assert remote.effects == {}
        assert [other.send(one, BODY, f"{one.id}").status for one in (remote_operation, local_operation)] == [201, 201]
    assert waiting[0].send(remote_operation, BODY, "k0").status == 201
    assert records.states() == ["completed"] * 3


def test_key_is_bound_to_operation_path_and_query_too(
    caller: Caller, remote_operation: Operation, local_operation: Operation, make_project: Callable[..., str]
) -> None:
    caller.send(remote_operation, BODY, "k")
    assert caller.send(local_operation, BODY, "k").code == "idempotency_key_reused"
    make_project("other")
    elsewhere = caller.send(remote_operation, BODY, "k", path={"project": "other"})
    assert (elsewhere.status, elsewhere.is_replayed) == (201, False)


def test_integer_and_decimal_spelling_of_one_number_and_a_default_left_out_are_one_request(
    caller: Caller, remote: FakeRemote, remote_operation: Operation
) -> None:
    bodies = [
        b'{"name":"a","amount":1}',
        b'{"amount":1.0,"name":"a"}',
        b'{"name":"a","amount":1e0,"note":null,"size":0}',
    ]
    answers = [caller.send(remote_operation, body, "k") for body in bodies]
    assert [answer.is_replayed for answer in answers] == [False, True, True]
    assert caller.send(remote_operation, b'{"name":"a","amount":1.5}', "k").code == "idempotency_key_reused"
    assert remote.effects == {"a": 1}


def test_keys_of_two_principals_do_not_meet(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, make_key: Callable[..., str]
) -> None:
    other = type(caller)(caller.environment, make_key({"project": "demo", "role": "runner"}))
    answers = [one.send(remote_operation, BODY, "k") for one in (caller, other)]
    assert [answer.is_replayed for answer in answers] == [False, False]
    assert answers[0].content != answers[1].content
    assert remote.effects == {"a": 2}


def test_revoked_key_gets_401_and_lost_permission_403_never_a_replay(
    caller: Caller, remote_operation: Operation, make_key: Callable[..., str], database: FreshDatabase
) -> None:
    key = make_key({"project": "demo", "role": "runner"})
    runner = type(caller)(caller.environment, key)
    assert runner.send(remote_operation, BODY, "k").status == 201
    assert runner.send(remote_operation, BODY, "k").is_replayed
    grants = '[{"project": "demo", "role": "viewer"}]'
    database.look("UPDATE coordination.api_keys SET grants = %(g)s WHERE id = %(id)s", {"g": grants, "id": key[3:19]})
    assert runner.send(remote_operation, BODY, "k").status == 403
    database.look("DELETE FROM coordination.api_keys WHERE id = %(id)s", {"id": key[3:19]})
    assert runner.send(remote_operation, BODY, "k").status == 401


def test_record_holds_digests_and_no_key(caller: Caller, remote_operation: Operation, database: FreshDatabase) -> None:
    caller.send(remote_operation, BODY, "a-key-to-look-for")
    assert database.look("SELECT key_sha256 FROM coordination.idempotency_records") == [
        {"key_sha256": digest_key("a-key-to-look-for")}
    ]
