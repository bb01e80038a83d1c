"""What the documents tell people to type works, in the order in which they tell it, on a running stack."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import yaml
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.stack_client import StackClient
from evalward_local.stack_file import StackFile


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


DOCUMENTS = [PROJECT_FOLDER / "README.md", *sorted((PROJECT_FOLDER / "docs" / "tutorials").glob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
PATIENCE_SECONDS = 600
# The documents say 9000, which somebody may be using here.
RECEIVER_PORT = find_free_port()
FIRE_EVERY_SECONDS = 2.0


# What somebody who types all of it must have seen.
SEEN: dict[str, list[str]] = {
    "README.md": [
        "Published support-answers@1.",
        ": succeeded.",
        "The Idempotency-Key was used for another request",
        "exit status 3",
        "Worse: token_f1.",
        "every-minute: created.",
        "masked: email 1, provider_key 1",
        "doctor.jobengine.capacity.budget",
    ],
    "ci-pipeline.md": ["Published answers@1.", ": succeeded.", "Worse: token_f1.", "exit status 3"],
    "data-team.md": [
        "Nothing was published.",
        "Unchanged: the newest version has this content, questions@1.",
        "exit status 1",
        "large@1.",
    ],
    "on-call.md": ['"database":"reachable"', "row 1: ", "doctor.jobengine.retention.terminal-budgets"],
    "with-curl.md": [
        "HTTP/1.1 202",
        "Idempotency-Replayed: true",
        "\nsucceeded\n",
        '"metrics":[{"id":"token_f1"',
        "'evalsi.keep': 'true'",
        "whsec_",
        "\ndelivered\n",
        '"event":"run.finished"',
    ],
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Generator[StackFile]:
    """A stack whose sources are pulled every two seconds instead of every minute."""
    allowed = json.dumps({"*": [f"127.0.0.1:{RECEIVER_PORT}"]})
    parameters = {"OutgoingAllowedHosts": allowed}
    with (
        running_stack(tmp_path_factory.mktemp("documents"), environments=3, parameters=parameters) as stack,
        StackClient(stack) as client,
    ):
        is_over = threading.Event()

        def fire() -> None:
            while not is_over.wait(FIRE_EVERY_SECONDS):
                client.fire("ScheduledPullPulse")

        thread = threading.Thread(target=fire)
        thread.start()
        try:
            yield stack
        finally:
            is_over.set()
            thread.join()


def blocks(document: Path) -> list[dict[str, str]]:
    return [match.groupdict(default="") for match in BLOCK.finditer(document.read_text())]


class Folder:
    """A folder that looks like the project, for somebody who has never used it before."""

    def __init__(self, path: Path, stack: StackFile) -> None:
        self.path = path
        for name in (".venv", "local"):
            (path / name).symlink_to(PROJECT_FOLDER / name)
        (path / ".local" / "stack").mkdir(parents=True)
        (path / ".local" / "stack" / "stack.json").write_text(stack.model_dump_json())

    def run(self, script: str, **variables: str) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.path), "no_proxy": "127.0.0.1", **variables}
        with subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", re.sub(r"\b9000\b", str(RECEIVER_PORT), script)],
            cwd=self.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=PATIENCE_SECONDS)
            finally:
                # What it left in the background goes with it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, printed
        return printed


@pytest.fixture
def folder(tmp_path: Path, stack: StackFile) -> Folder:
    return Folder(tmp_path, stack)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_run_and_show_what_they_promise(document: Path, folder: Folder) -> None:
    script = "\n".join(block["text"] for block in blocks(document) if block["mark"] == "tested")

    printed = folder.run(script)

    assert [text for text in SEEN[document.name] if text.lower() not in printed.lower()] == [], printed


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_is_run_or_read(document: Path) -> None:
    marks = {"sh": {"tested", "by hand"}, "yaml": {"workflow"}, "python": {"tested python"}, "mermaid": {""}}
    left = [block for block in blocks(document) if block["mark"] not in marks.get(block["language"], set())]
    assert left == []


def test_make_targets_that_the_documents_name_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT_FOLDER / "Makefile").read_text(), re.MULTILINE))
    named = {
        target
        for document in DOCUMENTS
        for block in blocks(document)
        if block["mark"] == "by hand"
        for target in re.findall(r"^make ([a-z-]+)", block["text"], re.MULTILINE)
    }
    assert named
    assert named <= targets


def steps_of_the_workflow() -> tuple[dict[str, str], list[dict[str, Any]]]:
    document = PROJECT_FOLDER / "docs" / "tutorials" / "ci-pipeline.md"
    (block,) = [block for block in blocks(document) if block["mark"] == "workflow"]
    workflow: Any = yaml.safe_load(block["text"])
    (job,) = workflow["jobs"].values()
    return workflow["env"], job["steps"]


def test_steps_of_the_workflow_run_and_run_again_without_a_second_effect(folder: Folder, stack: StackFile) -> None:
    admin = {"EVALWARD_API_URL": stack.api_url, "EVALWARD_API_KEY": stack.admin_key}
    path = f"{folder.path}/.venv/bin:{os.environ['PATH']}"
    folder.run("evalward projects create shop-workflow", PATH=path, **admin)
    secret = folder.run("evalward keys create ci --grant shop-workflow=editor 2>/dev/null", PATH=path, **admin).strip()
    tutorial = PROJECT_FOLDER / "docs" / "tutorials" / "ci-pipeline.md"
    (files,) = [block["text"] for block in blocks(tutorial) if "cat > run.yaml" in block["text"]]
    folder.run(files)
    variables, steps = steps_of_the_workflow()
    given = {
        "vars.EVALWARD_API_URL": stack.api_url,
        "secrets.EVALWARD_API_KEY": secret,
        "github.run_id": "1700000001",
        "github.sha": "0" * 40,
    }

    def fill(text: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: given[match[1]], text)

    environment = {name: fill(value) for name, value in variables.items()} | {
        "PATH": path,
        "EVALWARD_PROJECT": "shop-workflow",
        "GITHUB_STEP_SUMMARY": str(folder.path / "summary.md"),
        "GITHUB_REF_NAME": "main",
    }
    # The package is installed already.
    scripts = [fill(step["run"]) for step in steps if "run" in step and "pip install" not in step["run"]]
    assert len(scripts) == 3

    for _ in range(2):
        for script in scripts:
            folder.run(script, **environment)

    runs = json.loads(folder.run("evalward runs list --json", **environment))["items"]
    assert [run["labels"]["branch"] for run in runs] == ["main"]
    assert (folder.path / "report.html").read_text().startswith("<!doctype html>")
    assert "<testsuite" in (folder.path / "report.xml").read_text()
    assert (folder.path / "summary.md").read_text().startswith("# ")
