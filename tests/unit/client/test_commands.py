"""Commands against a service that answers as it is told."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from evalward.client import Client
from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.main import main
from evalward.command_line.output import OUTPUT

from .conftest import KEY, URL, Service

RUN: dict[str, Any] = {"id": "r-1", "state": "succeeded", "progress": {"total": 1, "done": 1}, "error": None}


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


type Call = Callable[..., Ended]


@pytest.fixture
def call(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs the command in this process."""
    connected = partial(Client, http=httpx.MockTransport(service.handle))
    for module in ("login", "session"):
        monkeypatch.setattr(f"evalward.command_line.{module}.Client", connected)
    variables = {"EVALWARD_API_URL": URL, "EVALWARD_API_KEY": KEY, "EVALWARD_PROJECT": "demo"}
    for name, value in {**variables, "HOME": str(tmp_path), "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(OUTPUT, "is_json", False)
        monkeypatch.setattr(sys, "argv", ["evalward", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Ended(int(ended.value.code or 0), told.out, told.err)

    return run


@pytest.mark.parametrize(
    ("command", "answers"),
    [
        (("runs", "report", "r-1", "-o", "none/report.html"), [httpx.Response(200, content=b"<html>")]),
        (
            ("datasets", "content", "a" * 64, "--output", "none/rows.jsonl"),
            [
                httpx.Response(200, json={"sha256": "a" * 64}),
                httpx.Response(307, headers={"location": "https://store.example.com/x"}),
                httpx.Response(200, content=b"{}\n"),
            ],
        ),
    ],
    ids=["report", "content"],
)
def test_a_file_that_cannot_be_written_is_told(
    service: Service, call: Call, command: tuple[str, ...], answers: list[httpx.Response]
) -> None:
    service.answers = [*answers]
    ended = call(*command)
    assert ended.status == ExitCode.USAGE
    assert ended.err == f"{command[-1]} cannot be written: No such file or directory.\n"


@pytest.mark.parametrize(
    ("labels", "sent"), [("", {"a": "1"}), ("labels:", {"a": "1"}), ("labels: {b: '2'}", {"a": "1", "b": "2"})]
)
def test_labels_are_added_to_the_files(
    service: Service, call: Call, tmp_path: Path, labels: str, sent: dict[str, str]
) -> None:
    (tmp_path / "run.yaml").write_text(f"name: nightly\n{labels}\n")
    service.answers = [httpx.Response(202, json=RUN)]
    assert call("runs", "create", "-f", "run.yaml", "--label", "a=1").status == ExitCode.DONE
    assert json.loads(service.requests[0].content)["labels"] == sent


def test_labels_are_not_added_to_what_are_none(service: Service, call: Call, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("labels: [a]\n")
    ended = call("runs", "create", "-f", "run.yaml", "--label", "a=1")
    assert ended.status == ExitCode.USAGE
    assert "key: value" in ended.err
    assert service.requests == []


@pytest.mark.parametrize(("state", "status"), [("succeeded", ExitCode.DONE), ("failed", ExitCode.GATE_FAILED)])
def test_quiet_prints_the_id_also_when_it_waits(
    service: Service, call: Call, tmp_path: Path, state: str, status: ExitCode
) -> None:
    (tmp_path / "run.yaml").write_text("name: nightly\n")
    service.answers = [httpx.Response(202, json=RUN), httpx.Response(200, json={**RUN, "state": state})]
    ended = call("runs", "create", "-f", "run.yaml", "--wait", "--quiet")
    assert (ended.status, ended.out) == (status, "r-1\n")
    assert ended.err == f"Run r-1: {state}.\n"


@pytest.mark.parametrize(("option", "printed"), [((), "answers@3\n"), (("--validate-only",), "")])
def test_quiet_prints_the_version_that_was_published(
    service: Service, call: Call, tmp_path: Path, option: tuple[str, ...], printed: str
) -> None:
    (tmp_path / "answers.jsonl").write_text('{"input": "one"}\n')
    service.answers = [httpx.Response(201, json={"name": "answers", "version": 3, "sha256": "a" * 64})]
    ended = call("datasets", "publish", "answers.jsonl", "--quiet", *option)
    assert (ended.status, ended.out, ended.err) == (ExitCode.DONE, printed, "")


@pytest.mark.parametrize(("columns", "is_whole"), [(120, True), (50, False)])
def test_ids_and_instants_are_broken_only_where_there_is_no_room(
    service: Service, call: Call, monkeypatch: pytest.MonkeyPatch, columns: int, is_whole: bool
) -> None:
    run_id = str(UUID(int=7))
    run = {**RUN, "id": run_id, "name": "answers " * 20, "dataset": {"name": "answers", "version": 1}}
    run |= {"created_at": "2026-12-01T03:20:02.529062Z", "source": None}
    for name, value in {"COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    service.answers = [httpx.Response(200, json={"items": [run], "next_cursor": None})]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", call("runs", "list").out)
    assert (run_id in shown, "2026-12-01T03:20:02Z" in shown) == (is_whole, is_whole)
    assert max(map(len, shown.splitlines())) <= columns
    # Broken or not, all of it is there.
    rows = shown[shown.rindex("─") + 2 :].splitlines()
    assert "".join(line.split()[0] for line in rows if line[0] != " ") == run_id


def test_the_doctor_tells_figures_and_leaves_the_rest_to_json(service: Service, call: Call) -> None:
    check = {"id": "capacity", "status": "unhealthy", "summary": "no receipt", "remediation": "Wait an hour."}
    answer = {"checks": [{**check, "evidence": {"age": None, "limit": 10800, "entries": {"jobs": {"bytes": 1}}}}]}
    service.answers = [httpx.Response(200, json=answer), httpx.Response(200, json=answer)]
    ended = call("doctor")
    assert ended.status == ExitCode.UNHEALTHY
    assert ended.err == "capacity: Wait an hour.\n  limit 10800\n`evalward doctor --json` has all the evidence.\n"
    assert json.loads(call("doctor", "--json").out) == answer


def test_a_login_without_a_key_says_how_to_give_one(service: Service, call: Call) -> None:
    ended = call("login", URL)
    assert ended.status == ExitCode.USAGE
    assert "--key-stdin" in ended.err
    assert service.requests == []


def test_a_login_is_as_patient_as_it_is_told(
    service: Service, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    monkeypatch.setenv("EVALWARD_PATIENCE_SECONDS", "0")
    service.answers = [httpx.Response(503)]
    assert call("login", URL, "--key-stdin").status == ExitCode.REFUSED
    assert len(service.requests) == 1
    assert list(tmp_path.rglob("login.json")) == []


@pytest.mark.parametrize("command", [("audit",), ("projects", "list")], ids=" ".join)
def test_lists_are_read_page_by_page(service: Service, call: Call, command: tuple[str, ...]) -> None:
    service.answers = [
        httpx.Response(200, json={"items": [{"id": "1"}, {"id": "2"}], "next_cursor": "c"}),
        httpx.Response(200, json={"items": [{"id": "3"}], "next_cursor": None}),
    ]
    listed = json.loads(call(*command, "--json").out)
    assert listed == {"items": [{"id": "1"}, {"id": "2"}, {"id": "3"}], "more": False}
    assert [request.url.params.get("cursor") for request in service.requests] == [None, "c"]

    service.answers = [httpx.Response(200, json={"items": [{"id": "1"}, {"id": "2"}], "next_cursor": "c"})]
    assert json.loads(call(*command, "--limit", "1", "--json").out) == {"items": [{"id": "1"}], "more": True}


MAKE = {
    "key": ("keys", "create", "ci", "--grant", "demo=viewer"),
    "webhook": ("webhooks", "create", "ci", "--url", "https://example.com", "--event", "run.finished"),
}


@pytest.mark.parametrize("kind", MAKE)
def test_a_secret_is_alone_on_the_standard_output(service: Service, call: Call, kind: str) -> None:
    made = {"id": "ci", "secret": "s3cret"}
    service.answers = [httpx.Response(201, json=made), httpx.Response(201, json=made)]
    ended = call(*MAKE[kind])
    assert (ended.status, ended.out) == (ExitCode.DONE, "s3cret\n")
    assert json.loads(call(*MAKE[kind], "--json").out) == made


@pytest.mark.parametrize("kind", MAKE)
def test_a_secret_that_was_lost_is_not_passed_off_as_one(service: Service, call: Call, kind: str) -> None:
    service.answers = [httpx.Response(201, json={"id": "ci"}), httpx.Response(201, json={"id": "ci"})]
    ended = call(*MAKE[kind])
    assert (ended.status, ended.out) == (ExitCode.REFUSED, "")
    assert f"`evalward {kind}s delete ci`" in ended.err
    assert call(*MAKE[kind], "--json").status == ExitCode.REFUSED


@pytest.mark.parametrize(
    ("command", "word"),
    [
        (("keys", "delete"), "deleted"),
        (("runs", "delete"), "deleted"),
        (("webhooks", "delete"), "deleted"),
        (("sources", "retire"), "retired"),
    ],
    ids=" ".join,
)
def test_what_is_gone_is_told(service: Service, call: Call, command: tuple[str, ...], word: str) -> None:
    service.answers = [httpx.Response(204), httpx.Response(204)]
    ended = call(*command, "one", "--yes")
    assert (ended.out, ended.err) == ("", f"{word.capitalize()} one.\n")
    assert json.loads(call(*command, "one", "--yes", "--json").out) == {word: "one"}


@pytest.mark.parametrize(
    "command",
    [
        *(("datasets", "delete"), ("keys", "delete"), ("pending", "forget")),
        *(("runs", "delete"), ("sources", "retire"), ("webhooks", "delete")),
    ],
    ids=" ".join,
)
def test_what_is_gone_for_good_is_asked_for(service: Service, call: Call, command: tuple[str, ...]) -> None:
    service.answers = [httpx.Response(200, json={"items": [{"name": "one", "version": 1, "records": 3}]})]
    ended = call(*command, "one")
    assert ended.status == ExitCode.USAGE
    assert "--yes" in ended.err
    assert [request.method for request in service.requests] in ([], ["GET"])
