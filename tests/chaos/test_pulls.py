"""A pull is killed at each of its steps, and its window becomes one run.

A stack of its own: its functions may call a trace store on this machine, which holds a call until it is told to go on,
and reach the bucket through a proxy that does so too. The steps inside the database are held by a lock that the step
needs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.stack_client import StackClient

from .held_bucket import HeldBucket, Moment

FUNCTION = "ScheduledPullFunction"
MINUTE = timedelta(minutes=1)
TRACES = ("one", "two")
MANIFEST, RECORDS = ".manifest.json", ".jsonl"
# A pull writes the manifest, then the records; with how many objects are there then.
SNAPSHOT_STEPS: list[tuple[str, Moment, int]] = [
    (MANIFEST, "before", 0),
    (MANIFEST, "after", 1),
    (RECORDS, "before", 1),
    (RECORDS, "after", 2),
]
# What each step of the last transaction waits for, in the order of the steps.
LAST_STEPS = {
    "the lease is confirmed": "SELECT 1 FROM coordination.leases"
    " WHERE name = 'source_tick:' || %(project)s || ':hourly'",
    "the cursor moves": "SELECT 1 FROM scheduler.schedules WHERE tenant_id = %(project)s",
    "the run is inserted": "SELECT 1 FROM coordination.projects WHERE id = %(project)s",
    "the window is completed": "SELECT 1 FROM evals.source_windows WHERE tenant_id = %(project)s",
    "the assembly is completed": "SELECT 1 FROM scheduler.graph_jobs WHERE tenant_id = %(project)s",
    "the next tick is planned": "SELECT 1 FROM coordination.wake_ups"
    " WHERE project = %(project)s AND kind = 'source_tick'",
}


class HeldStore:
    """Answers as Phoenix does and can hold the calls for one kind of page.

    Attributes
    ----------
    port
        Where it listens on this machine.
    start
        Of its traces.
    traces
        Their ids.
    held
        `traces`, `spans` or nothing.
    """

    def __init__(self) -> None:
        self.start = datetime.now(UTC)
        self.traces: tuple[str, ...] = TRACES
        self.held = ""
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                kind = self.path.partition("?")[0].rpartition("/")[2]
                if kind == store.held:
                    store.arrived.release()
                    assert store.go.wait(60)
                data = [{"trace_id": name} for name in store.traces] if kind == "traces" else store.list_spans()
                content = json.dumps({"data": data, "next_cursor": None}).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    # The caller was killed.
                    self.close_connection = True

            def log_message(self, format: str, *_arguments: Any) -> None:  # noqa: A002
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self.server.server_address[1])

    def list_spans(self) -> list[dict[str, Any]]:
        """Return a span a trace."""
        end = self.start + timedelta(seconds=1)
        return [
            {
                "context": {"trace_id": name, "span_id": name},
                "start_time": self.start.isoformat(),
                "end_time": end.isoformat(),
                "attributes": {"input.value": "q", "output.value": "a"},
            }
            for name in self.traces
        ]

    def hold(self, kind: str) -> None:
        """Hold calls for a kind of page from now on."""
        self.go.clear()
        self.held = kind

    def wait_for_call(self) -> None:
        """Return when a call is held."""
        assert self.arrived.acquire(timeout=60)

    def let_go(self) -> None:
        """Answer what is held and hold nothing more."""
        self.held = ""
        self.go.set()


@pytest.fixture(scope="module")
def held() -> Generator[HeldStore]:
    store = HeldStore()
    with store.server:
        thread = threading.Thread(target=store.server.serve_forever)
        thread.start()
        yield store
        store.let_go()
        store.server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def held_bucket() -> Generator[HeldBucket]:
    with HeldBucket() as bucket:
        yield bucket


def write_template(folder: Path, bucket: HeldBucket) -> Path:
    """Write the project's template, with the pulls reaching S3 through a proxy."""
    before, name, after = (PROJECT_FOLDER / "template.yaml").read_text().partition(f"\n  {FUNCTION}:\n")
    settings = "Variables: *RuntimeSettings"
    assert name
    assert settings in after
    after = after.replace(settings, f"Variables: {{<<: *RuntimeSettings, AWS_ENDPOINT_URL_S3: '{bucket.url}'}}", 1)
    for part in ("functions", "layers"):
        (folder / part).symlink_to(PROJECT_FOLDER / part)
    template = folder / "template.yaml"
    template.write_text(before + name + after)
    return template


@pytest.fixture(scope="module")
def client(
    held: HeldStore, held_bucket: HeldBucket, tmp_path_factory: pytest.TempPathFactory
) -> Generator[StackClient]:
    allowed = json.dumps({"*": [f"127.0.0.1:{held.port}"]})
    template = write_template(tmp_path_factory.mktemp("template"), held_bucket)
    folder = tmp_path_factory.mktemp("stack")
    with (
        running_stack(folder, template=template, environments=2, parameters={"OutgoingAllowedHosts": allowed}) as stack,
        StackClient(stack) as client,
    ):
        held_bucket.store_url = stack.aws_endpoint_url
        yield client


@pytest.fixture
def store(held: HeldStore) -> Generator[HeldStore]:
    """Return the store with its two traces, holding nothing before and after the test."""
    held.let_go()
    held.traces = TRACES
    yield held
    held.let_go()


@pytest.fixture
def bucket(held_bucket: HeldBucket) -> Generator[HeldBucket]:
    """Return the proxy before the bucket, holding nothing before and after the test."""
    held_bucket.let_go()
    yield held_bucket
    held_bucket.let_go()


class DueSource:
    """The hourly source of a project of its own, whose tick is due.

    Attributes
    ----------
    project
        Its project.
    """

    def __init__(self, client: StackClient, store: HeldStore, project: str) -> None:
        self._client = client
        self.project = project
        self._tick = datetime.now(UTC).replace(second=0, microsecond=0) - 20 * MINUTE
        store.start = self._tick - MINUTE
        client.expect(201, "POST", "/v1/projects", json={"id": project})
        body = {
            "id": "hourly",
            "connector": "phoenix",
            "endpoint": f"http://127.0.0.1:{store.port}",
            "location": "p",
            "schedule": {"cron": f"{self._tick.minute} * * * *"},
            "window": {"seconds": 3600, "settle_seconds": 0},
            "evaluators": [{"name": "length"}],
        }
        client.expect(201, "POST", f"/v1/projects/{project}/sources", json=body)
        self._look("UPDATE scheduler.schedules SET cursor_at = %(at)s WHERE tenant_id = %(project)s")
        self._make_due()

    def _look(self, statement: str) -> list[Any]:
        return self._client.look(statement, {"project": self.project, "at": self._tick - MINUTE})

    def _make_due(self) -> None:
        self._look(
            "UPDATE coordination.wake_ups SET due_at = clock_timestamp(), sent_at = NULL"
            " WHERE project = %(project)s AND kind = 'source_tick'"
        )

    def pulse(self) -> None:
        """Let the pulse send the source."""
        self._client.fire("ScheduledPullPulse")

    def kill(self) -> None:
        """Kill the function at its work."""
        assert self._client.kill(FUNCTION) >= 1

    def check_wholly_or_not_at_all(self) -> None:
        """Insist that the run, all it owns and the cursor are there together or not at all."""
        working = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'evalward' AND state <> 'idle'"
        self._client.wait(lambda: not self._client.look(working) or None, "the end of what the dead had begun")
        (row,) = self._look(
            """
            SELECT (SELECT count(*) FROM evals.runs WHERE tenant_id = %(project)s) AS runs,
                   (SELECT count(*) FROM evals.run_snapshots WHERE tenant_id = %(project)s) AS snapshots,
                   (SELECT count(*) FROM evals.source_windows
                     WHERE tenant_id = %(project)s AND state = 'done') AS windows,
                   (SELECT count(*) FROM scheduler.runs
                     WHERE tenant_id = %(project)s AND state <> 'planning') AS ticks,
                   (SELECT count(*) FROM scheduler.schedules
                     WHERE tenant_id = %(project)s AND cursor_at > %(at)s) AS cursors
            """
        )
        assert len(set(row.values())) == 1, row

    def recover(self) -> None:
        """Let the time pass after which the pulse sends the source again."""
        self._look(
            "UPDATE coordination.leases SET expires_at = clock_timestamp()"
            " WHERE name = 'source_tick:' || %(project)s || ':hourly' AND expires_at IS NOT NULL"
        )
        self._look(
            "UPDATE evals.source_windows SET next_attempt_at = clock_timestamp()"
            " WHERE tenant_id = %(project)s AND next_attempt_at IS NOT NULL"
        )
        self._make_due()
        self.pulse()
        self.wait_for_window()
        # The dead may have committed and sent no message for the run.
        self._client.recover()

    def wait_for_window(self) -> None:
        """Return when the window is decided: the queue, which keeps the messages of the dead, is never quiet."""
        done = "SELECT 1 FROM evals.source_windows WHERE tenant_id = %(project)s AND state = 'done'"
        self._client.wait(lambda: self._look(done) or None, "the window to be done")

    def read(self) -> Any:
        """Return the source as the API shows it."""
        return self._client.expect(200, "GET", f"/v1/projects/{self.project}/sources/hourly")

    def list_stored(self) -> set[str]:
        """Return the keys of the snapshots in the bucket."""
        bucket, prefix = self._client.stack.bucket, f"snapshots/{self.project}/"
        page = self._client.s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
        return {entry["Key"] for entry in page.get("Contents", [])}

    def find_snapshot(self) -> set[str]:
        """Return the keys that the one snapshot of the project names."""
        (row,) = self._look("SELECT path FROM evals.run_snapshots WHERE tenant_id = %(project)s")
        return {row["path"], row["path"].removesuffix(RECORDS) + MANIFEST}

    def check_one_run(self, traces: int = len(TRACES)) -> None:
        """Insist that the window is one run, which ended, and that the cursor is at its tick."""
        source = f"/v1/projects/{self.project}/sources/hourly"
        (window,) = self._client.expect(200, "GET", f"{source}/windows")["items"]
        assert (window["state"], window["traces"]) == ("done", traces), window
        (run,) = self._client.expect(200, "GET", f"/v1/projects/{self.project}/runs")["items"]
        assert run["id"] == window["run"]
        ended = self._client.wait_for_run(self.project, run["id"])
        assert (ended["state"], ended["progress"]["total"]) == ("succeeded", traces)
        cursor = self._client.expect(200, "GET", source)["cursor"]
        assert datetime.fromisoformat(cursor) == self._tick


@pytest.fixture
def source(client: StackClient, store: HeldStore, request: pytest.FixtureRequest) -> DueSource:
    name = "".join(character if character.isalnum() else "-" for character in request.node.name.lower())
    return DueSource(client, store, name[-60:].strip("-"))


@contextmanager
def held_row(client: StackClient, statement: str, project: str) -> Generator[Callable[[], None]]:
    """Hold the lock of a row; the yielded function returns when somebody waits for it."""
    with psycopg.connect(client.stack.superuser_url) as holder:
        holder.execute(cast("Any", f"{statement} FOR UPDATE"), {"project": project})
        pid = holder.info.backend_pid

        def wait_for_waiter() -> None:
            waiting = "SELECT 1 FROM pg_stat_activity WHERE %(pid)s = ANY (pg_blocking_pids(pid))"
            client.wait(lambda: client.look(waiting, {"pid": pid}) or None, "a function that waits for the row")

        yield wait_for_waiter
        holder.rollback()


def test_pull_killed_before_it_begins_its_attempt(client: StackClient, source: DueSource) -> None:
    with held_row(client, LAST_STEPS["the cursor moves"], source.project) as wait_for_waiter:
        source.pulse()
        wait_for_waiter()
        source.kill()
    source.check_wholly_or_not_at_all()
    source.recover()
    source.check_one_run()


@pytest.mark.parametrize("kind", ["traces", "spans"])
def test_pull_killed_while_the_store_holds_its_call(store: HeldStore, source: DueSource, kind: str) -> None:
    store.hold(kind)
    source.pulse()
    store.wait_for_call()
    source.kill()
    store.let_go()
    source.check_wholly_or_not_at_all()
    source.recover()
    source.check_one_run()


@pytest.mark.parametrize(("ending", "moment", "stored"), SNAPSHOT_STEPS)
def test_pull_killed_while_it_stores_its_snapshot(
    bucket: HeldBucket, source: DueSource, ending: str, moment: Moment, stored: int
) -> None:
    bucket.hold(ending, moment)
    source.pulse()
    bucket.wait_for_write()
    source.kill()
    bucket.let_go()
    left = source.list_stored()
    assert len(left) == stored
    source.check_wholly_or_not_at_all()
    source.recover()
    source.check_one_run()
    assert source.read()["failed_attempts"] == 1
    # What the dead had stored is used: the retry read the same, and wrote beside it only what was not there.
    assert left <= source.find_snapshot() == source.list_stored()
    assert len([path for path in bucket.written if f"/snapshots/{source.project}/" in path]) == 2


def test_pull_killed_after_it_stored_a_snapshot_that_its_retry_does_not_read_again(
    bucket: HeldBucket, store: HeldStore, source: DueSource
) -> None:
    bucket.hold(RECORDS, "after")
    source.pulse()
    bucket.wait_for_write()
    source.kill()
    bucket.let_go()
    left = source.list_stored()
    store.traces = (*TRACES, "late")
    source.check_wholly_or_not_at_all()
    source.recover()
    source.check_one_run(traces=3)
    # It stays beside the snapshot of its run and is no part of it: the sweep collects it.
    assert source.list_stored() == left | source.find_snapshot()
    assert left.isdisjoint(source.find_snapshot())
    assert len({key.rpartition("/")[0] for key in source.list_stored()}) == 1


@pytest.mark.parametrize("step", LAST_STEPS)
def test_pull_killed_inside_its_last_transaction(
    client: StackClient, store: HeldStore, source: DueSource, step: str
) -> None:
    store.hold("spans")
    source.pulse()
    store.wait_for_call()
    with held_row(client, LAST_STEPS[step], source.project) as wait_for_waiter:
        store.let_go()
        wait_for_waiter()
        source.kill()
        if step != "the next tick is planned":
            assert (
                client.look("SELECT 1 FROM evals.runs WHERE tenant_id = %(project)s", {"project": source.project}) == []
            )
    source.check_wholly_or_not_at_all()
    source.recover()
    source.check_one_run()


def test_pull_killed_right_after_it_committed(client: StackClient, source: DueSource) -> None:
    source.pulse()
    source.wait_for_window()
    client.kill(FUNCTION)
    source.check_wholly_or_not_at_all()
    source.check_one_run()
    source.recover()
    source.check_one_run()
