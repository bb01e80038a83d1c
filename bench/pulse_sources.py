"""B8: the pulse of sources, 10,000 of them, none or 100 due, beside a bare look at the index of their wake-ups.

Rounds take turns. What the pulse does for its lease (take and give back) counts as part of it. Beside it: how long the
decision on an every-minute source takes that is 400 days behind.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

from bench.keyed_writes import postgres

NAMES = ("B8",)
SOURCES = 10_000
DUE = 100
ROUNDS = 60
BARE = """
SELECT w.queue, w.kind, w.project, w.ref_id FROM coordination.wake_ups w
WHERE w.kind = 'source_tick' AND w.due_at <= statement_timestamp()
ORDER BY w.due_at, w.id LIMIT 500
"""


class _Queues:
    """A queue port that takes everything."""

    def send(self, _url: str, _bodies: Sequence[str], _delay_seconds: int = 0) -> None:
        """Take the bodies."""


def measure(names: list[str]) -> dict[str, dict[str, Any]]:
    """Measure what is asked for."""
    if "B8" not in names:
        return {}
    decision = _measure_decision()
    with postgres() as superuser_url:
        idle, busy, bare_idle, bare_busy, statements = _measure_pulse(superuser_url)
    figures = _ratio(idle, bare_idle) | {
        "peers": {f"{DUE} due": round(statistics.median(busy) / statistics.median(bare_busy), 2)},
        "unit": "ms",
        "due_ms": round(statistics.median(busy), 2),
        "floor_due_ms": round(statistics.median(bare_busy), 2),
        "statements_when_none_is_due": statements,
        "decision_400_days_behind_ms": decision,
        "versions": {"psycopg": version("psycopg"), "postgres": "embedded 18"},
    }
    print(f"a source that is 400 days behind is decided in {decision} ms")
    return {"B8": figures}


def _ratio(ours: list[float], floor: list[float]) -> dict[str, Any]:
    return {
        "ratio": round(statistics.median(ours) / statistics.median(floor), 2),
        "median": round(statistics.median(ours), 2),
        "min": round(min(ours), 2),
        "max": round(max(ours), 2),
        "floor": round(statistics.median(floor), 2),
    }


def _measure_pulse(superuser_url: str) -> tuple[list[float], list[float], list[float], list[float], int]:
    import psycopg
    from aws_lambda_powertools import Logger
    from coordination.clock import Deadline
    from coordination.environment import make_environment
    from coordination.ports.objects import Objects
    from coordination.ports.secrets import Secrets
    from coordination.settings import QueueSettings, Settings
    from scheduled_pull.send_due_sources import send_due_sources

    # The function's border makes it: loggers of modules are its children.
    Logger(level="ERROR")
    settings = Settings(queues=QueueSettings(pull_url="https://queue.example.com/pull"))
    environment = make_environment(settings, _Queues(), Objects("bench"), Secrets())
    count = 0
    fetch_all = environment.database.fetch_all

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return fetch_all(*arguments)

    with psycopg.connect(superuser_url, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, due_at)"
            " SELECT 'pull', 'bench', 'source_tick', 'source-' || n, clock_timestamp() + interval '1 day'"
            " FROM generate_series(1, %s) AS n",
            [SOURCES],
        )
        admin.execute("ANALYZE coordination.wake_ups")

        def pulse() -> float:
            return _time(lambda: send_due_sources(environment, Deadline(time.monotonic() + 60)))

        def bare() -> float:
            return _time(lambda: fetch_all(BARE))

        pulse(), bare()
        idle, bare_idle = _take_turns(pulse, bare, lambda: None)

        def make_due() -> None:
            admin.execute(
                "UPDATE coordination.wake_ups SET due_at = clock_timestamp() - interval '1 second', sent_at = NULL"
                " WHERE ref_id IN (SELECT 'source-' || n FROM generate_series(1, %s) AS n)",
                [DUE],
            )
            admin.execute("VACUUM coordination.wake_ups")

        busy, bare_busy = _take_turns(pulse, bare, make_due)
        admin.execute("UPDATE coordination.wake_ups SET due_at = clock_timestamp() + interval '1 day', sent_at = NULL")
        object.__setattr__(environment.database, "fetch_all", counted)
        pulse()
    environment.database.close()
    return idle, busy, bare_idle, bare_busy, count


def _take_turns(
    one: Callable[[], float], other: Callable[[], float], before: Callable[[], None]
) -> tuple[list[float], list[float]]:
    ones: list[float] = []
    others: list[float] = []
    for _ in range(ROUNDS):
        before()
        # The bare look changes nothing, so it comes first and both see the same rows.
        others.append(other())
        ones.append(one())
    return ones, others


def _measure_decision() -> float:
    from coordination.cron import Ticks, parse_cron
    from scheduled_pull.decide_tick import Timing, decide_tick

    timing = Timing(Ticks(parse_cron("* * * * *")), timedelta(0), timedelta(seconds=120))
    now = datetime(2026, 11, 30, 12, 0, 30, tzinfo=UTC)
    cursor = now - timedelta(days=400)
    return round(min(_time(lambda: decide_tick(timing, cursor, now, None)) for _ in range(50)), 3)


def _time(act: Callable[[], Any]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000
