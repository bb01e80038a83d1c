"""PostgreSQL: one connection per Lambda environment, tenant transactions in psycopg's pipeline mode.

A transaction begins with `BEGIN ISOLATION LEVEL READ COMMITTED` and `scheduler_app.begin_tenant(...)`, which sets
tenant and time-outs for it alone. In pipeline mode both travel with the first statement whose rows are read, and the
last statements travel with `COMMIT`: a write that reads once costs two round trips.

A connection that has died (a thawed environment, a failover) is replaced before a transaction begins, never inside one.
"""

import select
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, cast

import psycopg
from psycopg import Connection, Cursor, IsolationLevel, pq, sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row

from coordination.errors import DatabaseUnavailableError, OutcomeUnknownError
from coordination.queries import load_queries
from coordination.settings import Settings, TransactionSettings
from coordination.wake_ups import WakeUp

INSTALLATION = "-"
"""The tenant of routes that belong to no project."""

# A socket that is silent for longer is asked once before it is trusted: a NAT may have forgotten it without a word.
_TRUSTED_IDLE_SECONDS = 30.0
_CONNECT_TIMEOUT_SECONDS = 5
_BEGIN_TENANT = "SELECT scheduler_app.begin_tenant(%(tenant)s, %(lock_ms)s, %(statement_ms)s)"

type Query = LiteralString | sql.SQL
type Params = Mapping[str, Any]


class Transaction:
    """An open transaction of one tenant.

    Store functions take it, none commits. Statements are sent when rows are read or the transaction ends: an error of
    a statement that returns no rows shows at the next read or at the commit.

    Parameters
    ----------
    connection
        The environment's connection, in pipeline mode, inside the transaction.
    tenant
        Project id, or `-`.
    """

    def __init__(self, connection: Connection[DictRow], tenant: str) -> None:
        self.connection = connection
        self.tenant = tenant
        self.wake_ups: list[WakeUp] = []
        self.woken: list[Cursor[DictRow]] = []
        self.is_commit_sent = False

    def submit(self, query: Query, params: Params | None = None) -> Cursor[DictRow]:
        """Send a statement without waiting; read the cursor later, at the latest after the transaction."""
        return self.connection.execute(query, params)

    def fetch_one(self, query: Query, params: Params | None = None) -> DictRow | None:
        """Return the first row, or None. One round trip with all that was submitted before."""
        return self.submit(query, params).fetchone()

    def fetch_all(self, query: Query, params: Params | None = None) -> list[DictRow]:
        """Return all rows. One round trip with all that was submitted before."""
        return self.submit(query, params).fetchall()

    def wake(self, wake_up: WakeUp) -> None:
        """Write a wake-up into the outbox, in this transaction; its message goes out after the commit.

        A second wake-up for the same work makes the first one due again instead of adding a row.
        """
        self.submit(
            load_queries("wake_ups")["insert_wake_up"],
            {
                "queue": wake_up.queue,
                "project": wake_up.project,
                "kind": wake_up.kind,
                "ref_id": wake_up.ref_id,
                "delay_seconds": wake_up.delay_seconds,
                "is_punctual": wake_up.is_punctual,
            },
        )
        self.wake_ups.append(wake_up)

    def wake_all(self, query: Query, params: Params) -> None:
        """Send a statement that writes wake-ups without delay and returns them (queue, kind, project, ref_id).

        Costs no round trip: the rows are read after the commit, when their messages go out.
        """
        self.woken.append(self.submit(query, params))


class Database:
    """The environment's one connection and the transactions on it.

    Parameters
    ----------
    load_conninfo
        Returns a libpq connection string; `True` asks for fresh credentials.
    limits
        Time-outs of every transaction.
    after_commit
        Called with the wake-ups of a transaction that has committed. It must not raise: the rows are the truth, and
        the minute pulse sends what was not sent.
    """

    def __init__(
        self,
        load_conninfo: Callable[[bool], str],
        limits: TransactionSettings,
        after_commit: Callable[[Sequence[WakeUp]], object],
    ) -> None:
        self._load_conninfo = load_conninfo
        self._limits = limits
        self._after_commit = after_commit
        self._connection: Connection[DictRow] | None = None
        self._used_at = 0.0

    @contextmanager
    def transaction(
        self,
        tenant: str,
        *,
        is_read: bool = False,
        first: tuple[Query, Params] | None = None,
        statement_seconds: float | None = None,
    ) -> Generator[Transaction]:
        """Run the body in one transaction of a tenant and commit; an exception rolls everything back.

        Parameters
        ----------
        tenant
            Project id, or `-`.
        is_read
            Whether the body writes nothing, so that a lost COMMIT leaves nothing unknown.
        first
            A statement to send instead of the call of `begin_tenant`, which it makes itself; its parameters are
            completed with `tenant`, `lock_ms` and `statement_ms`.
        statement_seconds
            Longest run of one statement (> 0) where less time is left than the settings allow.

        Raises
        ------
        DatabaseUnavailableError
            No connection, or a lock or statement time-out. Nothing was written.
        OutcomeUnknownError
            The connection was lost after COMMIT was sent.
        """
        connection = self._live_connection()
        transaction = Transaction(connection, tenant)
        # Entered and left by hand: its BEGIN and COMMIT are then queued for the packets of the statements beside them,
        # where `connection.transaction()` would wait for each.
        block = psycopg.Transaction(connection)
        try:
            with connection.pipeline():
                block.__enter__()
                query, params = first or (_BEGIN_TENANT, {})
                limits = {"lock_ms": self._limits.lock_timeout_ms, "statement_ms": self._limits.statement_timeout_ms}
                if statement_seconds is not None:
                    limits["statement_ms"] = max(1, min(limits["statement_ms"], int(statement_seconds * 1000)))
                connection.execute(query, {"tenant": tenant, **limits, **params})
                yield transaction
                # Before it is: the line may be cut when it has gone out and not all that came back has been read.
                transaction.is_commit_sent = not is_read
                block.__exit__(None, None, None)
        except BaseException as error:
            if block.status is block.Status.ACTIVE:
                block.__exit__(type(error), error, error.__traceback__)
            self._roll_back(connection)
            if isinstance(error, psycopg.Error):
                cause = _first_error(error)
                raise _translate(cause, is_commit_sent=transaction.is_commit_sent) from cause
            raise
        self._used_at = time.monotonic()
        wake_ups = transaction.wake_ups + [WakeUp(**row) for cursor in transaction.woken for row in cursor]
        if wake_ups:
            self._after_commit(wake_ups)

    def fetch_one(self, query: Query, params: Params | None = None) -> DictRow | None:
        """Read one row of the global tables in autocommit: one round trip, no tenant.

        Raises
        ------
        DatabaseUnavailableError
            No connection.
        """
        return next(iter(self.fetch_all(query, params)), None)

    def fetch_all(self, query: Query, params: Params | None = None) -> list[DictRow]:
        """Run one statement on the global tables in autocommit: one round trip, no tenant.

        Raises
        ------
        DatabaseUnavailableError
            No connection.
        """
        connection = self._live_connection()
        try:
            cursor = connection.execute(query, params)
            rows = cursor.fetchall() if _has_rows(cursor) else []
        except psycopg.Error as error:
            self._roll_back(connection)
            raise _translate(error, is_commit_sent=False) from error
        self._used_at = time.monotonic()
        return rows

    def close(self) -> None:
        """Close the connection; the next use opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _live_connection(self) -> Connection[DictRow]:
        if self._connection is not None and not self._is_alive(self._connection):
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _is_alive(self, connection: Connection[DictRow]) -> bool:
        if connection.closed or connection.info.transaction_status != pq.TransactionStatus.IDLE:
            return False
        # An idle server says nothing: bytes to read mean that it has said good-bye.
        if select.select([connection.fileno()], [], [], 0)[0]:
            return False
        if time.monotonic() - self._used_at > _TRUSTED_IDLE_SECONDS:
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:
                return False
        return True

    def _connect(self) -> Connection[DictRow]:
        try:
            return self._open(self._load_conninfo(False))
        except psycopg.OperationalError as error:
            if "password authentication failed" not in str(error):
                raise _translate(error, is_commit_sent=False) from error
        # The secret may have been rotated since it was read.
        try:
            return self._open(self._load_conninfo(True))
        except psycopg.OperationalError as error:
            raise _translate(error, is_commit_sent=False) from error

    def _open(self, conninfo: str) -> Connection[DictRow]:
        connection = Connection[DictRow].connect(
            conninfo,
            autocommit=True,
            # Named prepared statements break behind a transaction pooler; 0 would mean "always prepare".
            prepare_threshold=None,
            row_factory=cast("Any", dict_row),
            connect_timeout=_CONNECT_TIMEOUT_SECONDS,
            keepalives_idle=30,
            tcp_user_timeout=20_000,
            application_name="evalward",
        )
        connection.isolation_level = IsolationLevel.READ_COMMITTED
        self._used_at = time.monotonic()
        return connection

    def _roll_back(self, connection: Connection[DictRow]) -> None:
        """Leave the connection idle, or drop it when that cannot be had."""
        try:
            if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()
        if connection.closed:
            self._connection = None


def connection_string(settings: Settings, read_secret: Callable[[str, bool], dict[str, Any]], *, is_fresh: bool) -> str:
    """Make the libpq connection string from the settings.

    Parameters
    ----------
    settings
        `database_url` wins; else `database_secret_arn` names a secret with JSON host, port, dbname, username, password;
        `database_host` wins over its host.
    read_secret
        Reads a JSON secret; its second argument asks for a fresh copy.
    is_fresh
        Whether cached credentials have been refused.

    Raises
    ------
    DatabaseUnavailableError
        Neither setting is there.
    """
    if settings.database_url is not None:
        return settings.database_url.get_secret_value()
    if settings.database_secret_arn is None:
        raise DatabaseUnavailableError("Set EVALWARD_DATABASE_SECRET_ARN or EVALWARD_DATABASE_URL.")
    secret = read_secret(settings.database_secret_arn, is_fresh)
    return make_conninfo(
        host=settings.database_host or secret["host"],
        port=secret["port"],
        dbname=secret["dbname"],
        user=secret["username"],
        password=secret["password"],
    )


def _has_rows(cursor: Cursor[DictRow]) -> bool:
    # `cursor.description` says it too, and makes an object of every column first.
    return cursor.pgresult is not None and cursor.pgresult.status == pq.ExecStatus.TUPLES_OK


def _first_error(error: psycopg.Error) -> psycopg.Error:
    """Return what aborted a pipeline, not what the statements behind it, COMMIT among them, were told of it."""
    while isinstance(error, psycopg.errors.PipelineAborted) and isinstance(error.__context__, psycopg.Error):
        error = error.__context__
    return error


def _translate(error: psycopg.Error, *, is_commit_sent: bool) -> Exception:
    """Name the situation behind a driver error; what a routine raises by its own SQLSTATE passes unchanged."""
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.QueryCanceled):
        return DatabaseUnavailableError(
            "The database did not answer in time; nothing was written. Try again.", retry_after_seconds=1
        )
    # A class in which the server tells that it has rolled back: a deadlock, no room, no memory, a limit.
    is_rolled_back = (error.sqlstate or "").startswith(("40", "53", "54")) and error.sqlstate != "40003"
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        if is_commit_sent and not is_rolled_back:
            return OutcomeUnknownError(
                "The connection was lost while the write was being committed. Repeat it with the same "
                "Idempotency-Key; without a key, look first whether it happened.",
                retry_after_seconds=1,
            )
        return DatabaseUnavailableError(
            "The database cannot be reached; nothing was written. Try again.", retry_after_seconds=1
        )
    return error
