# ruff: noqa: PT012 - a transaction is the block that raises
from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from coordination.database import Database
from coordination.environment import Environment, load_environment
from coordination.errors import DatabaseUnavailableError, ProblemError
from coordination.settings import TransactionSettings, load_settings
from coordination.wake_ups import WakeUp
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import RecordedQueues, Wire

LIMITS = TransactionSettings()
BEGIN_TENANT = "SELECT scheduler_app.begin_tenant(%s, 5000, 20000)"


def open_database(url: str, limits: TransactionSettings = LIMITS) -> Database:
    return Database(lambda _: url, limits, lambda _: None)


def test_begin_tenant_refuses_repeatable_read(database: FreshDatabase) -> None:
    with database.connect("app") as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(psycopg.Error, match="READ COMMITTED") as caught:
            connection.execute(BEGIN_TENANT, ["demo"])
    assert caught.value.sqlstate == "EW002"


def test_begin_tenant_refuses_autocommit_under_a_role_whose_default_is_repeatable_read(database: FreshDatabase) -> None:
    with psycopg.connect(
        make_conninfo(database.app_url, options="-c default_transaction_isolation=repeatable\\ read"), autocommit=True
    ) as connection:
        with pytest.raises(psycopg.Error) as caught:
            connection.execute(BEGIN_TENANT, ["demo"])
        assert caught.value.sqlstate == "EW002"


@pytest.mark.parametrize("tenant", [None, ""])
def test_begin_tenant_refuses_a_missing_tenant(database: FreshDatabase, tenant: str | None) -> None:
    with database.connect("app") as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(BEGIN_TENANT, [tenant])
    assert caught.value.sqlstate == "EW001"


def test_tenant_and_time_outs_end_with_the_transaction(app: Database) -> None:
    names = ("app.tenant_id", "lock_timeout", "statement_timeout")
    read = "SELECT current_setting(%(a)s) a, current_setting(%(b)s) b, current_setting(%(c)s) c"
    params = dict(zip("abc", names, strict=True))
    with app.transaction("demo") as transaction:
        assert transaction.fetch_one(read, params) == {"a": "demo", "b": "5s", "c": "20s"}
    assert app.fetch_one(read, params) == {"a": "", "b": "0", "c": "0"}


def test_transaction_is_read_committed_whatever_the_default_of_the_role(database: FreshDatabase) -> None:
    url = make_conninfo(database.app_url, options="-c default_transaction_isolation=serializable")
    app = open_database(url)
    with app.transaction("demo") as transaction:
        row = transaction.fetch_one("SELECT current_setting('transaction_isolation') AS isolation")
    app.close()
    assert row == {"isolation": "read committed"}


def test_exception_in_the_body_rolls_back_and_leaves_the_connection_usable(
    app: Database, database: FreshDatabase
) -> None:
    class BodyError(Exception):
        pass

    with pytest.raises(BodyError), app.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "1"))
        raise BodyError
    with app.transaction("demo") as transaction:
        assert transaction.fetch_all("SELECT id FROM coordination.wake_ups") == []
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 0


def test_error_of_an_unread_statement_shows_at_the_commit_and_rolls_back(
    app: Database, database: FreshDatabase
) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation), app.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "1"))
        for _ in range(2):
            transaction.submit("INSERT INTO coordination.projects (id, created_by) VALUES ('twice', 'test')")
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 0
    assert app.fetch_one("SELECT 1 AS alive") == {"alive": 1}


def test_wait_for_a_row_lock_ends_at_the_lock_time_out_as_unavailable(database: FreshDatabase) -> None:
    database.look("INSERT INTO coordination.projects (id, created_by) VALUES ('demo', 'test')")
    app = open_database(database.app_url, TransactionSettings(lock_timeout_ms=50))
    lock = "UPDATE coordination.projects SET paused = true WHERE id = 'demo' RETURNING id"
    with database.connect("superuser") as other, other.transaction():
        other.execute(lock)
        with (
            pytest.raises(DatabaseUnavailableError, match="did not answer in time"),
            app.transaction("demo") as transaction,
        ):
            transaction.fetch_one(lock)
    app.close()


def test_server_out_of_reach_is_a_503_with_retry_after(tmp_path: Any) -> None:
    app = open_database(f"postgresql:///nothing?host={tmp_path}")
    with pytest.raises(DatabaseUnavailableError) as caught:
        app.fetch_one("SELECT 1")
    assert caught.value.status == 503
    assert caught.value.retry_after_seconds == 1


def test_dead_connection_is_replaced_before_the_next_transaction(app: Database, database: FreshDatabase) -> None:
    with app.transaction("demo") as transaction:
        first = transaction.fetch_one("SELECT pg_backend_pid() AS pid")
    assert first
    database.look("SELECT pg_terminate_backend(%(pid)s, 5000)", first)
    with app.transaction("demo") as transaction:
        second = transaction.fetch_one("SELECT pg_backend_pid() AS pid")
    assert second
    assert second["pid"] != first["pid"]


def test_connection_that_dies_inside_a_transaction_is_not_replaced_in_it(
    app: Database, database: FreshDatabase
) -> None:
    with pytest.raises(DatabaseUnavailableError), app.transaction("demo") as transaction:
        row = transaction.fetch_one("SELECT pg_backend_pid() AS pid")
        assert row
        transaction.wake(WakeUp("evaluation", "run", "demo", "1"))
        database.look("SELECT pg_terminate_backend(%(pid)s, 5000)", row)
        transaction.fetch_one("SELECT 1 AS never")
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 0
    assert app.fetch_one("SELECT 1 AS alive") == {"alive": 1}


def test_connection_that_went_silent_is_tried_before_it_is_trusted(
    app: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = app.fetch_one("SELECT pg_backend_pid() AS pid")
    assert app._connection is not None
    monkeypatch.setattr("coordination.database._TRUSTED_IDLE_SECONDS", -1.0)
    # The write side is closed without a word from the server: only a question finds out.
    with socket.socket(fileno=socket.dup(app._connection.fileno())) as handle:
        handle.shutdown(socket.SHUT_WR)
    assert app.fetch_one("SELECT pg_backend_pid() AS pid") != first


def test_credentials_are_read_again_after_an_authentication_failure(database: FreshDatabase) -> None:
    wrong = make_conninfo(database.app_url, password="rotated")
    asked: list[bool] = []

    def load(is_fresh: bool) -> str:
        asked.append(is_fresh)
        return database.app_url if is_fresh else wrong

    app = Database(load, LIMITS, lambda _: None)
    assert app.fetch_one("SELECT 1 AS alive") == {"alive": 1}
    assert asked == [False, True]
    app.close()


def test_credentials_that_stay_wrong_are_an_unavailable_database(database: FreshDatabase) -> None:
    app = open_database(make_conninfo(database.app_url, password="wrong"))
    with pytest.raises(DatabaseUnavailableError):
        app.fetch_one("SELECT 1")


def test_no_statement_is_prepared_however_often_it_runs(app: Database) -> None:
    for _ in range(12):
        with app.transaction("demo") as transaction:
            transaction.fetch_one("SELECT %(number)s::integer AS number", {"number": 1})
    assert app.fetch_all("SELECT name FROM pg_prepared_statements") == []


def test_write_that_reads_once_costs_two_round_trips(wired: Environment, wire: Wire) -> None:
    wired.database.fetch_one("SELECT 1 AS connected")
    wire.round_trips = 0
    with wired.database.transaction("demo") as transaction:
        transaction.fetch_one("SELECT 1 AS read")
        transaction.wake(WakeUp("evaluation", "run", "demo", "1", delay_seconds=1))
    assert wire.round_trips == 2


def test_messages_follow_the_commit_and_not_a_roll_back(
    environment: Environment, queues: RecordedQueues, database: FreshDatabase
) -> None:
    seen: list[int] = []
    with environment.database.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "7"))
        transaction.fetch_one("SELECT 1 AS read")
        seen.append(len(queues.sent))
    assert seen == [0]
    ((url, message),) = queues.sent
    assert (url, message["kind"], message["ref_id"]) == ("https://sqs/evaluation", "run", "7")
    with pytest.raises(ZeroDivisionError), environment.database.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "8"))
        raise ZeroDivisionError
    assert len(queues.sent) == 1


def test_message_that_cannot_be_sent_is_given_back_to_the_pulse(
    environment: Environment, queues: RecordedQueues, database: FreshDatabase
) -> None:
    queues.is_down = True
    with environment.database.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "7"))
    assert database.look_up("SELECT sent_at FROM coordination.wake_ups") is None


def test_committed_write_succeeds_when_neither_queue_nor_database_answer_afterwards(
    environment: Environment, queues: RecordedQueues, database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.is_down = True

    def fail(*_: Any) -> Any:
        raise DatabaseUnavailableError("gone")

    with environment.database.transaction("demo") as transaction:
        transaction.wake(WakeUp("evaluation", "run", "demo", "7"))
        monkeypatch.setattr(environment.database, "fetch_all", fail)
    assert database.look_up("SELECT count(*) FROM coordination.wake_ups") == 1


def test_environment_is_made_of_environment_variables(database: FreshDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALWARD_DATABASE_URL", database.app_url)
    monkeypatch.setenv("EVALWARD_STORAGE__BUCKET", "some-bucket")
    load_settings.cache_clear()
    load_environment.cache_clear()
    environment = load_environment()
    try:
        assert environment.database.fetch_one("SELECT current_user AS name") == {"name": "evalward_app"}
        assert environment.objects.bucket == "some-bucket"
        assert load_environment() is environment
    finally:
        environment.database.close()
        load_settings.cache_clear()
        load_environment.cache_clear()


def test_two_environments_see_each_others_commits_statement_by_statement(
    make_environments: Callable[..., Environment],
) -> None:
    first, second = make_environments(), make_environments()
    count = "SELECT count(*) AS rows FROM coordination.wake_ups"
    with first.database.transaction("demo") as transaction:
        assert transaction.fetch_one(count) == {"rows": 0}
        with second.database.transaction("demo") as other:
            other.wake(WakeUp("evaluation", "run", "demo", "1"))
        assert transaction.fetch_one(count) == {"rows": 1}


def test_transactions_of_two_tenants_on_one_connection_do_not_see_each_other(
    app: Database, make_dataset: Callable[..., str]
) -> None:
    make_dataset("first")
    make_dataset("second", name="other")
    names: list[Sequence[Any]] = []
    for tenant in ("first", "second"):
        with app.transaction(tenant) as transaction:
            names.append([row["name"] for row in transaction.fetch_all("SELECT name FROM packs.packs")])
    assert names == [["questions"], ["other"]]


def test_pool_of_threads_each_with_its_own_database_never_mixes_tenants(
    make_environments: Callable[..., Environment], make_dataset: Callable[..., str]
) -> None:
    for number in range(4):
        make_dataset(f"p{number}", name=f"n{number}")
    mixed: list[ProblemError | list[Any]] = []

    def work(number: int, environment: Environment) -> None:
        for _ in range(10):
            with environment.database.transaction(f"p{number}") as transaction:
                rows = transaction.fetch_all("SELECT name FROM packs.packs")
            if rows != [{"name": f"n{number}"}]:
                mixed.append(rows)

    threads = [threading.Thread(target=work, args=(number, make_environments())) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert mixed == []
