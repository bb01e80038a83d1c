"""B6: a run of 100,000 records with three deterministic evaluators, from its creation to its report.

Creation goes through the handler of `api`; planning, shards and the report through the handler of `run_evaluation`, in
processes of their own that are handed one message at a time, as Lambda and SQS do. The bucket is a folder: what S3
takes is not ours. PostgreSQL waits for its disk. The floor computes the same scores in a plain loop with the same
evaluators and writes the same rows with one COPY into a table of the same columns and key.

Rounds take turns with the floor, so that a busy machine meets both alike; the ratio is of processor time (all processes
and PostgreSQL's), which others' work disturbs least; the time on the clock stands beside it.
"""

import hashlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Condition, Thread
from typing import Any, cast

from bench.keyed_writes import Context, make_api_key, postgres

NAMES = ("B6",)
RECORDS = 100_000
SHARD_RECORDS = 1000
ROUNDS = 5
EVALUATORS = [
    {"name": "exact_match", "params": {"ignore_case": True}},
    {"name": "contains", "params": {"ignore_case": True}},
    {"name": "token_f1", "params": {}},
]
ANSWERS = ["The capital is Paris.", "paris", "Lyon, I believe", "Paris is the capital of France", "I do not know"]
PROJECT = "bench"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
COLUMNS = "tenant_id, run_id, record_no, trial, evaluator, record, status, score, passed, error"


def make_dataset(folder: Path) -> tuple[str, int]:
    """Write a canonical object of RECORDS rows with its manifest; returns its digest and size."""
    from coordination.datasets import manifest_key, object_key
    from records.canonical_json import canonical_json
    from records.manifest import Manifest, Notes, ShardStart, Source, encode_manifest

    chance = random.Random(6)
    rows = [
        canonical_json(
            {
                "id": f"r{number:06d}",
                "input": f"Question {number}: what is the capital of France?",
                "output": chance.choice(ANSWERS),
                "reference": "Paris",
            }
        )
        + b"\n"
        for number in range(RECORDS)
    ]
    content, starts, offset = b"".join(rows), [], 0
    for number, row in enumerate(rows):
        if number % SHARD_RECORDS == 0:
            starts.append(ShardStart(offset, number))
        offset += len(row)
    sha256 = hashlib.sha256(content).hexdigest()
    manifest = Manifest(sha256, len(content), len(rows), starts, Notes(), Source("upload", "jsonl", len(content)))
    for key, body in (
        (object_key(PROJECT, sha256), content),
        (manifest_key(PROJECT, sha256), encode_manifest(manifest)),
    ):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return sha256, len(content)


def register_dataset(superuser_url: str, sha256: str, size: int) -> None:
    """Put the project and the dataset's version into the database."""
    import psycopg
    from coordination.datasets import object_key

    with psycopg.connect(superuser_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO coordination.projects (id, created_by) VALUES (%s, 'bench')",
            [PROJECT],
        )
        connection.execute(
            "INSERT INTO packs.packs (tenant_id, name, version, sha256, path, records, bytes, source, created_by)"
            " VALUES (%s, 'questions', 1, %s, %s, %s, %s, 'upload', 'bench')",
            [PROJECT, sha256, object_key(PROJECT, sha256), RECORDS, size],
        )


def work() -> None:
    """Be an environment of the function: a line of standard input is a message, a line of output its answer."""
    import run_evaluation.handler
    from coordination.environment import make_environment
    from coordination.ports.objects import ObjectNotFoundError, Objects
    from coordination.ports.secrets import Secrets
    from coordination.settings import load_settings

    class Folder(Objects):
        """A bucket that is a folder."""

        def read(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
            try:
                with (Path(self.bucket) / key).open("rb") as file:
                    file.seek(start or 0)
                    return file.read() if end is None else file.read(end - (start or 0))
            except FileNotFoundError as error:
                raise ObjectNotFoundError from error

    sent: list[Any] = []

    class Queues:
        """Keeps what was sent for the answer."""

        def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None:  # noqa: ARG002
            sent.extend(json.loads(body) for body in bodies if not delay_seconds)

    settings = load_settings()
    environment = make_environment(settings, Queues(), Folder(settings.storage.bucket), Secrets())
    run_evaluation.handler.load_environment = lambda: environment
    print("ready", flush=True)
    for line in sys.stdin:
        sent.clear()
        record = {"messageId": "m", "body": line, "attributes": {}, "eventSource": "aws:sqs"}
        answer = run_evaluation.handler.lambda_handler({"Records": [record]}, cast("Any", Context()))
        assert not answer["batchItemFailures"], answer
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"sent": sent, "cpu": usage.ru_utime + usage.ru_stime}), flush=True)


class Worker:
    """A process that works on one message at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.evaluate_run"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.cpu = 0.0
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # The function's own log lines are JSON with a level.
            if '"level"' not in line:
                return line.strip()
        raise SystemExit("a worker ended")

    def act(self, message: Any) -> list[Any]:
        """Work on a message and return those that it led to."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self._read())
        self.cpu = answer["cpu"]
        return answer["sent"]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def drain(workers: Sequence[Worker], first: Any) -> dict[str, float]:
    """Let the workers work until no message is left; returns when each kind of message ended last, in seconds."""
    pending, ended = deque([first]), dict[str, float]()
    changed, busy, started = Condition(), [0], time.perf_counter()

    def serve(worker: Worker) -> None:
        while True:
            with changed:
                changed.wait_for(lambda: pending or not busy[0])
                if not pending:
                    changed.notify_all()
                    return
                message = pending.popleft()
                busy[0] += 1
            sent = worker.act(message)
            with changed:
                busy[0] -= 1
                # Deliveries are not this function's.
                pending.extend(one for one in sent if one["kind"] in ("run", "shard", "finish"))
                ended[message["kind"]] = time.perf_counter() - started
                changed.notify_all()

    threads = [Thread(target=serve, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ended


def postgres_cpu(superuser_url: str) -> float:
    """Return the processor seconds of a server's processes, those that have ended included."""
    import psycopg

    with psycopg.connect(superuser_url) as connection:
        (pid,) = cast("tuple[int]", connection.execute("SELECT pg_backend_pid()").fetchone())
    ticks = 0
    stats = {path.name: path for path in Path("/proc").iterdir() if path.name.isdigit()}
    fields: dict[int, list[str]] = {}
    for name, path in stats.items():
        try:
            fields[int(name)] = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
    # The backend that was asked is a child of the postmaster.
    parent = int(fields[pid][1]) if pid in fields else find_postmaster(superuser_url)
    for number, values in fields.items():
        if number == parent:
            ticks += sum(int(value) for value in values[11:15])
        elif int(values[1]) == parent:
            ticks += int(values[11]) + int(values[12])
    return ticks / TICKS_PER_SECOND


def find_postmaster(superuser_url: str) -> int:
    """Return the pid that the server wrote into its data directory."""
    import psycopg

    with psycopg.connect(superuser_url) as connection:
        (folder,) = cast("tuple[str]", connection.execute("SHOW data_directory").fetchone())
    return int((Path(folder) / "postmaster.pid").read_text().splitlines()[0])


def open_api(key: str) -> Any:
    """Return a function that creates a run through the handler of `api` and answers with its id."""
    import api.handler
    from coordination.environment import make_environment
    from coordination.http import border
    from coordination.ports.objects import Objects
    from coordination.ports.secrets import Secrets
    from coordination.settings import load_settings

    class NoQueues:
        """The dispatcher hands the first message out itself."""

        def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None: ...

    settings = load_settings()
    environment = make_environment(settings, NoQueues(), Objects(settings.storage.bucket), Secrets())
    cast("Any", border).load_environment = lambda: environment

    def create() -> str:
        path = f"/v1/projects/{PROJECT}/runs"
        event: dict[str, Any] = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"authorization": f"Bearer {key}", "content-type": "application/json"},
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "stage": "$default",
                "http": {"method": "POST", "path": path, "protocol": "HTTP/1.1"},
            },
            "body": json.dumps({"name": "bench", "dataset": {"name": "questions"}, "evaluators": EVALUATORS}),
            "isBase64Encoded": False,
        }
        answer = api.handler.lambda_handler(event, cast("Any", Context()))
        assert answer["statusCode"] == 202, answer
        return str(json.loads(answer["body"])["id"])

    return create


def run_floor(superuser_url: str, folder: Path, sha256: str) -> dict[str, float]:
    """Score every record in a plain loop and write the rows with one COPY; returns seconds by kind."""
    import psycopg
    from coordination.datasets import object_key
    from records.evaluators import catalogue
    from records.record import read_records

    run_id = uuid.uuid4()
    with psycopg.connect(superuser_url) as connection:
        cpu, started = time.process_time(), time.perf_counter()
        server = postgres_cpu(superuser_url)
        records = read_records((folder / object_key(PROJECT, sha256)).read_bytes())
        scorers = [
            (str(one["name"]), catalogue.build(str(one["name"]), cast("Any", one["params"]))) for one in EVALUATORS
        ]
        scored_at = 0.0
        rows: list[tuple[Any, ...]] = []
        for number, record in enumerate(records):
            for name, scorer in scorers:
                score = scorer(record)
                rows.append(
                    (
                        PROJECT,
                        run_id,
                        number,
                        1,
                        name,
                        record.id,
                        score.status,
                        score.score,
                        score.passed,
                        score.message,
                    )
                )
        scored_at = time.perf_counter() - started
        with connection.cursor().copy(f"COPY bench_results ({COLUMNS}) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["text", "uuid", "int4", "int2", "text", "text", "text", "float8", "bool", "text"])
            for row in rows:
                copy.write_row(row)
        connection.commit()
        seconds = time.perf_counter() - started
        cpu = time.process_time() - cpu + postgres_cpu(superuser_url) - server
    return {"seconds": seconds, "cpu": cpu, "scoring": scored_at}


def run_ours(superuser_url: str, create: Callable[[], str], workers: Sequence[Worker]) -> dict[str, float]:
    """Create a run and work until it has its report; returns seconds by kind."""
    cpu = time.process_time() + sum(worker.cpu for worker in workers) + postgres_cpu(superuser_url)
    started = time.perf_counter()
    run = create()
    ended = drain(workers, {"kind": "run", "project": PROJECT, "ref_id": run})
    seconds = time.perf_counter() - started
    cpu = time.process_time() + sum(worker.cpu for worker in workers) + postgres_cpu(superuser_url) - cpu
    check_and_delete(superuser_url, run)
    return {"seconds": seconds, "cpu": cpu, "shards": ended["shard"] - ended["run"], "plan": ended["run"]}


def check_and_delete(superuser_url: str, run: str) -> None:
    """Insist that the run has every result, and make room for the next."""
    import psycopg

    with psycopg.connect(superuser_url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT state, results_scored, (SELECT count(*) FROM evals.run_results WHERE run_id = r.id)"
            " FROM evals.runs r WHERE id = %s",
            [run],
        ).fetchone()
        assert row == ("succeeded", RECORDS * len(EVALUATORS), RECORDS * len(EVALUATORS)), row
        connection.execute("TRUNCATE evals.run_results")
        connection.execute("TRUNCATE bench_results")
        connection.execute("CHECKPOINT")


def measure(_names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the figures of B6."""
    import psycopg

    os.environ |= {"POWERTOOLS_LOG_LEVEL": "ERROR", "POWERTOOLS_SERVICE_NAME": "bench"}
    taken: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as bucket, postgres() as url:
        os.environ |= {
            "EVALWARD_STORAGE__BUCKET": bucket,
            "EVALWARD_QUEUES__EVALUATION_URL": "https://queue",
            "EVALWARD_QUEUES__DELIVERY_URL": "https://queue",
        }
        sha256, size = make_dataset(Path(bucket))
        register_dataset(url, sha256, size)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE bench_results (LIKE evals.run_results INCLUDING ALL)")
        create = open_api(make_api_key(url))
        workers = [Worker(), Worker()]
        try:
            for _ in range(ROUNDS):
                for who in ("floor", "one", "two"):
                    done = (
                        run_floor(url, Path(bucket), sha256)
                        if who == "floor"
                        else run_ours(url, create, workers[: 1 if who == "one" else 2])
                    )
                    taken.setdefault(who, []).append(done)
                    print(who, {name: round(value, 2) for name, value in done.items()}, file=sys.stderr)
        finally:
            for worker in workers:
                worker.close()
    return {"B6": describe(taken)}


def describe(taken: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Make the figures of what was taken."""

    def median(who: str, name: str) -> float:
        return statistics.median(one[name] for one in taken[who])

    seconds = [one["seconds"] for one in taken["one"]]
    scale = statistics.median(
        one["shards"] / two["shards"] for one, two in zip(taken["one"], taken["two"], strict=True)
    )
    wall = statistics.median(
        one["seconds"] / two["seconds"] for one, two in zip(taken["one"], taken["two"], strict=True)
    )
    wall_ratio = round(median("one", "seconds") / median("floor", "seconds"), 3)
    return {
        "ratio": round(median("one", "cpu") / median("floor", "cpu"), 3),
        "wall_ratio": wall_ratio,
        "scale": round(scale, 2),
        "scale_end_to_end": round(wall, 2),
        "median": round(statistics.median(seconds), 2),
        "min": round(min(seconds), 2),
        "max": round(max(seconds), 2),
        "floor": round(median("floor", "seconds"), 2),
        "unit": "s",
        "peers": {},
        "note": f"The ratio is of processor time; on the clock {wall_ratio}; two workers do the shards "
        f"{scale:.2f} times as fast as one, all of the run {wall:.2f} times ({median('two', 'seconds'):.2f} s)",
        "versions": {package: version(package) for package in ("psycopg", "orjson", "msgspec")},
    }


if __name__ == "__main__":
    work()
