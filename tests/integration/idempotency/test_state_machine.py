"""A model of the life of keys against the HTTP handlers and PostgreSQL: whatever the order of events, they agree.

Time is moved in the rows. `EVALWARD_HYPOTHESIS=thorough` runs many more and longer histories.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import api.operations
import orjson
import pytest
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.errors import RunQuotaExceededError
from coordination.http import border
from coordination.http.border import make_handler
from coordination.http.operation import Answer, Call, Operation
from coordination.settings import IdempotencySettings
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.idempotency.conftest import FakeRemote, Mortal

CAP = 4
# Read here: the tests' environment is cleaned of such variables before the first fixture.
IS_THOROUGH = os.environ.get("EVALWARD_HYPOTHESIS") == "thorough"
HOUR = 3600
DAY = 24 * HOUR
DEADLINE_SECONDS = 600

type Mode = Literal["remote", "local"]
type Plan = Literal[
    "succeed", "fail before the boundary", "fail before the effect", "fail after the effect",
    "crash before the boundary", "crash before the effect", "crash after the effect", "lose the database",
]  # fmt: skip

KEYS = st.sampled_from(["k1", "k2", "k3"])
BODIES = st.sampled_from(["a", "b"])
MODES: st.SearchStrategy[Mode] = st.sampled_from(["remote", "remote", "local"])
PLANS: st.SearchStrategy[Plan] = st.sampled_from(
    ["succeed", "succeed", "succeed", "fail before the boundary", "fail before the effect", "fail after the effect",
     "crash before the boundary", "crash before the effect", "crash after the effect", "lose the database"]
)  # fmt: skip


# Scopes that count other records, or bytes, than they have, or do not see one expire; scopes that are missing.
COUNTED_WRONGLY = """
SELECT * FROM (
    SELECT tenant_id, principal, count(*) AS records, sum(stored_bytes) AS stored_bytes, min(expires_at) AS expires_at
    FROM coordination.idempotency_records GROUP BY tenant_id, principal) held
FULL JOIN coordination.idempotency_scopes counted USING (tenant_id, principal)
WHERE (coalesce(held.records, 0), coalesce(held.stored_bytes, 0))
      IS DISTINCT FROM (counted.records, counted.stored_bytes)
   OR counted.next_expiry_at > held.expires_at
"""


@dataclass
class Record:
    """What the model knows of a key.

    Attributes
    ----------
    mode, body
        What the key is bound to.
    state
        As in the database.
    deadline_at, expires_at
        Seconds on the model's clock.
    content
        The stored answer.
    """

    mode: Mode
    body: str
    state: Literal["claimed", "completed", "tombstone"]
    expires_at: int
    deadline_at: int = 0
    content: bytes = b""


@dataclass
class World:
    """What every history works with.

    Attributes
    ----------
    database
        Looked into and moved by the superuser.
    mortal
        The environment of the handlers.
    remote
        Counts the effects outside.
    operations
        The remote and the local write of the tests.
    """

    database: FreshDatabase
    mortal: Mortal
    remote: FakeRemote
    operations: Mapping[str, Operation]
    steps: int = 0
    codes: Counter[str] = field(default_factory=Counter[str])

    def __post_init__(self) -> None:
        self.superuser = self.database.connect("superuser")
        self.handler = make_handler([*self.operations.values(), *api.operations.OPERATIONS])

    def look(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        """Run a statement as the superuser."""
        cursor = self.superuser.execute(statement.encode(), params or None)
        return cursor.fetchall() if cursor.description else []


CODES = {
    "run", "replay", "broken", "unauthenticated", "idempotency_key_reused", "idempotency_in_progress",
    "idempotency_uncertain", "idempotency_outcome_not_stored", "idempotency_capacity",
}  # fmt: skip


class Context:
    """Lambda's context object."""

    aws_request_id = "1"
    function_name = "test"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:test"

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return DEADLINE_SECONDS * 1000


class CrashError(BaseException):
    """The process ends here."""


class Histories(RuleBasedStateMachine):
    """Rules act on the system and on the model alike, and compare what both say."""

    world: World

    @initialize()
    def begin(self) -> None:
        """Begin in a project of one's own with a key of one's own."""
        self.project = f"p-{uuid.uuid4().hex[:12]}"
        self.world.look("INSERT INTO coordination.projects (id, created_by) VALUES (%(p)s, 'machine')", p=self.project)
        self.bury()
        self.now = 0
        self.effects = {"remote": 0, "local": 0}
        self.world.remote.effects.clear()
        self.make_key()

    def bury(self) -> None:
        """Wait until the server has noticed the end of a process that died, and be another one."""
        self.world.mortal.rise()
        while self.world.look(
            "SELECT 1 FROM pg_stat_activity WHERE usename = 'evalward_app' AND datname = current_database()"
        ):
            pass

    def make_key(self) -> None:
        """Make an API key: another principal, and so another scope."""
        body = {"name": "machine", "grants": [{"project": self.project, "role": "admin"}]}
        made = self.invoke("POST", "/v1/keys", body, key=self.world.database.admin_key)
        assert made["statusCode"] == 201, made
        key = orjson.loads(made["body"])
        self.key, self.key_id, self.is_revoked = key["secret"], key["id"], False
        self.records: dict[str, Record] = {}

    def invoke(
        self, method: str, path: str, body: Any, *, key: str | None = None, idempotency_key: str | None = None
    ) -> dict[str, Any]:
        """Call the handler as API Gateway does."""
        self.world.steps += 1
        headers = {"authorization": f"Bearer {key or self.key}", "content-type": "application/json"}
        if idempotency_key is not None:
            headers["idempotency-key"] = idempotency_key
        event: dict[str, Any] = {
            "version": "2.0",
            "rawPath": path,
            "rawQueryString": "",
            "headers": headers,
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "stage": "$default",
                "http": {"method": method, "path": path},
            },
            "isBase64Encoded": False,
        }
        if body is not None:
            event["body"] = orjson.dumps(body).decode()
        return self.world.handler(event, Context())  # pyright: ignore[reportArgumentType]

    def live(self, key: str) -> Record | None:
        """Return the model's record of a key unless it has expired."""
        record = self.records.get(key)
        return record if record is not None and record.expires_at > self.now else None

    def live_count(self) -> int:
        return sum(record.expires_at > self.now for record in self.records.values())

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare_remote(self, mode: Mode, plan: Plan) -> None:
        """Let the next effect go as planned."""
        remote, mortal = self.world.remote, self.world.mortal

        def fail() -> None:
            raise RunQuotaExceededError("refused")

        def crash() -> None:
            mortal.die()
            raise CrashError

        remote.before_boundary = remote.before_effect = remote.after_effect = lambda: None
        kind, _, place = plan.partition(" ")
        hooks = {"before the boundary": "before_boundary", "before the effect": "before_effect",
                 "after the effect": "after_effect"}  # fmt: skip
        if plan == "lose the database":
            remote.after_effect = mortal.die
        elif place in hooks:
            setattr(remote, hooks[place], fail if kind == "fail" else crash)
        assert mode in self.effects

    def expected(self, key: str, body: str, mode: Mode, plan: Plan) -> str:
        """Say what the model expects: a code, `replay`, `run` or `broken`; the model learns what happened."""
        if self.is_revoked:
            return "unauthenticated"
        record = self.live(key)
        if record is not None:
            if (record.mode, record.body) != (mode, body):
                return "idempotency_key_reused"
            match record.state:
                case "completed":
                    return "replay"
                case "tombstone":
                    return "idempotency_outcome_not_stored"
                case "claimed":
                    is_past = record.deadline_at <= self.now
                    return "idempotency_uncertain" if is_past else "idempotency_in_progress"
        is_full = self.live_count() >= CAP
        if mode == "remote":
            if is_full:
                return "idempotency_capacity"
            self.effects["remote"] += plan in ("succeed", "fail after the effect", "crash after the effect",
                                               "lose the database")  # fmt: skip
            if plan == "succeed":
                self.records[key] = Record(mode, body, "completed", self.now + DAY)
                return "run"
            if plan != "fail before the boundary":
                self.records[key] = Record(mode, body, "claimed", self.now + 7 * DAY, self.now + DEADLINE_SECONDS)
            return "broken"
        if plan != "succeed":
            return "broken"
        if is_full:
            return "idempotency_capacity"
        self.effects["local"] += 1
        self.records[key] = Record(mode, body, "completed", self.now + DAY)
        return "run"

    @rule(key=KEYS, body=BODIES, mode=MODES, plan=PLANS)
    def write(self, key: str, body: str, mode: Mode, plan: Plan) -> None:
        """Write, retry, or send another body or operation under a used key."""
        expected = self.expected(key, body, mode, plan)
        self.prepare_remote(mode, plan)
        path = f"/v1/projects/{self.project}/{'effects' if mode == 'remote' else 'rows'}"
        answer: dict[str, Any] | None = None
        try:
            answer = self.invoke("POST", path, {"name": body}, idempotency_key=key)
        except CrashError:
            assert expected == "broken"
        if expected == "broken":
            self.bury()
        if answer is not None:
            self.check(answer, expected, key)
        self.world.codes[expected] += 1

    def check(self, answer: dict[str, Any], expected: str, key: str) -> None:
        """Compare an answer with what was expected."""
        headers = {name.lower(): value for name, value in answer["headers"].items()}
        content = answer["body"].encode()
        is_replayed = headers.get("idempotency-replayed") == "true"
        if expected in ("run", "replay"):
            assert (answer["statusCode"], is_replayed) == (201, expected == "replay"), answer
            if expected == "replay":
                assert content == self.records[key].content
            self.records[key].content = content
            return
        code = orjson.loads(content)["code"]
        if expected == "broken":
            assert code in ("outcome_unknown", "run_quota_exceeded", "database_unavailable", "internal_error"), answer
            return
        assert code == expected, answer
        if code == "idempotency_in_progress":
            assert 0 < int(headers["retry-after"]) <= DEADLINE_SECONDS
        elif code == "idempotency_capacity":
            assert 0 < int(headers["retry-after"]) <= 7 * DAY
        else:
            assert "retry-after" not in headers

    @precondition(lambda self: not self.is_revoked)
    @rule(mode=MODES)
    def fill_the_scope(self, mode: Mode) -> None:
        """Write under new keys until the scope is full."""
        for number in range(CAP + 1):
            self.write(f"fill-{self.now}-{number}", "a", mode, "succeed")
        assert self.live_count() == CAP

    @rule(key=KEYS, body=BODIES, plan=PLANS, outcome=st.sampled_from(["happened", "did_not_happen"]))
    def break_off_ask_and_resolve(self, key: str, body: str, plan: Plan, outcome: str) -> None:
        """Do one after the other what random rules seldom do in this order."""
        self.write(key, body, "remote", plan)
        self.write(key, body, "remote", "succeed")
        self.let_pass(HOUR)
        self.write(key, body, "remote", "succeed")
        if not self.is_revoked:
            self.resolve(key, outcome)
        self.write(key, body, "remote", "succeed")

    # -- time, people ------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([HOUR, HOUR, 25 * HOUR, 7 * DAY]))
    def let_pass(self, seconds: int) -> None:
        """Let time pass in the rows and in the model."""
        self.now += seconds
        self.world.look(
            "UPDATE coordination.idempotency_records SET claimed_at = claimed_at - %(by)s, deadline_at = deadline_at"
            " - %(by)s, completed_at = completed_at - %(by)s, expires_at = expires_at - %(by)s"
            " WHERE tenant_id = %(p)s".replace("%(by)s", "make_interval(secs => %(by)s)"),
            by=seconds,
            p=self.project,
        )

    @precondition(lambda self: not self.is_revoked)
    @rule(key=KEYS, outcome=st.sampled_from(["happened", "did_not_happen"]))
    def resolve(self, key: str, outcome: str) -> None:
        """Say what became of a write."""
        rows = self.world.look(
            "SELECT id, state FROM coordination.idempotency_records"
            " WHERE tenant_id = %(p)s AND principal = %(who)s AND key_sha256 = sha256(%(key)s)",
            p=self.project,
            who=f"key:{self.key_id}",
            key=key.encode(),
        )
        if not rows:
            return
        record = self.live(key)
        path = f"/v1/projects/{self.project}/idempotency-claims/{rows[0]['id']}/resolve"
        answer = self.invoke("POST", path, {"outcome": outcome})
        code = orjson.loads(answer["body"]).get("code")
        if record is None or record.mode == "local":
            # A local write claims nothing that could be resolved.
            assert code == "not_found"
        elif record.state != "claimed":
            assert code == "claim_resolved"
        elif record.deadline_at > self.now:
            assert code == "claim_in_progress"
        else:
            assert answer["statusCode"] == 200, answer
            if outcome == "happened":
                record.state = "tombstone"
            else:
                del self.records[key]

    @rule()
    def revoke_or_replace_the_key(self) -> None:
        """Delete the API key; the next time make another."""
        if self.is_revoked:
            self.make_key()
            return
        answer = self.invoke("DELETE", f"/v1/keys/{self.key_id}", None, key=self.world.database.admin_key)
        assert answer["statusCode"] == 204
        self.is_revoked = True

    # -- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def effects_are_those_of_the_model(self) -> None:
        """Compare the effects, inside and outside."""
        assert self.world.remote.effects.total() == self.effects["remote"]
        (row,) = self.world.look(
            "SELECT count(*) AS rows FROM coordination.projects WHERE description = %(p)s", p=self.project
        )
        assert row["rows"] == self.effects["local"]

    @invariant()
    def records_are_those_of_the_model(self) -> None:
        """Compare the records that live."""
        rows = self.world.look(
            "SELECT key_sha256, state, operation, body,"
            " state = 'claimed' AND deadline_at > clock_timestamp() AS is_running"
            " FROM coordination.idempotency_records"
            " WHERE tenant_id = %(p)s AND principal = %(who)s AND expires_at > clock_timestamp()",
            p=self.project,
            who=f"key:{self.key_id}",
        )
        seen = {
            bytes(row["key_sha256"]): (row["state"], row["operation"], bool(row["is_running"]), row["body"] or b"")
            for row in rows
        }
        assert seen == {
            hashlib.sha256(key.encode()).digest(): (
                one.state, f"test.{one.mode}", one.state == "claimed" and one.deadline_at > self.now, one.content
            )
            for key, one in self.records.items()
            if one.expires_at > self.now
        }  # fmt: skip
        assert len(rows) <= CAP

    @invariant()
    def counts_are_those_of_the_rows(self) -> None:
        """Compare what the scopes say they hold with what they hold."""
        assert self.world.look(COUNTED_WRONGLY) == []

    @invariant()
    def nothing_is_locked(self) -> None:
        """Look for locks that outlived their transaction."""
        assert self.world.look("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []


def test_model_and_database_never_disagree(
    database: FreshDatabase,
    make_mortal: Callable[[], Mortal],
    make_environments: Callable[..., Environment],
    remote: FakeRemote,
    remote_operation: Operation,
    local_operation: Operation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mortal = make_mortal()
    small = replace(
        mortal.environment,
        settings=mortal.environment.settings.model_copy(update={"idempotency": IdempotencySettings(max_records=CAP)}),
    )
    monkeypatch.setattr(border, "load_environment", lambda: small)

    def write_a_row(call: Call, transaction: Transaction) -> Answer:
        remote.before_boundary()
        transaction.submit(
            "INSERT INTO coordination.projects (id, description, created_by)"
            " VALUES (%(id)s::text, %(p)s::text, 'machine')",
            {"id": f"row-{uuid.uuid4()}", "p": call.project},
        )
        remote.before_effect()
        answer = local_operation.handle(call, transaction)
        remote.after_effect()
        return answer

    operations = {"remote": remote_operation, "local": replace(local_operation, handle=write_a_row)}
    world = World(database, mortal, remote, operations)
    scale = 15 if IS_THOROUGH else 1
    bounds = settings(
        max_examples=40 * scale,
        stateful_step_count=50,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        database=None,
    )

    class TheseHistories(Histories):
        pass

    TheseHistories.world = world
    logging.disable(logging.CRITICAL)
    try:
        run_state_machine_as_test(TheseHistories, settings=bounds)
    finally:
        world.superuser.close()
        logging.disable(logging.NOTSET)
    # The histories went everywhere.
    assert set(world.codes) == CODES
