"""Claims without an outcome: seen by their owner, resolved by whoever may reconcile."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest
from coordination.http.operation import Operation

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.idempotency.conftest import Answered, Caller, FakeRemote, Pause, Records

BODY = {"name": "a"}


class BrokenError(Exception):
    """The remote broke off."""


@pytest.fixture
def break_off(caller: Caller, remote: FakeRemote, remote_operation: Operation) -> Callable[..., None]:
    """Return a function that leaves a claim without an outcome."""

    def run(idempotency_key: str = "k", by: Caller = caller) -> None:
        def fail() -> None:
            raise BrokenError

        remote.after_effect = fail
        assert by.send(remote_operation, BODY, idempotency_key).code == "outcome_unknown"
        remote.after_effect = lambda: None

    return run


@pytest.fixture
def resolve(operations: Mapping[str, Operation], records: Records) -> Callable[..., Answered]:
    """Return a function that resolves the only claim."""

    def run(by: Caller, outcome: str, claim: str | None = None, idempotency_key: str | None = None) -> Answered:
        path = {"project": "demo", "claim": claim or records.claim_id()}
        return by.send(operations["claims.resolve"], {"outcome": outcome}, idempotency_key, path=path)

    return run


def test_owner_sees_own_claims_oldest_first_with_state_deadline_and_fingerprint(
    caller: Caller, operations: Mapping[str, Operation], break_off: Callable[..., None], records: Records
) -> None:
    break_off("first")
    records.let_pass("1 minute")
    break_off("second")
    listed = caller.send(operations["claims.list"])
    old, new = listed.json["items"]
    assert [old["state"], new["state"]] == ["uncertain", "in_progress"]
    assert old["operation"] == "test.remote"
    assert old["key_fingerprint"] == hashlib.sha256(b"first").hexdigest()[:12]
    assert old["claimed_at"] < old["deadline_at"] < old["expires_at"]
    page = caller.send(operations["claims.list"], query=[("limit", "1")]).json
    assert page["items"] == [old]
    rest = caller.send(operations["claims.list"], query=[("limit", "1"), ("cursor", page["next_cursor"])]).json
    assert (rest["items"], rest["next_cursor"]) == ([new], None)


def test_claims_of_others_need_the_permission(
    caller: Caller,
    operations: Mapping[str, Operation],
    break_off: Callable[..., None],
    make_key: Callable[..., str],
    database: FreshDatabase,
) -> None:
    break_off()
    admin = f"key:{database.admin_key[3:19]}"
    runner = type(caller)(caller.environment, make_key({"project": "demo", "role": "runner"}))
    assert runner.send(operations["claims.list"]).json["items"] == []
    assert runner.send(operations["claims.list"], query=[("principal", admin)]).status == 403
    reconciler = type(caller)(
        caller.environment, make_key({"project": "demo", "permissions": ["idempotency.reconcile"]})
    )
    assert len(reconciler.send(operations["claims.list"], query=[("principal", admin)]).json["items"]) == 1


def test_write_that_did_not_happen_runs_on_the_next_retry(
    caller: Caller,
    remote: FakeRemote,
    remote_operation: Operation,
    break_off: Callable[..., None],
    resolve: Callable[..., Answered],
    records: Records,
    database: FreshDatabase,
) -> None:
    break_off()
    records.let_pass("1 minute")
    claim = records.claim_id()
    resolved = resolve(caller, "did_not_happen")
    assert (resolved.status, resolved.json["id"], resolved.json["operation"]) == (200, claim, "test.remote")
    again = caller.send(remote_operation, BODY, "k")
    assert (again.status, again.is_replayed) == (201, False)
    assert remote.effects == {"a": 2}
    (event,) = database.look("SELECT outcome, target FROM coordination.audit_events WHERE operation = 'claims.resolve'")
    assert event == {"outcome": "reconciled", "target": claim}


def test_write_that_happened_never_runs_again_under_its_key(
    caller: Caller,
    remote: FakeRemote,
    remote_operation: Operation,
    break_off: Callable[..., None],
    resolve: Callable[..., Answered],
    records: Records,
) -> None:
    break_off()
    records.let_pass("1 minute")
    assert resolve(caller, "happened").json["outcome"] == "happened"
    for _ in range(2):
        assert caller.send(remote_operation, BODY, "k").code == "idempotency_outcome_not_stored"
    assert caller.send(remote_operation, {"name": "b"}, "k").code == "idempotency_key_reused"
    assert remote.effects == {"a": 1}
    assert resolve(caller, "did_not_happen").code == "claim_resolved"
    records.let_pass("7 days")
    assert caller.send(remote_operation, BODY, "k").status == 201


def test_claim_in_progress_is_not_resolved(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    resolve: Callable[..., Answered],
    threads: Callable[..., Future[Any]],
    new_pause: type[Pause],
) -> None:
    a, b = make_caller(), make_caller()
    remote.after_effect = pause = new_pause()
    running = threads(a.send, remote_operation, BODY, "k")
    pause.wait_for_arrival()
    for outcome in ("happened", "did_not_happen"):
        refused = resolve(b, outcome)
        assert (refused.status, refused.code) == (409, "claim_in_progress")
    pause.go()
    assert running.result(30).status == 201
    assert resolve(b, "did_not_happen").code == "claim_resolved"
    assert remote.effects == {"a": 1}


def test_owner_who_ends_late_still_stores_the_outcome_of_an_unresolved_claim(
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    records: Records,
    threads: Callable[..., Future[Any]],
    new_pause: type[Pause],
) -> None:
    a, b = make_caller(), make_caller()
    remote.after_effect = pause = new_pause()
    running = threads(a.send, remote_operation, BODY, "k")
    pause.wait_for_arrival()
    records.let_pass("1 hour")
    assert b.send(remote_operation, BODY, "k").code == "idempotency_uncertain"
    pause.go()
    first = running.result(30)
    assert b.send(remote_operation, BODY, "k").content == first.content


def test_resolution_is_a_keyed_write_itself(
    caller: Caller, break_off: Callable[..., None], resolve: Callable[..., Answered], records: Records
) -> None:
    break_off()
    records.let_pass("1 minute")
    claim = records.claim_id()
    first = resolve(caller, "did_not_happen", claim, "resolution")
    again = resolve(caller, "did_not_happen", claim, "resolution")
    assert (again.content, again.is_replayed) == (first.content, True)
    assert resolve(caller, "happened", claim, "resolution").code == "idempotency_key_reused"


def test_resolving_needs_the_permission_and_a_claim_of_this_project(
    caller: Caller,
    break_off: Callable[..., None],
    resolve: Callable[..., Answered],
    records: Records,
    make_key: Callable[..., str],
    make_project: Callable[..., str],
    operations: Mapping[str, Operation],
) -> None:
    break_off()
    records.let_pass("1 minute")
    editor = type(caller)(caller.environment, make_key({"project": "demo", "role": "editor"}))
    assert resolve(editor, "happened").status == 403
    make_project("other")
    elsewhere = {"project": "other", "claim": records.claim_id()}
    assert caller.send(operations["claims.resolve"], {"outcome": "happened"}, path=elsewhere).status == 404
    assert resolve(caller, "happened", str(uuid.uuid4())).status == 404
    assert resolve(caller, "happened", "no uuid").status == 404
    assert records.states() == ["claimed"]


def test_claims_of_installation_wide_writes_have_routes_of_their_own(
    caller: Caller,
    remote: FakeRemote,
    remote_operation: Operation,
    operations: Mapping[str, Operation],
    records: Records,
    break_off: Callable[..., None],
) -> None:
    break_off()
    records.database.look("UPDATE coordination.idempotency_records SET tenant_id = '-'")
    records.let_pass("1 minute")
    assert caller.send(operations["claims.list"]).json["items"] == []
    (claim,) = caller.send(operations["installation_claims.list"], path={}).json["items"]
    resolved = caller.send(
        operations["installation_claims.resolve"], {"outcome": "did_not_happen"}, path={"claim": claim["id"]}
    )
    assert resolved.status == 200
    assert records.states() == []
