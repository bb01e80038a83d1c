"""One PostgreSQL server for all tests of a session, and a migrated, empty database for each test that asks.

The server is the embedded one of the local stack. Roles and schema are made by the deploy hook's own use case, so what
is tested is what a deployment makes.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import boto3
import orjson
import psycopg
import pytest
from evalward_local.children import Children
from evalward_local.postgres import EmbeddedPostgres, Login
from moto import mock_aws
from psycopg import Connection, sql
from psycopg.rows import DictRow, dict_row
from schema_migration.migrate_database import migrate_database
from schema_migration.settings import MigrationSettings

TEMPLATE = "evalward_template"
ROLES = {"owner": "evalward_owner", "app": "evalward_app"}
# Another server than the embedded one: the folder with its `postgres`. Read here: the environment is cleaned below.
BINARIES = os.environ.get("EVALWARD_TEST_POSTGRES")
_numbers = itertools.count(1)

# A shell ignores Ctrl-C for what it starts in the background, and all that is started from there inherits it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A copy of the template costs half a second on a busy machine, deleting a test's few rows costs milliseconds.
EMPTY_DATABASE = """
DO $$
DECLARE
    emptied regclass;
BEGIN
    PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
    SET LOCAL session_replication_role = replica;
    FOR emptied IN
        SELECT c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('coordination', 'scheduler', 'packs', 'evals')
          AND c.relname NOT IN ('schema_migrations', 'table_classes', 'api_keys')
    LOOP
        EXECUTE format('DELETE FROM %s', emptied);
    END LOOP;
    DELETE FROM coordination.api_keys WHERE created_by <> 'deployment';
    UPDATE coordination.api_keys SET expires_at = NULL;
END
$$
"""


@dataclass(frozen=True)
class Server:
    """The session's server.

    Attributes
    ----------
    superuser
        Where it is and who its superuser is.
    binaries
        Folder of `pg_dump` and its like.
    """

    superuser: Login
    binaries: Path

    def url(self, dbname: str, role: str) -> str:
        """Return the libpq URI of a database for `superuser`, `owner` or `app`."""
        user, password = (
            ("postgres", self.superuser.password) if role == "superuser" else (ROLES[role], f"password of {role}")
        )
        host = quote(self.superuser.host, safe="")
        return f"postgresql://{user}:{quote(password)}@/{dbname}?host={host}&port={self.superuser.port}"

    def connect(self, dbname: str, role: str = "superuser") -> Connection[DictRow]:
        """Open a connection in autocommit whose rows are dictionaries."""
        connection = psycopg.connect(self.url(dbname, role), autocommit=True, row_factory=cast("Any", dict_row))
        return cast("Connection[DictRow]", connection)

    def create_database(self, name: str, template: str = "template0") -> None:
        """Make a database out of another."""
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        with self.connect("postgres") as connection:
            connection.execute(statement)

    def drop_database(self, name: str) -> None:
        """Remove a database, whoever is still connected."""
        with self.connect("postgres") as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def migrate(self, dbname: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Run the deploy hook's use case on a database.

        Returns
        -------
        (dict, dict)
            Its result, and the JSON of the secret with the first key (empty when none was made).
        """
        with mock_aws():
            client = boto3.client("secretsmanager")
            users = {"admin": "postgres", **ROLES}
            for name, user in users.items():
                password = self.superuser.password if name == "admin" else f"password of {name}"
                secret = {
                    "host": self.superuser.host,
                    "port": self.superuser.port,
                    "dbname": dbname,
                    "username": user,
                    "password": password,
                }
                # As RDS writes the one it manages: no host, no port, no database.
                held = {key: secret[key] for key in ("username", "password")} if name == "admin" else secret
                client.create_secret(Name=name, SecretString=orjson.dumps(held).decode())
            client.create_secret(Name="admin-key", SecretString="{}")
            settings = MigrationSettings(
                admin_secret_arn="admin",
                owner_secret_arn="owner",
                app_secret_arn="app",
                admin_key_secret_arn="admin-key",
            )
            result = migrate_database(settings)
            return result, orjson.loads(client.get_secret_value(SecretId="admin-key")["SecretString"])


@dataclass(frozen=True)
class FreshDatabase:
    """A migrated database, for one test at a time.

    Attributes
    ----------
    server
        The server it is on.
    name
        Its name.
    admin_key
        Text of the installation's first API key.
    """

    server: Server
    name: str
    admin_key: str

    @property
    def app_url(self) -> str:
        """The libpq URI the functions log in with."""
        return self.server.url(self.name, "app")

    def connect(self, role: str) -> Connection[DictRow]:
        """Open a connection as `superuser`, `owner` or `app`."""
        return self.server.connect(self.name, role)

    def look(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Run a statement as the superuser, who sees all tenants, and return the rows if there are any."""
        with self.connect("superuser") as connection:
            cursor = connection.execute(cast("Any", statement), params)
            return cursor.fetchall() if cursor.description else []

    def look_up(self, statement: str, params: Mapping[str, Any] | None = None) -> Any:
        """Run a statement as the superuser and return the only value of its only row."""
        (row,) = self.look(statement, params)
        (value,) = row.values()
        return value


@pytest.fixture(scope="session", autouse=True)
def no_aws_account() -> Generator[None]:
    """Keep boto3 from finding credentials, a region or an endpoint of whoever runs the tests."""
    given = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "EVALWARD_"))}
    for name in given:
        del os.environ[name]
    made = {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    os.environ |= made
    yield
    for name in made:
        os.environ.pop(name, None)
    os.environ |= given


@pytest.fixture(scope="session")
def server() -> Generator[Server]:
    """Start PostgreSQL; a watchdog ends it should this process be killed."""
    folder = Path(tempfile.mkdtemp(prefix="ew-", dir="/tmp"))
    folder.chmod(0o755)
    children = Children()
    postgres = EmbeddedPostgres(folder / "db", folder / "s", children, durable=False)
    if BINARIES:
        postgres.binaries = Path(BINARIES)
    try:
        yield Server(postgres.start("postgres"), postgres.binaries)
    finally:
        postgres.stop()
        children.end_all()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def template(server: Server) -> FreshDatabase:
    """Migrate one database; no test connects to it, all are copies of it."""
    server.create_database(TEMPLATE)
    _, admin_key = server.migrate(TEMPLATE)
    return FreshDatabase(server, TEMPLATE, admin_key["key"])


@pytest.fixture
def make_database(server: Server) -> Generator[Callable[[str], str]]:
    """Return a function that makes a database out of a template and answers with its name."""
    names: list[str] = []

    def make(template: str = "template0") -> str:
        name = f"test_{next(_numbers)}"
        server.create_database(name, template)
        names.append(name)
        return name

    yield make
    for name in names:
        server.drop_database(name)


@pytest.fixture(scope="session")
def shared_database(template: FreshDatabase) -> FreshDatabase:
    """Make the copy that tests share one after the other."""
    name = "test_shared"
    template.server.create_database(name, template.name)
    return FreshDatabase(template.server, name, template.admin_key)


@pytest.fixture
def database(shared_database: FreshDatabase) -> FreshDatabase:
    """Return a migrated database with the first API key and nothing else in it.

    Emptied before each test, not after: what a failed test leaves can be looked at. A test that changes the schema
    takes a copy of its own from `make_database`.
    """
    shared_database.look(EMPTY_DATABASE)
    return shared_database
