"""A project with a published dataset, and the workers of its runs a step at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from coordination.clock import Deadline
from coordination.datasets import manifest_key, object_key
from coordination.environment import Environment
from evalward_local.target_server import TargetServer
from records.canonical_json import canonical_json
from records.manifest import Manifest, Notes, ShardStart, Source, encode_manifest
from run_evaluation.evaluate_shard import evaluate_shard
from run_evaluation.finish_run import finish_run
from run_evaluation.plan_run import plan_run

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, Reply

RUNS = "/v1/projects/demo/runs"
TABLES = """
SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname IN ('coordination', 'scheduler', 'packs', 'evals')
  AND c.relname <> 'audit_events' ORDER BY 1
"""
BLOCKED = """
SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0 AND query LIKE %(waiting)s
"""
EXACT = [{"name": "exact_match"}]


class Context:
    """Lambda's context of a worker with two minutes left."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds left."""
        return 120_000


@dataclass
class World:
    """The project `demo`, its API and its workers.

    Attributes
    ----------
    service
        The API.
    environment
        Of the workers.
    database
        To look into.
    put
        Puts an object into the bucket.
    """

    service: Api
    environment: Environment
    database: FreshDatabase
    put: Callable[[str, bytes], None]
    make_dataset: Callable[..., str]

    def publish(self, records: Sequence[Mapping[str, Any]], *, shard_records: int = 2, name: str = "questions") -> str:
        """Publish records in shards of so many rows and return the sha256."""
        rows = [canonical_json(dict(record)) + b"\n" for record in records]
        content = b"".join(rows)
        sha256 = hashlib.sha256(content).hexdigest()
        starts = [ShardStart(sum(map(len, rows[:at])), at) for at in range(0, len(rows), shard_records)]
        manifest = Manifest(sha256, len(content), len(rows), starts, Notes(), Source("upload", "jsonl", len(content)))
        self.put(object_key("demo", sha256), content)
        self.put(manifest_key("demo", sha256), encode_manifest(manifest))
        self.make_dataset(name=name, sha256=sha256, records=len(rows), size=len(content))
        return sha256

    def publish_answers(self, outputs: Sequence[Any], **options: Any) -> str:
        """Publish records r0, r1 … whose reference is "yes"."""
        return self.publish(
            [{"id": f"r{at}", "output": output, "reference": "yes"} for at, output in enumerate(outputs)], **options
        )

    def create(self, *, evaluators: Sequence[Mapping[str, Any]] = EXACT, name: str = "questions", **fields: Any) -> str:
        """Create a run and return its id."""
        body = {"name": "nightly", "dataset": {"name": name}, "evaluators": list(evaluators), **fields}
        reply = self.service.post(RUNS, body)
        assert reply.status == 202, reply.json
        return reply.json["id"]

    def waiting(self) -> list[tuple[str, str]]:
        """Return kind and reference of the wake-ups there are, runs before shards before finishes."""
        rows = self.database.look(
            "SELECT w.kind, w.ref_id FROM coordination.wake_ups w"
            " LEFT JOIN scheduler.policy_run_jobs j ON j.id::text = w.ref_id"
            " ORDER BY array_position(ARRAY['run', 'shard', 'finish'], w.kind), j.shard_no"
        )
        return [(row["kind"], row["ref_id"]) for row in rows]

    def work(self, kind: str, ref_id: str) -> None:
        """Act on one message."""
        match kind:
            case "run":
                plan_run(self.environment, "demo", ref_id)
            case "shard":
                evaluate_shard(self.environment, "demo", ref_id, Deadline.of_invocation(Context()))
            case _:
                finish_run(self.environment, "demo", ref_id)

    def work_once(self) -> tuple[str, str]:
        """Act on the first wake-up there is."""
        first = self.waiting()[0]
        self.work(*first)
        return first

    def work_all(self) -> None:
        """Act on wake-ups until there are none."""
        for _ in range(100):
            if not self.waiting():
                return
            self.work_once()
        raise AssertionError("work never ends")

    def run_to_end(self, **options: Any) -> str:
        """Create a run, evaluate it and return its id."""
        run = self.create(**options)
        self.work_all()
        return run

    def read(self, run: str) -> Any:
        """Return the run as the API shows it."""
        return self.service.get(f"{RUNS}/{run}").json

    def results(self, run: str) -> list[Any]:
        """Return all results of a run."""
        return self.service.get(f"{RUNS}/{run}/results", query="limit=200").json["items"]

    def act(self, run: str, action: str, **options: Any) -> Reply:
        """Post an action on a run."""
        return self.service.call("POST", f"{RUNS}/{run}/{action}", **options)

    def tables_that_mention(self, text: str) -> dict[str, int]:
        """Return the tables with a row in which a text stands anywhere, and how many such rows.

        Audit events are left out: they are evidence and outlive what they tell of.
        """
        found: dict[str, int] = {}
        for table in [row["name"] for row in self.database.look(TABLES)]:
            statement = f"SELECT count(*) FROM {table} AS t WHERE t::text LIKE %(text)s"
            if count := self.database.look_up(statement, {"text": f"%{text}%"}):
                found[table] = count
        return found

    def wait_until_blocked(self, waiting: str) -> None:
        """Return when a backend in whose statement this stands waits for a lock."""
        for _ in range(100_000):
            if self.database.look_up(BLOCKED, {"waiting": f"%{waiting}%"}):
                return
        raise AssertionError("nobody waits")

    def delete(self, run: str, **options: Any) -> Reply:
        """Delete a run."""
        return self.service.call("DELETE", f"{RUNS}/{run}", **options)


@pytest.fixture
def endpoint() -> Generator[TargetServer]:
    """Run an endpoint that makes outputs."""
    with TargetServer() as endpoint:
        yield endpoint


@pytest.fixture
def world(
    service: Api,
    environment: Environment,
    database: FreshDatabase,
    bucket: Callable[[str, bytes], None],
    make_project: Callable[..., str],
    make_dataset: Callable[..., str],
) -> World:
    """Return the project `demo` with a bucket."""
    make_project("demo")
    return World(service, environment, database, bucket, make_dataset)
