"""Keyed writes through PgBouncer in transaction mode: more clients than server connections."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from coordination.http.operation import Operation
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.idempotency.conftest import Caller, FakeRemote, Records

pytestmark = pytest.mark.pgbouncer

CLIENTS = 8
WRITES = 60
SERVER_CONNECTIONS = 3
BODY = {"name": "a"}


@pytest.fixture
def pooled_url(database: FreshDatabase) -> Generator[str]:
    """Run PgBouncer in front of the test's database and return the URI that leads through it."""
    binary = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert binary, (
        "pgbouncer is not installed: apt-get install pgbouncer, or leave these out: pytest -m 'not pgbouncer'"
    )
    login = database.server.superuser
    folder = Path(tempfile.mkdtemp(prefix="ew-pooler-", dir="/tmp"))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "users").write_text('"evalward_app" "password of app"\n')
    (folder / "pgbouncer.ini").write_text(
        f"""
[databases]
{database.name} = host={login.host} port={login.port} dbname={database.name}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = {folder / "users"}
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 200
logfile = {folder / "log"}
"""
    )
    as_nobody: dict[str, Any] = {}
    if os.geteuid() == 0:
        # It refuses to run as root.
        entry = pwd.getpwnam("nobody")
        as_nobody = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        for path in (folder, *folder.iterdir()):
            os.chown(path, entry.pw_uid, entry.pw_gid)
    process = subprocess.Popen([binary, "-q", str(folder / "pgbouncer.ini")], stderr=subprocess.DEVNULL, **as_nobody)
    url = make_conninfo(database.app_url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
    try:
        _wait_until_it_answers(url, process, folder / "log")
        yield url
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder)


def _wait_until_it_answers(url: str, process: subprocess.Popen[Any], log: Path) -> None:
    give_up_at = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < give_up_at:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"pgbouncer does not answer:\n{log.read_text()}")


def test_480_keyed_writes_of_8_clients_over_3_connections_meet_no_error(
    pooled_url: str,
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    local_operation: Operation,
    records: Records,
    database: FreshDatabase,
) -> None:
    start = threading.Barrier(CLIENTS)
    callers = [make_caller(url=pooled_url) for _ in range(CLIENTS)]

    def write(number: int) -> Counter[tuple[int, str | None]]:
        start.wait(30)
        seen: Counter[tuple[int, str | None]] = Counter()
        for count in range(WRITES):
            operation = (remote_operation, local_operation)[count % 2]
            answer = callers[number].send(operation, BODY, f"{number}-{count}")
            seen[answer.status, answer.code] += 1
        return seen

    with ThreadPoolExecutor(CLIENTS) as pool:
        seen = sum(pool.map(write, range(CLIENTS)), Counter[tuple[int, str | None]]())
    assert seen == {(201, None): CLIENTS * WRITES}
    assert remote.effects == {"a": CLIENTS * WRITES // 2}
    assert database.look_up("SELECT count(*) FROM coordination.projects WHERE id <> 'demo'") == CLIENTS * WRITES // 2
    assert records.states() == ["completed"] * (CLIENTS * WRITES)
    backends = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'evalward_app' AND datname = current_database()"
    assert database.look_up(backends) <= SERVER_CONNECTIONS
    assert database.look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


def test_concurrent_duplicates_through_the_pooler_have_one_effect(
    pooled_url: str,
    make_caller: Callable[..., Caller],
    remote: FakeRemote,
    remote_operation: Operation,
    local_operation: Operation,
    database: FreshDatabase,
) -> None:
    callers = [make_caller(url=pooled_url) for _ in range(24)]
    start = threading.Barrier(len(callers))

    def send(caller: Caller) -> list[str]:
        start.wait(30)
        answers = [caller.send(operation, BODY, operation.id) for operation in (remote_operation, local_operation)]
        return [answer.code or ("replayed" if answer.is_replayed else operation.id)
                for operation, answer in zip((remote_operation, local_operation), answers, strict=True)]  # fmt: skip

    with ThreadPoolExecutor(len(callers)) as pool:
        seen = Counter(outcome for outcomes in pool.map(send, callers) for outcome in outcomes)
    assert (seen.pop("test.remote"), seen.pop("test.local")) == (1, 1)
    assert set(seen) <= {"replayed", "idempotency_in_progress"}
    assert remote.effects == {"a": 1}
    assert database.look_up("SELECT count(*) FROM coordination.projects WHERE id <> 'demo'") == 1
    assert database.look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
