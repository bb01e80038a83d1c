"""What PostgreSQL sees of a keyed write: its statements, its round trips, its locks, and what is left at rest."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import coordination
import pytest
from coordination.environment import Environment
from coordination.errors import RunQuotaExceededError
from coordination.http.operation import Operation
from coordination.settings import TransactionSettings
from psycopg import sql
from retention_sweep.prune_idempotency import prune_idempotency

if TYPE_CHECKING:
    from conftest import FreshDatabase, Server
    from integration.conftest import Wire
    from integration.idempotency.conftest import Caller, FakeRemote, Records

BODY = {"name": "a"}
ENTRY = re.compile(r"^\d{4}-\d\d-\d\d .*? \[\d+\] (?=\w)", re.MULTILINE)
STATEMENT = re.compile(r"LOG: +(?:statement|execute (?P<name>[^:]+)): (?P<text>.*)", re.DOTALL)
ALLOWED = re.compile(
    r"(BEGIN ISOLATION LEVEL READ COMMITTED|COMMIT|ROLLBACK|(SELECT|INSERT INTO|UPDATE|DELETE FROM|WITH)\s.*)",
    re.DOTALL,
)
FORBIDDEN = re.compile(
    r"\b(SET|RESET|DISCARD|PREPARE|DEALLOCATE|LISTEN|NOTIFY|DECLARE|FETCH|TEMP|TEMPORARY|COPY|LOCK)\b(?! =)"
    r"|set_config|pg_(try_)?advisory|nextval|currval|setval",
)
UPDATE_SET = re.compile(r"^UPDATE\s+\S+(\s+\w+)?\s+SET\b|\bDO UPDATE SET\b")


@pytest.fixture
def use_everything(
    remote: FakeRemote,
    remote_operation: Operation,
    local_operation: Operation,
    operations: Mapping[str, Operation],
    records: Records,
) -> Callable[[Caller], None]:
    """Return a function that goes every way a keyed write can go."""

    def refuse() -> None:
        raise RunQuotaExceededError("full")

    def run(caller: Caller) -> None:
        for operation in (local_operation, remote_operation):
            for body in (BODY, BODY, {"name": "b"}):
                caller.send(operation, body, f"{operation.id}-1")
            caller.send(operation, BODY)
        remote.before_boundary = refuse
        caller.send(remote_operation, BODY, "released")
        remote.before_boundary = lambda: None
        remote.after_effect = refuse
        for key in ("uncertain-1", "uncertain-2"):
            caller.send(remote_operation, BODY, key)
        remote.after_effect = lambda: None
        records.let_pass("1 hour")
        listed = caller.send(operations["claims.list"]).json["items"]
        for claim, outcome in zip(listed, ("happened", "did_not_happen"), strict=True):
            path = {"project": "demo", "claim": claim["id"]}
            assert caller.send(operations["claims.resolve"], {"outcome": outcome}, outcome, path=path).status == 200
        assert caller.send(operations["projects.create"], {"id": "demo"}, "exists", path={}).status == 409
        records.let_pass("7 days")
        prune_idempotency(caller.environment, _Patience())  # pyright: ignore[reportArgumentType]

    return run


class _Patience:
    def remaining_seconds(self) -> float:
        return 60.0


@contextmanager
def logged_statements(server: Server) -> Generator[list[tuple[str | None, str]]]:
    """Let the server log what evalward_app sends, and fill the list with (prepared name, text) at the end."""
    log = Path(server.superuser.host).parent / "db" / "server.log"
    seen: list[tuple[str | None, str]] = []
    begin = log.stat().st_size
    with server.connect("postgres") as superuser:
        superuser.execute("ALTER ROLE evalward_app SET log_statement = 'all'")
        try:
            yield seen
        finally:
            superuser.execute("ALTER ROLE evalward_app RESET log_statement")
    text = log.read_bytes()[begin:].decode()
    for entry in ENTRY.split(text):
        found = STATEMENT.match(entry)
        if found is not None:
            seen.append((found["name"], found["text"].strip()))


def test_server_sees_plain_statements_only_and_none_is_prepared_by_name(
    server: Server, make_caller: Callable[..., Caller], use_everything: Callable[[Caller], None]
) -> None:
    with logged_statements(server) as seen:
        use_everything(make_caller())
    texts = {text for _, text in seen}
    assert len(seen) > 50
    assert {"BEGIN ISOLATION LEVEL READ COMMITTED", "COMMIT", "ROLLBACK"} <= texts
    assert {name for name, _ in seen} <= {None, "<unnamed>"}
    for text in texts:
        assert ALLOWED.fullmatch(text), text
        assert not FORBIDDEN.search(UPDATE_SET.sub("", text)), text


def test_no_advisory_lock_is_left_and_none_outlives_its_transaction(
    make_caller: Callable[..., Caller], use_everything: Callable[[Caller], None], database: FreshDatabase
) -> None:
    use_everything(make_caller())
    assert database.look("SELECT * FROM pg_locks WHERE locktype = 'advisory'") == []
    package = Path(coordination.__file__).parent
    sources = [path.read_text() for pattern in ("*.sql", "*.py") for path in package.rglob(pattern)]
    taken = {found for text in sources for found in re.findall(r"\bpg_\w*advisory\w*", text)}
    assert taken == {"pg_advisory_xact_lock", "pg_try_advisory_xact_lock"}


@pytest.mark.parametrize(("mode", "at_most"), [("local", 3), ("remote", 3)])
def test_keyed_write_costs_three_round_trips_and_a_replay_one(
    make_caller: Callable[..., Caller],
    wired: Environment,
    wire: Wire,
    database: FreshDatabase,
    remote_operation: Operation,
    local_operation: Operation,
    operations: Mapping[str, Operation],
    mode: str,
    at_most: int,
) -> None:
    caller = type(make_caller())(wired, database.admin_key)
    operation = local_operation if mode == "local" else remote_operation
    # The operation reads once: of a remote write that is the round trip of its own.
    own = 0 if mode == "local" else 1
    caller.send(operation, BODY)
    wire.round_trips = 0
    assert caller.send(operation, BODY, "k").status == 201
    assert wire.round_trips <= at_most + own
    for body in (BODY, {"name": "b"}):
        wire.round_trips = 0
        caller.send(operation, body, "k")
        assert wire.round_trips == 1


def test_keyed_evaluation_costs_three_round_trips(
    wired: Environment,
    wire: Wire,
    database: FreshDatabase,
    make_caller: Callable[..., Caller],
    operations: Mapping[str, Operation],
    make_frames: Callable[..., bytes],
) -> None:
    caller = type(make_caller())(wired, database.admin_key)
    frames = make_frames("one", has_target=False)
    caller.send(operations["evaluate"], frames)
    wire.round_trips = 0
    assert caller.send(operations["evaluate"], frames, "k").status == 200
    assert wire.round_trips == 3


def test_neither_secrets_nor_keys_are_at_rest(
    caller: Caller,
    operations: Mapping[str, Operation],
    database: FreshDatabase,
    use_everything: Callable[[Caller], None],
    remote_operation: Operation,
    make_frames: Callable[..., bytes],
) -> None:
    use_everything(caller)
    idempotency_key = "an-idempotency-key-to-look-for"
    body = {"name": "pipeline", "grants": [{"project": "demo", "role": "runner"}]}
    made, again = (caller.send(operations["keys.create"], body, idempotency_key, path={}) for _ in range(2))
    secret = made.json["secret"]
    assert again.json == {name: value for name, value in made.json.items() if name != "secret"}
    caller.send(operations["evaluate"], make_frames("one", has_target=False), idempotency_key)
    type(caller)(caller.environment, secret).send(remote_operation, BODY, idempotency_key)

    login = database.server.superuser
    command = [str(database.server.binaries / "pg_dump"), "--dbname", database.server.url(database.name, "superuser")]
    dump = subprocess.run(command, check=True, capture_output=True).stdout
    assert b"COPY coordination.idempotency_records" in dump
    wal = b"".join(path.read_bytes() for path in (Path(login.host).parent / "db/data/pg_wal").glob("0*"))
    assert len(wal) > 0
    for secret_part in (secret, secret[20:], database.admin_key[20:], idempotency_key):
        for form in (secret_part.encode(), secret_part.encode().hex().encode()):
            assert form not in dump
            assert form not in wal


def test_dead_connection_between_two_calls_costs_one_reconnect(
    caller: Caller, remote: FakeRemote, remote_operation: Operation, database: FreshDatabase
) -> None:
    end = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = 'evalward_app'"
    for number in range(3):
        assert caller.send(remote_operation, BODY, f"k{number}").status == 201
        database.look(end)
    assert remote.effects == {"a": 3}


def test_hourly_pass_forgets_what_expired_in_scopes_that_are_used_no_more(
    caller: Caller,
    remote_operation: Operation,
    local_operation: Operation,
    records: Records,
    make_key: Callable[..., str],
    database: FreshDatabase,
) -> None:
    others = [type(caller)(caller.environment, make_key({"project": "demo", "role": "runner"})) for _ in range(3)]
    for one in others:
        one.send(remote_operation, BODY, "k")
    records.let_pass("25 hours")
    caller.send(local_operation, BODY, "k")
    for pruned in (3, 0):
        counts: Any = prune_idempotency(caller.environment, _Patience())  # pyright: ignore[reportArgumentType]
        assert (counts["pruned"], counts["failed"]) == (pruned, 0)
    assert records.states() == ["completed"]
    assert database.look_up("SELECT count(*) FROM coordination.idempotency_scopes") == 1


def test_hourly_pass_leaves_a_scope_that_is_locked_to_the_next_one(
    make_caller: Callable[..., Caller], remote_operation: Operation, records: Records, database: FreshDatabase
) -> None:
    caller = make_caller(transactions=TransactionSettings(lock_timeout_ms=50))
    caller.send(remote_operation, BODY, "k")
    records.let_pass("25 hours")
    scope = f"demo key:{database.admin_key[3:19]}"
    with database.connect("superuser") as holder, holder.transaction():
        holder.execute("SELECT coordination.take_advisory_lock('idempotency-scope', %(scope)s)", {"scope": scope})
        counts: Any = prune_idempotency(caller.environment, _Patience())  # pyright: ignore[reportArgumentType]
        assert counts == {"scopes": 1, "pruned": 0, "failed": 1}
    counts = prune_idempotency(caller.environment, _Patience())  # pyright: ignore[reportArgumentType]
    assert counts == {"scopes": 1, "pruned": 1, "failed": 0}


def test_time_zone_of_the_session_changes_nothing(
    server: Server, make_caller: Callable[..., Caller], remote_operation: Operation, records: Records
) -> None:
    settings = {"TimeZone": "Asia/Kolkata", "IntervalStyle": "sql_standard"}
    with server.connect("postgres") as superuser:
        for name, value in settings.items():
            superuser.execute(
                sql.SQL("ALTER ROLE evalward_app SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
        try:
            caller = make_caller()
            first, again = (caller.send(remote_operation, BODY, "k") for _ in range(2))
        finally:
            superuser.execute("ALTER ROLE evalward_app RESET ALL")
    assert (again.content, again.is_replayed) == (first.content, True)
    records.let_pass("23 hours 59 minutes")
    assert make_caller().send(remote_operation, BODY, "k").is_replayed
    records.let_pass("1 minute")
    assert not make_caller().send(remote_operation, BODY, "k").is_replayed
