"""The command `evalward` against the stack: what it prints, how it ends, and that it survives being killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import httpx
import pytest
from evalward_local.stack_client import StackClient

from .fault_proxy import Fault, FaultProxy, fault_proxy

PROGRAM = Path(sys.executable).with_name("evalward")
PATIENCE_SECONDS = 120
MIB = 1024 * 1024
RUN = """
name: nightly
dataset: {name: answers}
evaluators:
  - name: exact_match
gates:
  - {metric: exact_match, stat: mean, min: 0.5}
"""


class Shell:
    """Runs the command with a home of its own."""

    def __init__(self, home: Path, api_url: str, api_key: str, project: str) -> None:
        self.home = home
        self.variables = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "EVALWARD_API_URL": api_url,
            "EVALWARD_API_KEY": api_key,
            "EVALWARD_PROJECT": project,
        }

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [PROGRAM, *arguments],
            cwd=self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [PROGRAM, *arguments],
            cwd=self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", status=status).stdout)

    def error(self, *arguments: str, status: int) -> dict[str, Any]:
        return json.loads(self.run(*arguments, "--json", status=status).stderr.splitlines()[-1])["error"]

    def write(self, name: str, text: str) -> Path:
        path = self.home / name
        path.write_text(text)
        return path


@pytest.fixture
def shell(client: StackClient, project: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, client.stack.api_url, client.stack.admin_key, project)


@pytest.fixture
def proxy(client: StackClient) -> Generator[FaultProxy]:
    with fault_proxy(client.stack.api_url) as proxy:
        yield proxy


@pytest.fixture
def faulty(client: StackClient, project: str, proxy: FaultProxy, tmp_path: Path) -> Shell:
    """A shell whose requests go through the proxy."""
    return Shell(tmp_path, proxy.url, client.stack.admin_key, project)


def rows(count: int, right: int) -> str:
    lines = [
        {"id": f"{number:03}", "input": "q", "output": "a" if number < right else "b", "reference": "a"}
        for number in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def make_large(path: Path) -> Path:
    with path.open("w") as stream:
        for number in range(5):
            stream.write(json.dumps({"id": str(number), "input": "x" * (MIB - 100)}) + "\n")
    assert path.stat().st_size > 4 * MIB
    return path


def test_login_stores_a_key_that_works_and_only_that(client: StackClient, shell: Shell) -> None:
    for name in ("EVALWARD_API_URL", "EVALWARD_API_KEY", "EVALWARD_PROJECT"):
        del shell.variables[name]
    stack = shell.write(
        "stack.json", json.dumps({"api_url": client.stack.api_url, "admin_key": client.stack.admin_key})
    )
    shell.run("whoami", status=2)

    shell.run("login", "--stack", str(stack), "--project", "demo")
    me = shell.json("whoami")
    stored = shell.home / ".config" / "evalward" / "login.json"
    before = stored.read_text()
    refused = subprocess.run(
        [PROGRAM, "login", client.stack.api_url, "--key-stdin", "--json"],
        env=shell.variables,
        input=f"ew_{'0' * 16}_{'0' * 64}\n",
        capture_output=True,
        text=True,
        check=False,
    )

    assert me["principal"].startswith("key:")
    assert stored.stat().st_mode & 0o777 == 0o600
    assert (refused.returncode, json.loads(refused.stderr)["error"]["code"]) == (1, "unauthenticated")
    assert stored.read_text() == before
    assert client.stack.admin_key not in refused.stdout + refused.stderr
    shell.run("logout")
    shell.run("whoami", status=2)


def test_a_pipeline_publishes_runs_and_compares(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(20, right=15))
    first = shell.json("datasets", "publish", "answers.jsonl")
    again = shell.json("datasets", "publish", "answers.jsonl")
    assert (first["version"], first["records"]) == (1, 20)
    assert again == first

    shell.write("run.yaml", RUN)
    baseline = shell.json("runs", "create", "-f", "run.yaml", "--wait")
    assert (baseline["state"], baseline["gates"][0]["passed"]) == ("succeeded", True)

    shell.write("answers.jsonl", rows(20, right=5))
    assert shell.json("datasets", "publish", "answers.jsonl")["version"] == 2
    candidate = shell.json("runs", "create", "-f", "run.yaml", "--wait", "--label", "commit=abc", status=3)
    assert (candidate["state"], candidate["labels"]) == ("failed", {"commit": "abc"})
    shell.run("runs", "wait", candidate["id"], status=3)

    compare = ("runs", "compare", baseline["id"], "latest")
    comparison = shell.json(*compare)
    assert comparison["candidate"]["id"] == candidate["id"]
    assert (comparison["metrics"][0]["regressions_count"], comparison["metrics"][0]["difference"]) == (10, -0.5)
    assert "Worse: exact_match" in shell.run(*compare, "--fail-on-regression", status=3).stderr

    assert [run["id"] for run in shell.json("runs", "list")["items"]] == [candidate["id"], baseline["id"]]
    assert [run["id"] for run in shell.json("runs", "list", "--label", "commit=abc")["items"]] == [candidate["id"]]
    cut = shell.json("runs", "list", "--limit", "1")
    assert (len(cut["items"]), cut["more"]) == (1, True)


def test_reports_come_in_all_forms(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(4, right=4))
    shell.write("run.yaml", RUN)
    shell.run("datasets", "publish", "answers.jsonl")
    shell.run("runs", "create", "-f", "run.yaml", "--wait")

    assert "exact_match" in shell.run("runs", "report", "latest").stdout
    assert shell.json("runs", "report", "latest")["passed"] is True
    assert shell.run("runs", "report", "latest", "--format", "html").stdout.startswith("<!doctype html>")
    assert shell.run("runs", "report", "latest", "--format", "md").stdout.startswith("# ")
    shell.run("runs", "report", "latest", "-o", "report.xml")
    assert "<testsuite" in (shell.home / "report.xml").read_text()
    results = shell.json("runs", "results", "latest", "--status", "scored")["items"]
    assert [result["record"] for result in results] == ["000", "001", "002", "003"]


def test_a_run_is_labelled_cancelled_resumed_and_deleted(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(4, right=4))
    shell.write("run.yaml", RUN)
    shell.run("datasets", "publish", "answers.jsonl")
    run = shell.json("runs", "create", "-f", "run.yaml", "--wait")["id"]

    assert shell.json("runs", "label", run, "a=1", "b=2")["labels"] == {"a": "1", "b": "2"}
    assert shell.json("runs", "label", run, "a-", "b=3")["labels"] == {"b": "3"}
    assert shell.error("runs", "cancel", run, status=1)["code"] == "run_ended"
    assert shell.error("runs", "resume", run, status=1)["code"] == "run_not_resumable"
    assert shell.json("runs", "delete", run, "--yes") == {"deleted": run}
    assert shell.error("runs", "show", run, status=1)["code"] == "not_found"


def test_datasets_are_read_and_deleted(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(12, right=4))
    published = shell.json("datasets", "publish", "answers.jsonl", "--name", "few")
    checked = shell.json("datasets", "publish", "answers.jsonl", "--name", "none", "--validate-only")

    assert (checked["sha256"], checked["records"]) == (published["sha256"], 12)
    assert [one["name"] for one in shell.json("datasets", "list")["items"]] == ["few"]
    assert shell.json("datasets", "show", "few@1") == shell.json("datasets", "show", published["sha256"]) == published
    assert [row["id"] for row in shell.json("datasets", "head", "few", "-n", "2")["items"]] == ["000", "001"]
    assert "000" in shell.run("datasets", "head", "few").stdout
    assert len(shell.run("datasets", "content", "few").stdout.splitlines()) == 12
    shell.run("datasets", "delete", "few", "--yes")
    assert shell.json("datasets", "list")["items"] == []


def test_a_bad_file_is_told_row_by_row(shell: Shell) -> None:
    shell.write("bad.jsonl", '{"input": "a"}\n{"id": "x"}\n{"input": "b", "id": 1.5}\n')
    told = shell.run("datasets", "publish", "bad.jsonl", status=1).stderr
    assert "row 2" in told
    assert "row 3" in told
    error = shell.error("datasets", "publish", "bad.jsonl", status=1)
    assert error["code"] == "dataset_invalid"
    assert [fault["row"] for fault in error["errors"]] == [2, 3]
    assert shell.json("pending", "list")["items"] == []


def test_a_wrong_run_is_told_place_by_place(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(1, right=1))
    shell.run("datasets", "publish", "answers.jsonl")
    shell.write("run.yaml", RUN.replace("- name: exact_match", "- name: exact_mach"))
    told = shell.run("runs", "create", "-f", "run.yaml", status=1).stderr
    assert "/evaluators/0/name: " in told
    shell.write("run.yaml", RUN.replace("name: nightly", "title: nightly"))
    faults = shell.error("runs", "create", "-f", "run.yaml", status=1)["errors"]
    assert {fault["pointer"] for fault in faults} == {"/name", "/title"}


def test_keys_are_made_once_and_taken_away(client: StackClient, project: str, shell: Shell) -> None:
    secret = shell.run("keys", "create", "ci", "--grant", f"{project}=runner").stdout.strip()
    key = shell.json("keys", "create", "read", "--grant", f"{project}=runs.read,datasets.read", "--grant", "*=viewer")
    assert client.expect(200, "GET", "/v1/whoami", key=secret)["grants"][0]["role"] == "runner"
    assert key["grants"][0]["permissions"] == ["runs.read", "datasets.read"]
    assert {"ci", "read"} <= {one["name"] for one in shell.json("keys", "list", "--limit", "500")["items"]}
    shell.run("keys", "delete", key["id"], "--yes")
    assert client.request("GET", "/v1/whoami", key=key["secret"]).status_code == 401


def test_a_source_is_applied_previewed_and_run_by_hand(client: StackClient, project: str, shell: Shell) -> None:
    text = f"""
id: nightly-support
connector: otlp_s3
location: s3://{client.stack.bucket}/traces/{project}/support/
schedule: {{cron: "0 2 * * *"}}
window: {{seconds: 3600}}
evaluators: [{{name: pii_leak}}]
labels: {{team: support}}
"""
    shell.write("source.yaml", text)
    assert len(shell.json("sources", "preview", "-f", "source.yaml")["next_ticks"]) == 5
    assert shell.json("sources", "list")["items"] == []

    assert "created" in shell.run("sources", "apply", "-f", "source.yaml").stderr
    assert "unchanged" in shell.run("sources", "apply", "-f", "source.yaml").stderr
    shell.write("source.yaml", text.replace("team: support", "team: search"))
    done = shell.run("sources", "apply", "-f", "source.yaml", "--json")
    assert "updated" in done.stderr
    assert json.loads(done.stdout)["labels"] == {"team": "search"}
    shell.write("source.yaml", text.replace("otlp_s3", "mlflow"))
    assert "another id" in shell.run("sources", "apply", "-f", "source.yaml", status=2).stderr

    # An address that needs no name server.
    store = f"{text}credentials: evalward/{project}/store\nendpoint: https://93.184.216.34\n"
    store = store.replace("otlp_s3", "mlflow").replace("nightly-support", "store")
    store = store.replace(f"s3://{client.stack.bucket}/traces/{project}/support/", "'1'")
    shell.write("store.yaml", store)
    assert shell.json("sources", "apply", "-f", "store.yaml")["credentials"] == f"evalward/{project}/store"
    shell.write("store.yaml", store.replace(f"credentials: evalward/{project}/store", "credentials: null"))
    done = shell.run("sources", "apply", "-f", "store.yaml", "--json")
    assert "updated" in done.stderr
    assert json.loads(done.stdout)["credentials"] is None
    assert "unchanged" in shell.run("sources", "apply", "-f", "store.yaml").stderr
    shell.run("sources", "retire", "store", "--yes")

    preview = shell.json("sources", "preview", "nightly-support", "--after", "2027-01-01T00:00:00Z")
    assert preview["next_ticks"][0] == "2027-01-01T02:00:00Z"
    assert shell.json("sources", "pause", "nightly-support")["paused"] is True
    assert shell.json("sources", "resume", "nightly-support")["paused"] is False
    assert shell.json("sources", "windows", "nightly-support")["items"] == []
    assert shell.json("sources", "summary", "nightly-support")["last_tick"] is None
    assert shell.error("sources", "skip", "nightly-support", "2027-01-01T01:00:00Z", status=1)["code"] == "not_found"
    assert [one["id"] for one in shell.json("sources", "list")["items"]] == ["nightly-support"]
    shell.run("sources", "retire", "nightly-support", "--yes")
    assert shell.json("sources", "list")["items"] == []


def test_an_interrupted_secret_is_not_passed_off_as_one(faulty: Shell, proxy: FaultProxy, project: str) -> None:
    kill_while_held(
        faulty, proxy, "POST /v1/keys", "hold after", "keys", "create", "ci", "--grant", f"{project}=viewer"
    )
    again = faulty.run("keys", "create", "ci", "--grant", f"{project}=viewer", status=1)
    assert again.stdout == ""
    assert "answer was lost" in again.stderr
    assert faulty.json("pending", "list")["items"] == []


def kill_while_held(shell: Shell, proxy: FaultProxy, request: str, fault: Fault, *arguments: str) -> None:
    """Start a command and kill it without mercy while the proxy holds one of its requests."""
    proxy.faults[request] = fault
    process = shell.start(*arguments)
    assert proxy.held.wait(PATIENCE_SECONDS)
    process.kill()
    process.communicate()
    assert process.returncode == -9
    proxy.held.clear()


def versions(client: StackClient, project: str) -> list[int]:
    items = client.expect(200, "GET", f"/v1/projects/{project}/datasets")["items"]
    return [one["version"] for one in items]


STEPS: list[tuple[str, str, Fault]] = [
    ("small.jsonl", "POST /v1/projects/{project}/datasets", "hold before"),
    ("small.jsonl", "POST /v1/projects/{project}/datasets", "hold after"),
    ("large.jsonl", "POST /v1/projects/{project}/uploads", "hold before"),
    ("large.jsonl", "POST /v1/projects/{project}/uploads", "hold after"),
    ("large.jsonl", "PUT ", "hold before"),
    ("large.jsonl", "PUT ", "hold after"),
    ("large.jsonl", "POST /v1/projects/{project}/uploads/", "hold before"),
    ("large.jsonl", "POST /v1/projects/{project}/uploads/", "hold after"),
]


@pytest.mark.parametrize(("file", "request_", "fault"), STEPS)
def test_a_publication_killed_anywhere_is_finished_once_by_the_same_command(
    client: StackClient, project: str, faulty: Shell, proxy: FaultProxy, file: str, request_: str, fault: Fault
) -> None:
    faulty.write("small.jsonl", rows(3, right=1))
    make_large(faulty.home / "large.jsonl")
    command = ("datasets", "publish", file, "--name", "answers")
    kill_while_held(faulty, proxy, request_.format(project=project), fault, *command)
    (left,) = faulty.json("pending", "list")["items"]
    assert left["operation"] == ("datasets.upload" if file == "small.jsonl" else "uploads.create")
    is_done_already = versions(client, project) == [1]
    assert is_done_already == (fault == "hold after" and request_.endswith(("/datasets", "/uploads/")))

    published = faulty.json(*command)

    assert (published["version"], versions(client, project)) == (1, [1])
    assert faulty.json("pending", "list")["items"] == []
    ends = ("/datasets",) if file == "small.jsonl" else ("/uploads", "/finalize")
    for end in ends:
        assert len(set(proxy.keys(end))) == 1, "a repeat has no key of its own"
    (row,) = client.look(
        "SELECT count(*) AS made FROM coordination.audit_events WHERE project = %(project)s AND outcome = 'allowed'"
        " AND operation IN ('datasets.upload', 'uploads.finalize')",
        {"project": project},
    )
    assert row["made"] == 1


@pytest.mark.parametrize("fault", ["hold before", "hold after"])
def test_a_deletion_by_name_killed_and_sent_again_deletes_no_other_version(
    client: StackClient, project: str, faulty: Shell, proxy: FaultProxy, fault: Fault
) -> None:
    for right in (1, 2):
        faulty.write("answers.jsonl", rows(3, right=right))
        newest = faulty.json("datasets", "publish", "answers.jsonl")["sha256"]
    command = ("datasets", "delete", "answers", "--yes")
    kill_while_held(faulty, proxy, "DELETE ", fault, *command)

    assert faulty.json(*command)["sha256"] == newest

    assert versions(client, project) == [1]
    assert len(set(proxy.keys(newest))) == 1
    assert faulty.json("pending", "list")["items"] == []


@pytest.mark.parametrize("fault", ["hold before", "hold after"])
def test_a_source_killed_in_being_applied_is_finished_by_the_same_command(
    client: StackClient, faulty: Shell, proxy: FaultProxy, project: str, fault: Fault
) -> None:
    faulty.write(
        "source.yaml",
        f"""
id: nightly
connector: otlp_s3
location: s3://{client.stack.bucket}/traces/{project}/support/
schedule: {{cron: "0 2 * * *"}}
window: {{seconds: 3600}}
evaluators: [{{name: pii_leak}}]
labels: {{team: support}}
""",
    )
    command = ("sources", "apply", "-f", "source.yaml")
    kill_while_held(faulty, proxy, "POST ", fault, *command)
    assert ("unchanged" if fault == "hold after" else "created") in faulty.run(*command).stderr
    assert faulty.json("pending", "list")["items"] == []

    text = (faulty.home / "source.yaml").read_text()
    faulty.write("source.yaml", text.replace("team: support", "team: search"))
    kill_while_held(faulty, proxy, "PATCH ", fault, *command)
    assert ("unchanged" if fault == "hold after" else "updated") in faulty.run(*command).stderr
    assert faulty.json("sources", "show", "nightly")["labels"] == {"team": "search"}
    assert faulty.json("pending", "list")["items"] == []


@pytest.mark.parametrize("fault", ["hold before", "hold after"])
def test_a_run_killed_in_creation_is_one_run(
    client: StackClient, project: str, faulty: Shell, proxy: FaultProxy, fault: Fault
) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    faulty.write("run.yaml", RUN)
    faulty.run("datasets", "publish", "answers.jsonl")
    command = ("runs", "create", "-f", "run.yaml")
    kill_while_held(faulty, proxy, f"POST /v1/projects/{project}/runs", fault, *command)

    run = faulty.json(*command, "--wait")

    assert [one["id"] for one in faulty.json("runs", "list")["items"]] == [run["id"]]
    assert faulty.json(*command)["id"] != run["id"], "a finished command given again is a new one"


@pytest.mark.parametrize("fault", ["drop after", "503 after"])
def test_a_lost_answer_is_asked_for_again(
    client: StackClient, project: str, faulty: Shell, proxy: FaultProxy, fault: Fault
) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    proxy.faults[f"POST /v1/projects/{project}/datasets"] = fault
    assert faulty.json("datasets", "publish", "answers.jsonl")["version"] == 1
    assert versions(client, project) == [1]
    assert len(proxy.keys("/datasets")) == 2
    assert len(set(proxy.keys("/datasets"))) == 1


def test_an_interrupt_keeps_the_key_and_says_so(faulty: Shell, proxy: FaultProxy, project: str) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    proxy.faults[f"POST /v1/projects/{project}/datasets"] = "hold after"
    process = faulty.start("datasets", "publish", "answers.jsonl")
    assert proxy.held.wait(PATIENCE_SECONDS)
    process.send_signal(2)
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert b"Interrupted" in told
    assert len(faulty.json("pending", "list")["items"]) == 1


def test_a_write_in_doubt_says_what_to_do_and_can_be_settled(
    client: StackClient, project: str, faulty: Shell, proxy: FaultProxy
) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    faulty.variables["EVALWARD_PATIENCE_SECONDS"] = "0"
    proxy.faults[f"POST /v1/projects/{project}/datasets"] = "503 after"
    error = faulty.error("datasets", "publish", "answers.jsonl", status=6)
    assert error["code"] == "outcome_unknown"
    (left,) = faulty.json("pending", "list")["items"]
    assert left["idempotency_key"] == error["idempotency_key"]

    faulty.run("datasets", "publish", "answers.jsonl")
    assert faulty.json("pending", "list")["items"] == []
    assert versions(client, project) == [1]


def test_an_uncertain_claim_is_settled_with_the_command(
    client: StackClient, project: str, shell: Shell, make_claim: Callable[[str], str]
) -> None:
    claim = make_claim("k-1")
    (listed,) = shell.json("claims", "list")["items"]
    assert (listed["id"], listed["state"]) == (claim, "uncertain")
    assert shell.json("claims", "resolve", claim, "did_not_happen")["outcome"] == "did_not_happen"
    assert shell.json("claims", "list")["items"] == []
    assert shell.json("claims", "list", "--installation")["items"] == []


@pytest.fixture
def make_claim(client: StackClient, project: str) -> Callable[[str], str]:
    """Return a function that leaves a claim whose owner died before its deadline passed."""

    def make(key: str) -> str:
        me = client.expect(200, "GET", "/v1/whoami")
        (row,) = client.look(
            """
            INSERT INTO coordination.idempotency_records (tenant_id, principal, key_sha256, operation, fingerprint,
                state, owner_token, deadline_at, claimed_at, expires_at)
            VALUES (%(project)s, %(principal)s, sha256(convert_to(%(key)s, 'UTF8')), 'webhooks.test',
                sha256('x'::bytea), 'claimed', gen_random_uuid(), clock_timestamp() - interval '1 minute',
                clock_timestamp() - interval '2 minutes', clock_timestamp() + interval '6 days')
            RETURNING id
            """,
            {"project": project, "principal": me["principal"], "key": key},
        )
        return str(row["id"])

    return make


def test_the_doctor_is_a_table_and_a_status(shell: Shell, project: str) -> None:
    done = shell.start("doctor", "--json")
    printed, _ = done.communicate(timeout=PATIENCE_SECONDS)
    checks = json.loads(printed)["checks"]
    is_healthy = all(check["status"] == "healthy" for check in checks)
    assert {"doctor.jobengine.retention.terminal-budgets", "doctor.jobengine.capacity.budget"} <= {
        check["id"] for check in checks
    }
    assert done.returncode == (0 if is_healthy else 4)
    shell.variables["EVALWARD_API_KEY"] = shell.json("keys", "create", "ci", "--grant", f"{project}=admin")["secret"]
    assert shell.error("doctor", status=1)["code"] == "permission_denied"


def test_failures_are_listed_and_resolved(client: StackClient, project: str, shell: Shell) -> None:
    client.wait_for_import(project, client.drop(project, "wrong.jsonl", b'{"id": "1"}\n'))
    (failure,) = shell.json("failures", "list")["items"]
    assert (failure["kind"], failure["state"]) == ("import", "unresolved")
    assert shell.run("failures", "list", "--quiet").stdout == f"{failure['id']}\n"
    assert shell.json("failures", "resolve", failure["id"], "--state", "wont_fix")["state"] == "wont_fix"
    assert shell.json("failures", "list", "--state", "unresolved")["items"] == []


def test_the_catalogue_and_the_audit_trail_are_read(shell: Shell, project: str) -> None:
    names = {one["name"] for one in shell.json("evaluators")["items"]}
    assert {"exact_match", "token_f1", "pii_leak"} <= names
    shell.write("answers.jsonl", rows(1, right=1))
    shell.run("datasets", "publish", "answers.jsonl")
    (event,) = shell.json("audit", "--project", project)["items"]
    assert (event["operation"], event["outcome"]) == ("datasets.upload", "allowed")


def test_what_is_not_found_is_told_with_the_project_that_was_meant(shell: Shell, project: str) -> None:
    shell.variables["EVALWARD_API_KEY"] = shell.json("keys", "create", "ci", "--grant", f"{project}=viewer")["secret"]
    told = shell.error("runs", "list", "--project", f"{project}x", status=1)["advice"]
    assert (
        told
        == f"This key sees no project {project}x. Did you mean {project}? It sees {project} (`evalward projects list`)."
    )
    assert f"project {project} is there" in shell.run("runs", "show", "none", status=1).stderr


def test_rules_are_told_in_words(shell: Shell) -> None:
    assert (
        "  /id: must be lower-case letters, digits and hyphens,"
        in shell.run("projects", "create", "Support_Answers", status=1).stderr
    )
    assert "must be key=value, such as team=search" in shell.run("runs", "list", "--label", "team", status=1).stderr


def test_runs_are_named_by_words(shell: Shell) -> None:
    shell.write("answers.jsonl", rows(3, right=3))
    shell.run("datasets", "publish", "answers.jsonl")
    shell.write("run.yaml", RUN)
    first = shell.json("runs", "create", "-f", "run.yaml", "--wait")["id"]
    label = ("runs", "label", "latest", "a=1", "--idempotency-key", "k")
    assert shell.json(*label)["id"] == first
    shell.run("runs", "create", "-f", "run.yaml", "--name", "other", "--wait")
    assert shell.error(*label, status=1)["code"] == "idempotency_key_reused", "the word means another run by now"
    assert "no run with a report" in shell.run("runs", "show", "previous", status=2).stderr
    latest = shell.json("runs", "create", "-f", "run.yaml", "--wait")["id"]

    assert shell.json("runs", "show", "previous")["id"] == first
    compared = shell.json("runs", "compare", "previous", "latest")
    assert (compared["baseline"]["id"], compared["candidate"]["id"]) == (first, latest)
    compared = shell.json("runs", "compare", "latest", first)
    assert (compared["baseline"]["id"], compared["candidate"]["id"]) == (latest, first)
    report = shell.json("runs", "report", "latest")
    assert report["comparison"]["baseline"]["id"] == first
    assert shell.json("runs", "delete", "previous", "--yes") == {"deleted": first}


@pytest.mark.parametrize("fault", ["hold before", "hold after"])
def test_a_deletion_of_the_latest_run_killed_and_sent_again_deletes_no_other(
    faulty: Shell, proxy: FaultProxy, fault: Fault
) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    faulty.write("run.yaml", RUN)
    faulty.run("datasets", "publish", "answers.jsonl")
    first, latest = (faulty.json("runs", "create", "-f", "run.yaml", "--wait")["id"] for _ in range(2))
    command = ("runs", "delete", "latest", "--yes")
    kill_while_held(faulty, proxy, "DELETE ", fault, *command)

    assert faulty.json(*command) == {"deleted": latest}

    assert [run["id"] for run in faulty.json("runs", "list")["items"]] == [first]
    assert faulty.json("pending", "list")["items"] == []


def test_an_import_is_mapped_and_checked_only(client: StackClient, project: str, shell: Shell) -> None:
    key = client.drop(project, "may.jsonl", b'{"q": "a\\u0000", "deep": {"answer": "b"}}\n')
    uri = f"s3://{client.stack.bucket}/{key}"
    mapped = ("--map", "input=/q", "--map", "output=/deep/answer")

    command = ("imports", "create", uri, "--name", "may", "--wait", *mapped)
    (fault,) = shell.error(*command, status=1)["errors"]
    assert (fault["row"], fault["field"]) == (1, "/q")
    assert shell.json(*command, "--replace-nul", "--validate-only")["state"] == "succeeded"
    assert shell.json("datasets", "list")["items"] == []
    assert shell.json(*command, "--replace-nul")["dataset"]["name"] == "may"
    told = shell.error("imports", "create", uri, "--name", "may", "--map", "outputs=/deep/answer", status=1)
    (fault,) = told["errors"]
    assert (fault["pointer"], "outputs" in fault["message"]) == ("/mapping", True)


def test_a_few_records_are_evaluated_without_a_run(shell: Shell) -> None:
    shell.write("few.jsonl", rows(3, right=2))
    command = ("evaluate", "few.jsonl", "-e", "exact_match")
    answer = shell.json(*command)
    assert [item["results"][0]["score"] for item in answer["items"]] == [1, 1, 0]
    assert answer["summary"]["metrics"][0]["n"] == 3
    assert len(shell.run(*command, "--jsonl").stdout.splitlines()) == 4
    assert "exact_match" in shell.run(*command).stdout

    shell.write("few.jsonl", rows(2, right=2) + "\n\n" + '{"id": 1.5, "input": "q"}\n')
    assert "  line 5 /id: " in shell.run(*command, status=1).stderr
    assert (
        shell.error("evaluate", "few.jsonl", "-e", "exactly", status=1)["errors"][0]["pointer"] == "/evaluators/0/name"
    )
    shell.write("few.jsonl", rows(1001, right=0))
    assert "  line 1001: at most 1000 records" in shell.run(*command, status=1).stderr
    assert shell.json("pending", "list")["items"] == []


@pytest.mark.parametrize("signal", [2, 9])
def test_an_evaluation_that_is_interrupted_goes_on_under_its_key(
    faulty: Shell, proxy: FaultProxy, project: str, signal: int
) -> None:
    faulty.write("few.jsonl", rows(2, right=1))
    command = ("evaluate", "few.jsonl", "-e", "exact_match")
    proxy.faults[f"POST /v1/projects/{project}/evaluate"] = "hold after"
    process = faulty.start(*command)
    assert proxy.held.wait(PATIENCE_SECONDS)
    process.send_signal(signal)
    printed, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, printed) == (130 if signal == 2 else -9, b"")
    assert (b"Interrupted" in told) is (signal == 2)

    assert len(faulty.json(*command)["items"]) == 2
    assert len(proxy.keys("/evaluate")) == 2
    assert len(set(proxy.keys("/evaluate"))) == 1
    assert faulty.json("pending", "list")["items"] == []


def test_an_interrupted_wait_says_that_the_run_goes_on(faulty: Shell, proxy: FaultProxy, project: str) -> None:
    faulty.write("answers.jsonl", rows(3, right=3))
    faulty.write("run.yaml", RUN)
    faulty.run("datasets", "publish", "answers.jsonl")
    proxy.faults[f"GET /v1/projects/{project}/runs/"] = "hold before"
    process = faulty.start("runs", "create", "-f", "run.yaml", "--wait")
    assert proxy.held.wait(PATIENCE_SECONDS)
    process.send_signal(2)
    _, told = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    (run,) = faulty.json("runs", "list")["items"]
    assert f"`evalward runs wait {run['id']}`" in told.decode()


def test_the_python_client_is_enough_for_a_pipeline(client: StackClient, project: str, tmp_path: Path) -> None:
    from evalward import Client, WantedDataset

    file = tmp_path / "answers.jsonl"
    file.write_text(rows(4, right=2))
    order = {"name": "run", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}]}
    with Client(client.stack.api_url, client.stack.admin_key) as ours:
        published = ours.datasets.publish(project, file, WantedDataset())
        run = ours.runs.create(project, order, idempotency_key="build-1")
        again = ours.runs.create(project, order, idempotency_key="build-1")
        ended = ours.runs.wait(project, run["id"])
        report = ours.runs.report(project, run["id"])
        content = ours.datasets.content(project, published.dataset["sha256"])
    assert published.is_new
    assert again == run
    assert (ended["state"], report["metrics"][0]["mean"]) == ("succeeded", 0.5)
    assert len(content.splitlines()) == 4
    assert httpx.URL(client.stack.api_url).host == "127.0.0.1"
