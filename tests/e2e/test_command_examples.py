"""The example of every command, as its --help shows it, typed on a running stack: in words, and with --json.

What --json prints has the shape that docs/cli.md promises.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from evalward.command_line.examples import EXAMPLES
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.stack_client import StackClient
from evalward_local.target_server import TargetServer
from evalward_local.webhook_receiver import WebhookReceiver

PATIENCE_SECONDS = 120
ROWS = [{"id": f"{number}", "input": "q", "answer": "a", "reference": "a"} for number in range(3)]
COMPONENTS = json.loads((PROJECT_FOLDER / "functions/api/api/reference/openapi.json").read_text())["components"]
PROMISES: dict[str, str] = dict(
    re.findall(r"^\| `evalward ([^`]*)` \| .*? \| (.*) \|$", (PROJECT_FOLDER / "docs/cli.md").read_text(), re.MULTILINE)
)
# A doctor of a stack this young may find what takes hours to be well.
STATUSES = {"doctor": {0, 4}}


@pytest.fixture(scope="module")
def receiver() -> Generator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def endpoint() -> Generator[TargetServer]:
    with TargetServer() as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, receiver: WebhookReceiver, endpoint: TargetServer
) -> Generator[StackClient]:
    hosts = {"OutgoingAllowedHosts": json.dumps({"*": [receiver.host, endpoint.host]})}
    with (
        running_stack(tmp_path_factory.mktemp("stack"), environments=3, parameters=hosts) as stack,
        StackClient(stack) as client,
    ):
        yield client


class Reader:
    """Somebody who types examples one after the other, and has what they speak of.

    Parameters
    ----------
    client
        Of the stack.
    home
        An empty folder.
    project
        What `demo` stands for.
    receiver, endpoint
        Where webhooks go, and what answers a run.
    """

    def __init__(
        self, client: StackClient, home: Path, project: str, receiver: WebhookReceiver, endpoint: TargetServer
    ) -> None:
        self.client = client
        self.home = home
        self.project = project
        self.names = {
            "https://api.example.com": client.stack.api_url,
            "https://ci.example.com/hook": receiver.url,
            "s3://data/": f"s3://{client.stack.bucket}/",
        }
        self.variables = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(home),
            "no_proxy": "127.0.0.1",
            "EVALWARD_PROJECT": project,
        }
        self.variables |= {"EVALWARD_API_URL": client.stack.api_url, "EVALWARD_API_KEY": client.stack.admin_key}
        (home / "api.key").write_text(f"{client.stack.admin_key}\n")
        (home / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        target = {"kind": "http", "url": endpoint.url}
        run = {"name": "answers", "dataset": {"name": "answers"}, "target": target}
        run |= {"evaluators": [{"name": "exact_match"}]}
        (home / "run.yaml").write_text(json.dumps(run))
        place = f"s3://{client.stack.bucket}/traces/{project}/"
        source = {"id": "nightly", "connector": "otlp_s3", "location": place, "schedule": {"cron": "0 2 * * *"}}
        source |= {"window": {"seconds": 3600}, "evaluators": [{"name": "pii_leak"}]}
        (home / "source.yaml").write_text(json.dumps(source))

    def type(self, text: str) -> subprocess.CompletedProcess[str]:
        text = re.sub(r"\bdemo\b", self.project, text)
        for name, real in self.names.items():
            text = text.replace(name, real)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def ask(self, text: str) -> Any:
        """Return what a command prints as JSON; it must end well."""
        done = self.type(f"evalward {text} --json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def stand_for(self, shown: str, real: str) -> None:
        """Let an id of an example stand for one that is there."""
        self.names[shown] = real

    def prepare(self, command: str) -> None:
        """Make what an example speaks of and no example before it has made."""
        if step := _STEPS.get(command):
            step(self)


def end_of(text: str) -> str:
    """Return the id in an example."""
    return text.removesuffix(" --yes").removesuffix(" happened").rpartition(" ")[2]


def use_the_first(listing: str) -> Callable[[Reader, str], None]:
    def use(reader: Reader, command: str) -> None:
        reader.stand_for(end_of(EXAMPLES[command]), reader.ask(listing)["items"][0]["id"])

    return use


def make_file_to_import(reader: Reader) -> None:
    # Beside the incoming prefix's own import, which the bucket asks for by itself and which fails: no mapping.
    reader.client.drop(reader.project, "may.jsonl", (reader.home / "answers.jsonl").read_bytes())


def make_failure(reader: Reader) -> None:
    key = reader.client.drop(reader.project, "wrong.jsonl", b'{"id": "1"}\n')
    reader.client.wait_for_import(reader.project, key)


def make_windows(reader: Reader) -> None:
    for start, state in (("2026-01-31T02:00:00Z", "missed_deadline"), ("2026-01-30T02:00:00Z", "working")):
        reader.client.look(
            """
            INSERT INTO evals.source_windows (tenant_id, source_id, tick_at, window_start, window_end, state, attempts)
            VALUES (%(project)s, 'nightly', %(start)s::timestamptz + interval '1 hour', %(start)s::timestamptz,
                    %(start)s::timestamptz + interval '1 hour', %(state)s, 1)
            """,
            {"project": reader.project, "start": start, "state": state},
        )


def make_claim(reader: Reader) -> None:
    me = reader.client.expect(200, "GET", "/v1/whoami")
    reader.client.look(
        """
        INSERT INTO coordination.idempotency_records (tenant_id, principal, key_sha256, operation, fingerprint, state,
            owner_token, deadline_at, claimed_at, expires_at)
        VALUES (%(project)s, %(principal)s, sha256('k'::bytea), 'webhooks.test', sha256('x'::bytea), 'claimed',
            gen_random_uuid(), clock_timestamp() - interval '1 minute', clock_timestamp() - interval '2 minutes',
            clock_timestamp() + interval '6 days')
        """,
        {"project": reader.project, "principal": me["principal"]},
    )


def leave_pending_write(reader: Reader) -> None:
    name = end_of(EXAMPLES["pending forget"])
    folder = reader.home / ".local" / "state" / "evalward" / "pending"
    folder.mkdir(parents=True, exist_ok=True)
    write = {"name": name, "operation": "runs.create", "target": "POST …", "idempotency_key": "k", "started_at": "then"}
    (folder / f"{name}.json").write_text(json.dumps(write))


def run_twice(reader: Reader) -> None:
    for _ in range(2):
        reader.ask("runs create -f run.yaml --wait")


def start_a_run_that_waits(reader: Reader) -> None:
    # A paused project dispatches nothing.
    reader.ask("projects update demo --pause")
    reader.ask("runs create -f run.yaml")


def let_runs_go_on(reader: Reader) -> None:
    reader.ask("projects update demo --resume")


_STEPS: dict[str, Callable[[Reader], None]] = {
    "keys delete": lambda reader: use_the_first("keys list")(reader, "keys delete"),
    "imports create": make_file_to_import,
    "imports show": lambda reader: use_the_first("imports list")(reader, "imports show"),
    "runs report": run_twice,
    "runs cancel": start_a_run_that_waits,
    "runs resume": let_runs_go_on,
    "sources windows": make_windows,
    "webhooks redeliver": lambda reader: use_the_first("webhooks deliveries ci")(reader, "webhooks redeliver"),
    "failures list": make_failure,
    "failures resolve": lambda reader: use_the_first("failures list")(reader, "failures resolve"),
    "claims list": make_claim,
    "claims resolve": lambda reader: use_the_first("claims list")(reader, "claims resolve"),
    "pending list": leave_pending_write,
}


def as_json(command: str) -> str:
    """Return an example with --json, whose standard output is no file."""
    text = EXAMPLES[command].replace(f"evalward {command}", f"evalward {command} --json", 1)
    return re.sub(r" > \S+$", "", text)


def find_fault(printed: Any, promise: str) -> str | None:
    """Say how what was printed breaks its promise in docs/cli.md."""
    names = re.findall(r"\[(\w+)\]\(", promise)
    if promise.startswith("list of"):
        if printed.keys() != {"items", "more"}:
            return f"no list: {list(printed)}"
        printed, schemas = printed["items"], [{"type": "array", "items": reference(name)} for name in names]
        keys = re.search(r"`(\{.*\})`", promise)
        if keys and [set(item) for item in printed] != [set(re.findall(r'"(\w+)"', keys[1]))] * len(printed):
            return f"items have {printed}"
    elif match := re.fullmatch(r"`\{(.*)\}`", promise):
        return None if set(printed) == set(re.findall(r'"(\w+)"', match[1])) else f"members {list(printed)}"
    else:
        schemas = [reference(names[0])]
    for schema in schemas:
        for error in jsonschema_rs.validator_for({**schema, "components": COMPONENTS}).iter_errors(printed):
            return f"{error.instance_path}: {error.message}"
    return None


def reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


@pytest.fixture
def make_reader(
    client: StackClient, tmp_path: Path, receiver: WebhookReceiver, endpoint: TargetServer
) -> Callable[[str], Reader]:
    """Return a function that makes somebody with an empty folder."""

    def make(project: str) -> Reader:
        return Reader(client, tmp_path, project, receiver, endpoint)

    return make


def test_examples_work_as_they_are_typed(make_reader: Callable[[str], Reader]) -> None:
    reader = make_reader("words")
    for command, text in EXAMPLES.items():
        reader.prepare(command)
        done = reader.type(text)
        assert done.returncode in STATUSES.get(command, {0}), f"{text}\n{done.stdout}{done.stderr}"
    assert (reader.home / "ci.key").read_text().startswith("ew_")
    assert (reader.home / "ci.secret").read_text().startswith("whsec_")
    assert len((reader.home / "published.jsonl").read_text().splitlines()) == len(ROWS)


def test_examples_print_the_json_that_is_promised(make_reader: Callable[[str], Reader]) -> None:
    reader = make_reader("documents")
    seen: dict[str, Any] = {}
    for command in EXAMPLES:
        reader.prepare(command)
        if command in ("logout", "datasets content"):
            continue
        done = reader.type(as_json(command))
        assert done.returncode in STATUSES.get(command, {0}), f"{command}\n{done.stdout}{done.stderr}"
        seen[command] = json.loads(done.stdout)
    faults = {command: find_fault(printed, PROMISES[command]) for command, printed in seen.items()}
    assert {command: fault for command, fault in faults.items() if fault} == {}
    # Lists that are empty would keep any promise.
    empty = {command for command, printed in seen.items() if printed.get("items") == []}
    assert empty <= {"runs results", "webhooks deliveries"}


def test_outputs_that_a_target_made_are_listed(make_reader: Callable[[str], Reader]) -> None:
    reader = make_reader("outputs")
    for text in ("projects create demo", "datasets publish answers.jsonl", "runs create -f run.yaml --wait"):
        reader.ask(text)
    shown = reader.type("evalward runs outputs latest").stdout
    assert "latency_ms" in shown
    lines = reader.type("evalward runs outputs latest --jsonl").stdout.splitlines()
    assert [json.loads(line)["record"] for line in lines] == [row["id"] for row in ROWS]
    assert all(json.loads(line)["output"] in shown for line in lines)
    assert json.loads(reader.type("evalward runs outputs latest --limit 2 --json").stdout)["more"] is True


def test_a_promise_that_is_broken_is_found() -> None:
    assert find_fault({"items": [{"id": 1}], "more": False}, "list of [Run](api.md#schema-run)")
    assert find_fault({"items": []}, "list of [Run](api.md#schema-run)")
    assert find_fault({"id": 1}, "[Run](api.md#schema-run)")
    assert find_fault({"removed": "x"}, '`{"deleted": id}`')
    assert find_fault({"items": [{"name": "x"}], "more": False}, 'list of `{"name", "note"}`')
    assert find_fault({"deleted": "x"}, '`{"deleted": id}`') is None
