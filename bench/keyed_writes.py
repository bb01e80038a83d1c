"""B1, B2, B3: `POST /v1/projects` through the function's handler on a PostgreSQL that waits for its disk.

What is compared takes turns call by call (B1, B3) or phase by phase (B2), so that a busy machine meets all alike. Every
contestant calls the same handler: authentication, validation, the project, its audit event, one commit that waits for
the disk. The peer keeps its records in a Redis on the same disk, reached by a Unix socket as the database is.

B1 also shows processor time, of this process and of its server process: it says the same on a busy machine.
"""

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAMES = ("B1", "B2", "B3")
ROUNDS = 6
# Of 1024: a scope fills up from empty to half full while it is measured.
WRITES_IN_SCOPE = 400
CLIENTS = 16
PHASE_SECONDS = 3.0


@contextmanager
def postgres() -> Iterator[str]:
    """Run a migrated server with fsync and synchronous_commit on; yields the superuser's URL."""
    import boto3
    from evalward_local.children import Children
    from evalward_local.postgres import EmbeddedPostgres
    from moto import mock_aws
    from schema_migration.migrate_database import migrate_database
    from schema_migration.settings import MigrationSettings

    os.environ |= {"AWS_DEFAULT_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    folder = Path(tempfile.mkdtemp(prefix="ew-bench-", dir="/tmp"))
    folder.chmod(0o755)
    children = Children()
    server = EmbeddedPostgres(folder / "db", folder / "s", children, durable=True)
    try:
        login = server.start("bench")
        with mock_aws():
            client = boto3.client("secretsmanager")
            for name, user in {"admin": "postgres", "owner": "evalward_owner", "app": "evalward_app"}.items():
                password = login.password if name == "admin" else f"password-of-{name}"
                secret = {
                    "host": login.host,
                    "port": login.port,
                    "dbname": "bench",
                    "username": user,
                    "password": password,
                }
                client.create_secret(Name=name, SecretString=json.dumps(secret))
            client.create_secret(Name="admin-key", SecretString="{}")
            migrate_database(
                MigrationSettings(
                    admin_secret_arn="admin",
                    owner_secret_arn="owner",
                    app_secret_arn="app",
                    admin_key_secret_arn="admin-key",
                )
            )
        os.environ["EVALWARD_DATABASE_URL"] = (
            f"postgresql://evalward_app:password-of-app@/bench?host={login.host}&port={login.port}"
        )
        yield login.url
    finally:
        server.stop()
        children.end_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis() -> Iterator[Any]:
    """Run a Redis that writes every command to its disk before it answers; yields a client."""
    from redis import Redis

    binary = shutil.which("redis-server")
    if binary is None:
        raise SystemExit("B3 needs redis-server (Debian: apt-get install redis-server)")
    # On the disk of the database.
    folder = Path(tempfile.mkdtemp(prefix="ew-bench-redis-", dir="/tmp"))
    socket = str(folder / "socket")
    options = ["--port", "0", "--unixsocket", socket, "--dir", str(folder), "--save", ""]
    options += ["--appendonly", "yes", "--appendfsync", "always"]
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
    client = Redis(unix_socket_path=socket)
    try:
        while not _answers(client):
            time.sleep(0.05)
        assert client.config_get("append*") | {"appendonly": "yes", "appendfsync": "always"} == client.config_get(
            "append*"
        )
        yield client
    finally:
        client.close()
        process.terminate()
        process.wait()
        shutil.rmtree(folder)


def _answers(client: Any) -> bool:
    from redis.exceptions import ConnectionError as NoConnectionError

    try:
        return bool(client.ping())
    except NoConnectionError:
        return False


def make_api_key(superuser_url: str) -> str:
    """Make an API key, and so a scope, and return its text."""
    import psycopg
    from coordination.access import generate_token
    from psycopg.types.json import Jsonb

    text, token = generate_token()
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO coordination.api_keys (id, name, secret_sha256, grants, created_by)"
            " VALUES (%s, 'bench', %s, %s, 'bench')",
            [token.key_id, token.secret_sha256, Jsonb([{"project": "*", "role": "owner"}])],
        )
    return text


class Context:
    """Lambda's context object."""

    aws_request_id = "bench"
    function_name = "bench"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:000000000000:function:bench"

    def get_remaining_time_in_millis(self) -> int:
        return 29_000


def make_event(api_key: str, idempotency_key: str | None) -> dict[str, Any]:
    """Make the event of one `POST /v1/projects`."""
    headers = {"authorization": f"Bearer {api_key}", "content-type": "application/json", "accept": "*/*"}
    if idempotency_key is not None:
        headers["idempotency-key"] = idempotency_key
    path = "/v1/projects"
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": "",
        "headers": headers,
        "requestContext": {
            "requestId": str(uuid.uuid4()),
            "stage": "$default",
            "http": {"method": "POST", "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
        },
        "isBase64Encoded": False,
        "body": json.dumps({"id": f"p-{uuid.uuid4()}", "description": "a project to measure with"}),
    }


type Handler = Callable[[dict[str, Any], Any], dict[str, Any]]


@dataclass
class Contestant:
    """One way of writing, and the milliseconds its calls took."""

    name: str
    handler: Handler
    is_keyed: bool


def processor_seconds() -> float:
    """Return the processor time of this process and of its server process."""
    from coordination.environment import load_environment

    server = load_environment().database.fetch_one("SELECT pg_backend_pid() AS pid")
    spent = Path(f"/proc/{server['pid'] if server else 'self'}/schedstat").read_text().split()[0]
    return time.process_time() + int(spent) / 1e9


def compare_processor_time(contestants: tuple[Contestant, Contestant], superuser_url: str) -> float:
    """Return how many times the processor time of the second the first takes: median of short blocks in turns."""
    ratios: list[float] = []
    for number in range(ROUNDS * 4):
        spent: dict[str, float] = {}
        for one in contestants if number % 2 else contestants[::-1]:
            key = make_api_key(superuser_url)
            events = [make_event(key, str(uuid.uuid4()) if one.is_keyed else None) for _ in range(50)]
            begin = processor_seconds()
            for event in events:
                one.handler(event, Context())
            spent[one.name] = processor_seconds() - begin
        ratios.append(spent[contestants[0].name] / spent[contestants[1].name])
    return statistics.median(ratios)


def time_calls(contestants: list[Contestant], superuser_url: str, pairs: int) -> dict[str, list[float]]:
    """Let the contestants take turns in random order; every one works in a scope of its own."""
    taken: dict[str, list[float]] = {one.name: [] for one in contestants}
    keys = {one.name: make_api_key(superuser_url) for one in contestants}
    for _ in range(pairs):
        for one in random.sample(contestants, len(contestants)):
            event = make_event(keys[one.name], str(uuid.uuid4()) if one.is_keyed else None)
            begin = time.perf_counter()
            answer = one.handler(event, Context())
            taken[one.name].append((time.perf_counter() - begin) * 1000)
            if answer["statusCode"] != 201:
                raise SystemExit(f"{one.name}: {answer}")
    return taken


def compare(contestants: list[Contestant], superuser_url: str) -> dict[str, dict[str, Any]]:
    """Measure several rounds and summarize each contestant."""
    rounds = [time_calls(contestants, superuser_url, WRITES_IN_SCOPE) for _ in range(ROUNDS + 1)][1:]
    summary: dict[str, dict[str, Any]] = {}
    for one in contestants:
        medians = [statistics.median(taken[one.name]) for taken in rounds]
        every = sorted(value for taken in rounds for value in taken[one.name])
        summary[one.name] = {
            "rounds": medians,
            "p50": round(statistics.median(every), 3),
            "p99": round(every[int(len(every) * 0.99)], 3),
            "min": round(min(medians), 3),
            "max": round(max(medians), 3),
        }
    return summary


def powertools_handler(handler: Handler, client: Any) -> Handler:
    """Wrap a handler in Powertools' idempotency with its Redis persistence."""
    from aws_lambda_powertools.utilities.idempotency import IdempotencyConfig, idempotent
    from aws_lambda_powertools.utilities.idempotency.persistence.redis import RedisCachePersistenceLayer

    config = IdempotencyConfig(
        event_key_jmespath='headers."idempotency-key"',
        payload_validation_jmespath="body",
        raise_on_no_idempotency_key=True,
    )

    @idempotent(config=config, persistence_store=RedisCachePersistenceLayer(client=client))
    def guarded(event: dict[str, Any], context: Any) -> dict[str, Any]:
        headers = {name: value for name, value in event["headers"].items() if name != "idempotency-key"}
        return handler(event | {"headers": headers}, context)

    return guarded


def ratio_of(numerator: dict[str, Any], denominator: dict[str, Any]) -> dict[str, Any]:
    """Return the ratio of two summaries, and its spread over the rounds."""
    ratios = [a / b for a, b in zip(numerator["rounds"], denominator["rounds"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
    }


def measure_latency(names: list[str], superuser_url: str) -> dict[str, Any]:
    """B1 and B3."""
    from api.handler import lambda_handler

    handler: Any = lambda_handler
    measured: dict[str, Any] = {}
    keyed, unkeyed = Contestant("keyed", handler, True), Contestant("unkeyed", handler, False)
    if "B1" in names:
        summary = compare([keyed, unkeyed], superuser_url)
        measured["B1"] = ratio_of(summary["keyed"], summary["unkeyed"]) | {
            "median": summary["keyed"]["p50"],
            "min": summary["keyed"]["min"],
            "max": summary["keyed"]["max"],
            "floor": summary["unkeyed"]["p50"],
            "p99": summary["keyed"]["p99"],
            "floor_p99": summary["unkeyed"]["p99"],
            "processor_ratio": round(compare_processor_time((keyed, unkeyed), superuser_url), 3),
            "unit": "ms",
            "peers": {},
        }
    if "B3" in names:
        with redis() as client:
            peer = Contestant("powertools", powertools_handler(handler, client), True)
            summary = compare([keyed, peer, unkeyed], superuser_url)
            redis_version = client.info("server")["redis_version"]
        measured["B3"] = ratio_of(summary["powertools"], summary["keyed"]) | {
            "median": summary["keyed"]["p50"],
            "min": summary["keyed"]["min"],
            "max": summary["keyed"]["max"],
            "floor": summary["unkeyed"]["p50"],
            "unit": "ms",
            "peers": {"Powertools on Redis": f"{summary['powertools']['p50']} ms"},
            "versions": {"redis-server": redis_version, "redis": version("redis")},
        }
    return measured


def measure_throughput(superuser_url: str) -> dict[str, Any]:
    """B2: clients are processes, each with a scope of its own; phases of keyed and unkeyed writes take turns."""
    command = [sys.executable, "-m", "bench.keyed_writes", "client"]
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(CLIENTS)
    ]

    def phase(kind: str, seconds: float) -> float:
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(f"{kind} {seconds} {make_api_key(superuser_url)}\n")
            client.stdin.flush()
        counts = []
        for client in clients:
            assert client.stdout is not None
            counts.append(float(client.stdout.readline()))
        return sum(counts)

    try:
        phase("keyed", 1.0)
        phase("unkeyed", 1.0)
        rates: dict[str, list[float]] = {"keyed": [], "unkeyed": []}
        for number in range(ROUNDS):
            for kind in ("keyed", "unkeyed") if number % 2 else ("unkeyed", "keyed"):
                rates[kind].append(phase(kind, PHASE_SECONDS))
    finally:
        for client in clients:
            assert client.stdin is not None
            client.stdin.close()
            client.wait(30)
    keyed, unkeyed = ({"rounds": rates[kind]} for kind in ("keyed", "unkeyed"))
    return ratio_of(keyed, unkeyed) | {
        "median": round(statistics.median(rates["keyed"])),
        "min": round(min(rates["keyed"])),
        "max": round(max(rates["keyed"])),
        "floor": round(statistics.median(rates["unkeyed"])),
        "unit": "writes/s",
        "peers": {},
    }


def run_client() -> None:
    """Write when told to: lines `kind seconds api-key` in, writes per second out."""
    from api.handler import lambda_handler

    handler: Any = lambda_handler
    for line in sys.stdin:
        kind, seconds, api_key = line.split()
        begin, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - begin) < float(seconds):
            answer = handler(make_event(api_key, str(uuid.uuid4()) if kind == "keyed" else None), Context())
            if answer["statusCode"] != 201:
                raise SystemExit(answer)
            count += 1
        print(count / passed, flush=True)


def measure(names: list[str]) -> dict[str, Any]:
    """Measure the named benchmarks."""
    with postgres() as superuser_url:
        import psycopg

        with psycopg.connect(superuser_url) as connection:
            (server,) = connection.execute("SHOW server_version").fetchone() or ("",)
            settings = [connection.execute(f"SHOW {name}").fetchone() for name in ("synchronous_commit", "fsync")]  # pyright: ignore[reportArgumentType]
        assert settings == [("on",), ("on",)], settings
        measured = measure_latency(names, superuser_url)
        if "B2" in names:
            measured["B2"] = measure_throughput(superuser_url)
    versions = {name: version(name) for name in ("psycopg", "aws-lambda-powertools")}
    versions |= {"PostgreSQL": server, "Python": sys.version.split()[0]}
    return {name: one | {"versions": versions | one.get("versions", {})} for name, one in measured.items()}


if __name__ == "__main__" and sys.argv[1:] == ["client"]:
    run_client()
