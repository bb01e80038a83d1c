"""The project `demo` with a bucket of traces, its API, the pulse of sources and their pulls; time is moved in rows."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from coordination.clock import Deadline
from coordination.environment import Environment
from run_evaluation.evaluate_shard import evaluate_shard
from run_evaluation.finish_run import finish_run
from run_evaluation.plan_run import plan_run
from scheduled_pull.pull_source import pull_source
from scheduled_pull.remove_snapshot import remove_snapshot
from scheduled_pull.send_due_sources import send_due_sources

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, Reply

SOURCES = "/v1/projects/demo/sources"
MICROSECOND = timedelta(microseconds=1)


def invocation(seconds: float = 110.0) -> Deadline:
    return Deadline(time.monotonic() + seconds)


def nanoseconds(instant: datetime) -> str:
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return str((instant - epoch) // MICROSECOND * 1000)


def attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}


@dataclass
class World:
    """The project `demo` and all that works for it.

    Attributes
    ----------
    service
        The API.
    environment
        Of the workers.
    database
        To look into, and to move time in.
    put
        Puts an object into the bucket.
    """

    service: Api
    environment: Environment
    database: FreshDatabase
    put: Callable[[str, bytes], None]
    numbers: list[int] = field(default_factory=lambda: [0])
    ticks: list[datetime] = field(default_factory=list[datetime])

    def body(self, source_id: str = "nightly", **fields: Any) -> dict[str, Any]:
        """Return the request for an hourly source."""
        return {
            "id": source_id,
            "connector": "otlp_s3",
            "location": "s3://evalward-test/traces/demo/",
            "schedule": {"cron": f"{self.last_tick().minute} * * * *"},
            "window": {"seconds": 3600, "settle_seconds": 0},
            "evaluators": [{"name": "length"}],
            **fields,
        }

    def create(self, source_id: str = "nightly", **fields: Any) -> dict[str, Any]:
        """Create a source and return it."""
        reply = self.service.post(SOURCES, self.body(source_id, **fields))
        assert reply.status == 201, reply.json
        return reply.json

    def act(self, path: str, body: Any = None, **options: Any) -> Reply:
        """Post to a source."""
        return self.service.call("POST", f"{SOURCES}/{path}", body, **options)

    def read(self, source_id: str = "nightly") -> Any:
        """Return a source as the API shows it."""
        return self.service.get(f"{SOURCES}/{source_id}").json

    def windows(self, source_id: str = "nightly") -> list[Any]:
        """Return the ledger, oldest tick first."""
        return self.service.get(f"{SOURCES}/{source_id}/windows", query="limit=200").json["items"][::-1]

    def now(self) -> datetime:
        """Return the database's time."""
        return self.database.look_up("SELECT clock_timestamp() AS now")

    def last_tick(self) -> datetime:
        """Return the last tick of an hourly source; no other one comes while a test runs."""
        if not self.ticks:
            self.ticks.append(self.now().replace(second=0, microsecond=0) - timedelta(minutes=30))
        return self.ticks[0]

    def set_cursor(self, instant: datetime, source_id: str = "nightly") -> None:
        """Move a source's cursor, and make it look."""
        self.database.look(
            "UPDATE scheduler.schedules SET cursor_at = %(at)s WHERE id = %(id)s", {"at": instant, "id": source_id}
        )
        self.make_due(source_id)

    def make_due(self, source_id: str = "nightly") -> None:
        """Let time pass until the source is to be looked at, and no retry is held back."""
        self.database.look(
            "UPDATE coordination.wake_ups SET due_at = clock_timestamp(), sent_at = NULL WHERE ref_id = %(id)s",
            {"id": source_id},
        )
        self.database.look("UPDATE evals.source_windows SET next_attempt_at = clock_timestamp()"
                           " WHERE next_attempt_at IS NOT NULL")  # fmt: skip

    def add_trace(self, start: datetime, *, key: str | None = None, **options: Any) -> str:
        """Put a file with one trace into the bucket and return the trace's id."""
        trace_id, spans = self.make_spans(start, **options)
        self.add_file(spans, key=key, at=start)
        return trace_id

    def make_spans(
        self, start: datetime, *, output: str = "an answer", seconds: float = 1.0, trace_id: str = "", **changes: Any
    ) -> tuple[str, list[dict[str, Any]]]:
        """Make a root and a tool's span below it; changes are members of the root."""
        self.numbers[0] += 1
        trace_id = trace_id or f"{self.numbers[0]:032x}"
        end = start + timedelta(seconds=seconds)
        root = {
            "traceId": trace_id,
            "spanId": f"{self.numbers[0]:08x}00000001",
            "parentSpanId": "",
            "name": "chat",
            "startTimeUnixNano": nanoseconds(start),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": [attribute("input.value", "a question"), attribute("output.value", output)],
            **changes,
        }
        child = {
            "traceId": trace_id,
            "spanId": f"{self.numbers[0]:08x}00000002",
            "parentSpanId": root["spanId"],
            "name": "search",
            "startTimeUnixNano": nanoseconds(start),
            "endTimeUnixNano": nanoseconds(end),
            "attributes": [attribute("openinference.span.kind", "TOOL")],
        }
        return trace_id, [root, child]

    def add_file(self, spans: Sequence[Any], *, at: datetime, key: str | None = None, is_zipped: bool = False) -> None:
        """Put spans into a file under the partition of an instant."""
        self.numbers[0] += 1
        document = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": list(spans)}]}]}
        content = orjson.dumps(document) + b"\n"
        partition = at.strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M")
        key = key or f"traces/demo/{partition}/traces_{self.numbers[0]}.json"
        self.put(key, gzip.compress(content) if is_zipped else content)

    def pulse(self) -> int:
        """Let the pulse of sources pass."""
        return send_due_sources(self.environment, invocation())

    def pull(self, source_id: str = "nightly") -> None:
        """Act on the message of a source."""
        pull_source(self.environment, "demo", source_id, invocation())

    def finish_runs(self) -> None:
        """Evaluate all that waits."""
        for _ in range(100):
            rows = self.database.look(
                "SELECT kind, project, ref_id FROM coordination.wake_ups WHERE queue = 'evaluation'"
                " ORDER BY array_position(ARRAY['run', 'shard', 'finish'], kind) LIMIT 1"
            )
            if not rows:
                return
            project, ref_id = rows[0]["project"], rows[0]["ref_id"]
            match rows[0]["kind"]:
                case "run":
                    plan_run(self.environment, project, ref_id)
                case "shard":
                    evaluate_shard(self.environment, project, ref_id, invocation())
                case _:
                    finish_run(self.environment, project, ref_id)
        raise AssertionError("work never ends")

    def remove_snapshots(self) -> None:
        """Act on the messages that remove the snapshots of deleted runs."""
        for row in self.database.look("SELECT ref_id FROM coordination.wake_ups WHERE kind = 'snapshot_removal'"):
            remove_snapshot(self.environment, "demo", row["ref_id"])

    def runs(self) -> list[Any]:
        """Return the project's runs, oldest first."""
        reply = self.service.get("/v1/projects/demo/runs")
        assert reply.status == 200, reply.json
        return reply.json["items"][::-1]

    def stored_keys(self, prefix: str = "snapshots/") -> list[str]:
        """Return the keys in the bucket."""
        return [key for key, _ in self.environment.objects.list_page(prefix, "", 1000)]


@pytest.fixture
def world(
    service: Api,
    environment: Environment,
    database: FreshDatabase,
    bucket: Callable[[str, bytes], None],
    make_project: Callable[..., str],
) -> World:
    """Return the project `demo`."""
    make_project("demo")
    return World(service, environment, database, bucket)
