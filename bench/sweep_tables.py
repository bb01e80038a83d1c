"""B7: the keeper's batches beside one DELETE of as many rows, in a table of one and of ten million rows.

Rows of `scheduler.graph_jobs` that ended one after the other; band after band of 20,000 goes, by turns through the
keeper's own scope sweep (batches of 1,000, each a transaction) and in one statement, each on a vacuumed table, so that
neither walks over what the other has left dead. Beside it: latencies of a batch, a writer that goes on meanwhile, how
long the doctor takes. `EVALWARD_BENCH_ROWS=1000000` measures that size only.
"""

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from bench.keyed_writes import postgres

if TYPE_CHECKING:
    from coordination.environment import Environment
    from psycopg import Connection

NAMES = ("B7",)
SIZES = tuple(int(size) for size in os.environ.get("EVALWARD_BENCH_ROWS", "1000000,10000000").split(","))
BAND = 20_000
ROUNDS = 5
BATCH = 1_000
FILL = """
INSERT INTO scheduler.graph_jobs (tenant_id, id, schedule_id, state, attempts, created_at, updated_at)
SELECT 'bench', gen_random_uuid(), 's', 'completed', 1, now(), %(newest)s - n * (interval '1 hour' / %(band)s)
FROM generate_series(%(first)s, %(last)s) AS n
"""
CLEAN = "VACUUM (INDEX_CLEANUP ON) scheduler.graph_jobs"
ONE_STATEMENT = """
DELETE FROM scheduler.graph_jobs t
WHERE t.tenant_id = 'bench' AND t.state IN ('completed', 'failed', 'canceled') AND t.updated_at < %(before)s
"""


def measure(names: list[str]) -> dict[str, dict[str, Any]]:
    """Measure what is asked for."""
    if "B7" not in names:
        return {}
    taken = {size: _measure_size(size) for size in SIZES}
    smallest, largest = taken[SIZES[0]], taken[SIZES[-1]]
    figures: dict[str, Any] = {
        "ratio": round(min(one["ratio"] for one in taken.values()), 2),
        "median": largest["rows_per_second"],
        "min": largest["slowest"],
        "max": largest["fastest"],
        "floor": largest["floor"],
        "unit": "rows/s",
        "peers": {},
        "batch_latency_ratio": round(largest["batch_ms"] / smallest["batch_ms"], 2) if len(taken) > 1 else None,
        "sizes": {str(size): one for size, one in taken.items()},
        "versions": {"psycopg": version("psycopg"), "postgres": "embedded 18"},
    }
    for size, one in taken.items():
        print(f"{size} rows: {one}")
    return {"B7": figures}


def _measure_size(size: int) -> dict[str, Any]:
    import psycopg
    from aws_lambda_powertools import Logger
    from coordination.environment import make_environment
    from coordination.jobengine.registry import OperationalTable
    from coordination.ports.objects import Objects
    from coordination.ports.secrets import Secrets
    from coordination.settings import JobEngineSettings, RetentionSettings, Settings

    Logger(service="bench", level="ERROR")
    # Age alone decides here.
    OperationalTable.row_budget = _without_row_budget
    with postgres() as superuser_url, psycopg.connect(superuser_url, autocommit=True) as admin:
        newest = _fill(admin, size)
        retention = RetentionSettings(
            batch_size=BATCH, max_batches_per_sweep=10_000, maximum_terminal_rows_per_scope=10_000_000
        )
        settings = Settings(jobengine=JobEngineSettings(retention=retention))

        class NoQueues:
            def send(self, url: str, bodies: object, delay_seconds: int = 0) -> None: ...

        environment = make_environment(settings, NoQueues(), Objects("bench"), Secrets())
        # The oldest band is the last; each round takes the two oldest.
        bands = size // BAND
        ours: list[float] = []
        floor: list[float] = []
        batches: list[float] = []
        edges = iter(range(bands - 1, 0, -1))
        for _ in range(ROUNDS):
            admin.execute(CLEAN)
            ours.append(_sweep(environment, newest, next(edges), batches))
            admin.execute(CLEAN)
            floor.append(_delete(environment, newest, next(edges)))
        quiet, busy = _measure_writer(environment, newest, edges)
        doctor = _measure_doctor(environment)
        environment.database.close()
    rate = [BAND / seconds for seconds in ours]
    floor_rate = [BAND / seconds for seconds in floor]
    return {
        "ratio": round(statistics.median(rate) / statistics.median(floor_rate), 2),
        "rows_per_second": round(statistics.median(rate)),
        "slowest": round(min(rate)),
        "fastest": round(max(rate)),
        "floor": round(statistics.median(floor_rate)),
        "batch_ms": round(statistics.median(batches), 2),
        "batch_p95_ms": round(statistics.quantiles(batches, n=20)[-1], 2),
        "writer_p99_ms_quiet": round(quiet, 2),
        "writer_p99_ms_during_a_sweep": round(busy, 2),
        "writer_p99_ratio": round(busy / quiet, 2),
        "doctor_ms": round(doctor, 1),
    }


def _without_row_budget(self: object, settings: object) -> None: ...


def _fill(admin: "Connection[Any]", size: int) -> datetime:
    """Write the rows and return the time of the newest band."""
    row = admin.execute("SELECT date_trunc('hour', now()) - interval '90 days'").fetchone()
    assert row is not None
    newest: datetime = row[0]
    for first in range(0, size, 500_000):
        params = {"newest": newest, "band": BAND, "first": first, "last": min(size, first + 500_000) - 1}
        admin.execute(FILL, params)
    admin.execute("VACUUM (ANALYZE) scheduler.graph_jobs")
    admin.execute("CHECKPOINT")
    return newest


def _edge(newest: datetime, band: int) -> datetime:
    """Return the time before which the bands from this one on lie."""
    return newest - timedelta(hours=band) + timedelta(hours=1) / BAND / 2


def _sweep(environment: "Environment", newest: datetime, band: int, batches: list[float]) -> float:
    """Let the keeper sweep the scope, and return its seconds; the time of each batch is added to the list."""
    from coordination.clock import Deadline
    from retention_sweep import sweep_scope as sweeping

    started_at = _edge(newest, band) + timedelta(days=90)
    sweep = sweeping.Sweep(started_at)
    ask = sweeping._ask  # pyright: ignore[reportPrivateUsage] - to see single batches

    def timed(given: Any, query: str, params: Any, deadline: Deadline) -> Any:
        start = time.perf_counter()
        row = ask(given, query, params, deadline)
        if query == "expire_graph_jobs" and row["selected"] == BATCH:
            batches.append((time.perf_counter() - start) * 1000)
        return row

    sweeping._ask = timed  # pyright: ignore[reportPrivateUsage]
    try:
        start = time.perf_counter()
        sweeping.sweep_scope(environment, sweep, "bench", Deadline(time.monotonic() + 3600))
        seconds = time.perf_counter() - start
    finally:
        sweeping._ask = ask  # pyright: ignore[reportPrivateUsage]
    if (sweep.deleted, sweep.failed_scope_count) != (BAND, 0):
        raise AssertionError(f"{sweep.deleted} rows deleted instead of {BAND}")
    return seconds


def _delete(environment: "Environment", newest: datetime, band: int) -> float:
    start = time.perf_counter()
    with environment.database.transaction("bench", statement_seconds=3600) as transaction:
        deleted = transaction.submit(ONE_STATEMENT, {"before": _edge(newest, band)})
    seconds = time.perf_counter() - start
    if deleted.rowcount != BAND:
        raise AssertionError(f"{deleted.rowcount} rows deleted instead of {BAND}")
    return seconds


def _measure_writer(environment: "Environment", newest: datetime, edges: Iterator[int]) -> tuple[float, float]:
    """Return the p99 (ms) of a writer's transactions without and with a sweep beside it."""
    with _writing() as quiet:
        time.sleep(5)
    with _writing() as busy:
        until = time.monotonic() + 5
        while time.monotonic() < until and (band := next(edges, None)) is not None:
            _sweep(environment, newest, band, [])
    return statistics.quantiles(quiet, n=100)[-1], statistics.quantiles(busy, n=100)[-1]


@contextmanager
def _writing() -> Generator[list[float]]:
    """Let a process write until the block ends; yields the latencies (ms), there when it has ended."""
    latencies: list[float] = []
    # A process of its own, as writers are: a thread would wait for this one's interpreter.
    command = [sys.executable, "-m", "bench.sweep_tables", "write"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield latencies
        writer.stdin.close()
        latencies += json.loads(writer.stdout.read())


def write() -> None:
    """Insert and complete an assembly, a transaction each, until standard input ends; write the latencies (ms)."""
    import psycopg

    latencies: list[float] = []
    url = os.environ["EVALWARD_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            start = time.perf_counter()
            with connection.transaction():
                connection.execute("SELECT scheduler_app.begin_tenant('bench', 5000, 20000)")
                row = connection.execute(
                    "INSERT INTO scheduler.graph_jobs (tenant_id, id, schedule_id, state, attempts)"
                    " VALUES ('bench', gen_random_uuid(), 's', 'running', 1) RETURNING id"
                ).fetchone()
                connection.execute(
                    "UPDATE scheduler.graph_jobs SET state = 'completed', updated_at = clock_timestamp()"
                    " WHERE tenant_id = 'bench' AND id = %s",
                    row,
                )
            latencies.append((time.perf_counter() - start) * 1000)
    print(json.dumps(latencies))


def _measure_doctor(environment: "Environment") -> float:
    """Return the median time (ms) of the walk through all scopes and the check of retention."""
    from api.doctor.check_retention import check_retention
    from api.doctor.measure_scopes import measure_scopes
    from coordination.clock import Deadline

    environment.database.fetch_all(
        "INSERT INTO coordination.projects (id, created_by) VALUES ('bench', 'bench') ON CONFLICT (id) DO NOTHING"
    )
    # As it is configured without a word: counts are capped at the row budget.
    retention = type(environment.settings.jobengine.retention)()
    jobengine = environment.settings.jobengine.model_copy(update={"retention": retention})
    object.__setattr__(environment, "settings", environment.settings.model_copy(update={"jobengine": jobengine}))
    times: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        check = check_retention(environment, measure_scopes(environment, Deadline(time.monotonic() + 60)))
        times.append((time.perf_counter() - start) * 1000)
        if check.evidence["tables"]["scheduler.graph_jobs"]["expired_rows"] != check.evidence["counted_up_to"]:
            raise AssertionError(check)
    return statistics.median(times)


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    write()
