"""Commands against a service that answers as it is told."""

from __future__ import annotations

import io
import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from evalward.client import Client
from evalward.command_line.exit_codes import ExitCode

from .conftest import KEY, URL, Call, KilledError, Service, problem

RUN: dict[str, Any] = {"id": "r-1", "state": "succeeded", "progress": {"total": 1, "done": 1}, "error": None}


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


@pytest.mark.parametrize(
    ("state", "status", "advice"),
    [
        ("succeeded", ExitCode.DONE, ""),
        ("failed", ExitCode.GATE_FAILED, " `evalward runs report r-1` says which gate failed."),
        (
            "cancelled",
            ExitCode.RUN_NOT_FINISHED,
            " `evalward runs resume r-1 --wait` goes on with what has no result.",
        ),
    ],
)
def test_quiet_prints_the_id_also_when_it_waits(
    service: Service, call: Call, tmp_path: Path, state: str, status: ExitCode, advice: str
) -> None:
    (tmp_path / "run.yaml").write_text("name: nightly\n")
    service.answers = [httpx.Response(202, json=RUN), httpx.Response(200, json={**RUN, "state": state})]
    ended = call("runs", "create", "-f", "run.yaml", "--wait", "--quiet")
    assert (ended.status, ended.out) == (status, "r-1\n")
    assert ended.err == f"Run r-1: {state}.{advice}\n"


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


def projects(*ids: str) -> httpx.Response:
    return httpx.Response(200, json={"items": [{"id": name} for name in ids], "next_cursor": None})


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (("demos", "shop"), "This key sees no project demo. Did you mean demos? It sees demos, shop ("),
        (("shop",), "This key sees no project demo. It sees shop ("),
        (tuple("abcdef"), "It sees a, b, c, d, e, … (`evalward projects list`)."),
        ((), "This key sees no project: `evalward whoami`"),
        (("demo",), "The project demo is there; "),
    ],
)
@pytest.mark.parametrize("command", [("runs", "list"), ("projects", "show", "demo")], ids=" ".join)
def test_what_is_not_found_is_told_with_the_projects_that_the_key_sees(
    service: Service, call: Call, command: tuple[str, ...], seen: tuple[str, ...], told: str
) -> None:
    service.answers = [problem(404, "not_found"), projects(*seen), problem(404, "not_found"), projects(*seen)]
    ended = call(*command)
    assert ended.status == ExitCode.REFUSED
    assert told in ended.err
    assert told in json.loads(call(*command, "--json").err)["error"]["advice"]


def test_a_refusal_is_told_with_the_page_that_explains_it(service: Service, call: Call) -> None:
    service.answers = [problem(409, "run_ended", type="/docs#run_ended"), problem(409, "x", type="https://else.where")]
    assert f"\n{URL}/docs#run_ended says what it means.\n" in call("runs", "cancel", "r-1").err
    assert "else.where" not in call("runs", "cancel", "r-1").err


def test_what_is_not_found_is_told_also_when_the_projects_cannot_be_read(service: Service, call: Call) -> None:
    service.answers = [problem(404, "not_found"), problem(401, "unauthenticated")]
    assert "`evalward projects list`" in call("runs", "list").err


def test_a_dataset_that_is_not_there_is_told_with_the_one_that_was_meant(service: Service, call: Call) -> None:
    there = httpx.Response(200, json={"items": [{"name": "answers"}], "next_cursor": None})
    service.answers = [projects(), there]
    assert "no dataset answer. Did you mean answers?" in call("datasets", "show", "answer").err


def named(run_id: str, name: str = "nightly", state: str = "succeeded", source: str | None = None) -> dict[str, Any]:
    return {**RUN, "id": run_id, "name": name, "state": state, "source": {"id": source} if source else None}


# Newest first.
RUNS = [
    named("r-9", "other"),
    named("r-8"),
    named("r-7", "other"),
    named("r-6", state="error"),
    named("r-5", source="hourly"),
    named("r-4", state="failed"),
    named("r-3"),
]
COMPARISON = {"metrics": [], "not_compared": [], "same_dataset": True}


def answer_about_runs(request: httpx.Request) -> httpx.Response:
    """Answer as a project with those runs."""
    path = request.url.path.rpartition("/")[2]
    if path == "runs":
        return httpx.Response(200, json={"items": RUNS[: int(request.url.params["limit"])], "next_cursor": None})
    if path == "runs:compare":
        return httpx.Response(200, json={**COMPARISON, **request.url.params})
    found = next((run for run in RUNS if run["id"] == path), None)
    return httpx.Response(200, json=found) if found else problem(404, "not_found")


@pytest.fixture
def project_with_runs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command see those runs."""
    del call
    connected = partial(Client, http=httpx.MockTransport(answer_about_runs))
    monkeypatch.setattr("evalward.command_line.session.Client", connected)


@pytest.mark.parametrize(
    ("baseline", "candidate", "compared"),
    [
        ("r-3", "latest", ("r-3", "r-9")),
        ("latest", "r-3", ("r-9", "r-3")),
        ("previous", "latest", ("r-7", "r-9")),
        ("latest", "previous", ("r-9", "r-7")),
        ("previous", "r-8", ("r-4", "r-8")),
        ("r-4", "previous", ("r-4", "r-3")),
    ],
)
def test_runs_are_compared_by_words(
    call: Call, project_with_runs: None, baseline: str, candidate: str, compared: tuple[str]
) -> None:
    del project_with_runs
    answer = json.loads(call("runs", "compare", baseline, candidate, "--json").out)
    assert (answer["baseline"], answer["candidate"]) == compared


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("previous", "previous"), "cannot both be `previous`"),
        (("previous", "r-3"), "no run with a report that was created before r-3"),
        (("lastest", "r-3"), "lastest is no id of a run. Did you mean latest?"),
        (("r-3", "previuos"), "Did you mean previous?"),
    ],
)
def test_a_previous_run_that_is_none_is_told(
    call: Call, project_with_runs: None, arguments: tuple[str, ...], told: str
) -> None:
    del project_with_runs
    ended = call("runs", "compare", *arguments)
    assert ended.status == ExitCode.USAGE
    assert told in ended.err


def test_previous_is_the_run_before_the_latest_of_its_name(call: Call, project_with_runs: None) -> None:
    del project_with_runs
    assert json.loads(call("runs", "show", "previous", "--json").out)["id"] == "r-7"
    assert json.loads(call("runs", "show", "latest", "--json").out)["id"] == "r-9"


WRITES = {
    "cancel": ("runs", "cancel", "latest"),
    "resume": ("runs", "resume", "latest"),
    "label": ("runs", "label", "latest", "a=1"),
    "delete": ("runs", "delete", "latest", "--yes"),
}


@pytest.mark.parametrize("command", WRITES.values(), ids=WRITES)
def test_a_write_to_the_latest_run_goes_on_with_the_run_it_found(
    service: Service, call: Call, command: tuple[str, ...]
) -> None:
    # Killed while it waits for the answer.
    service.answers = [httpx.Response(200, json={"items": [named("r-1")]})]
    with pytest.raises(KilledError):
        call(*command)
    service.answers = [httpx.Response(200, json=named("r-1"))]
    assert call(*command).status == ExitCode.DONE
    written = [request for request in service.requests if request.method != "GET"]
    assert [request.url.path.split("/")[5] for request in written] == ["r-1", "r-1"]
    assert len({request.headers["idempotency-key"] for request in written}) == 1
    assert len(service.requests) == 3, "the word is looked up once"


@pytest.mark.parametrize("command", WRITES.values(), ids=WRITES)
def test_a_word_that_is_misspelt_is_no_id(service: Service, call: Call, command: tuple[str, ...]) -> None:
    ended = call(*command[:2], "lates", *command[3:])
    assert (ended.status, ended.err) == (ExitCode.USAGE, "lates is no id of a run. Did you mean latest?\n")
    assert service.requests == []


def test_the_latest_run_is_asked_for_before_it_is_deleted(service: Service, call: Call) -> None:
    service.answers = [httpx.Response(200, json={"items": [named("r-1")]})]
    ended = call("runs", "delete", "latest")
    assert ended.status == ExitCode.USAGE
    assert [request.method for request in service.requests] == ["GET"]


def test_an_import_is_asked_for_with_all_that_the_api_takes(service: Service, call: Call) -> None:
    made = {"id": "i-1", "state": "queued"}
    service.answers = [httpx.Response(202, json=made), httpx.Response(202, json=made)]
    uri = "s3://b/datasets/incoming/demo/a.jsonl"
    assert call("imports", "create", uri, "--name", "a").status == ExitCode.DONE
    options = ("--format", "jsonl", "--map", "output=/a/b=c", "--map", "input=/q", "--replace-nul", "--validate-only")
    assert call("imports", "create", uri, "--name", "a", *options).status == ExitCode.DONE
    plain, full = (json.loads(request.content) for request in service.requests)
    assert plain == {"name": "a", "uri": uri}
    mapping = {"output": "/a/b=c", "input": "/q"}
    assert full == {**plain, "format": "jsonl", "mapping": mapping, "nul": "replace", "validate_only": True}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--map", "output"), "--map 'output' is not key=value, such as output=/answer/text.\n"),
        (("--map", "output=/a", "--map", "output=/b"), "--map output is given twice: '/a' and '/b'.\n"),
    ],
)
def test_a_mapping_that_is_none_is_told(service: Service, call: Call, given: tuple[str, ...], told: str) -> None:
    ended = call("imports", "create", "s3://b/a.jsonl", "--name", "a", *given)
    assert (ended.status, ended.err) == (ExitCode.USAGE, told)
    assert service.requests == []


@pytest.mark.parametrize("kind", ["results", "outputs"])
def test_lines_come_page_by_page(service: Service, call: Call, kind: str) -> None:
    pages = [
        {"items": [{"record": "1", "output": "\x9bhi"}, {"record": "2"}], "next_cursor": "c"},
        {"items": [{"record": "3"}], "next_cursor": None},
    ]
    service.answers = [httpx.Response(200, json=page) for page in pages]
    out = call("runs", kind, "r-1", "--jsonl").out
    assert [json.loads(line)["record"] for line in out.splitlines()] == ["1", "2", "3"]
    assert "\x9b" not in out

    # What was printed before a failure stays, and nobody reads further than was asked for.
    service.answers = [httpx.Response(200, json=pages[0]), problem(403, "permission_denied")]
    ended = call("runs", kind, "r-1", "--jsonl")
    assert (ended.status, len(ended.out.splitlines())) == (ExitCode.REFUSED, 2)
    assert json.loads(ended.err)["error"]["code"] == "permission_denied"
    service.answers = [httpx.Response(200, json=pages[0])]
    assert len(call("runs", kind, "r-1", "--jsonl", "--limit", "2").out.splitlines()) == 2


def test_a_dash_is_the_standard_output(service: Service, call: Call, tmp_path: Path) -> None:
    service.answers = [httpx.Response(200, content=b"# report\n")]
    ended = call("runs", "report", "r-1", "--format", "md", "-o", "-")
    assert (ended.status, ended.out, ended.err) == (ExitCode.DONE, "# report\n", "")
    assert not (tmp_path / "-").exists()


def imported(state: str, **fields: Any) -> httpx.Response:
    return httpx.Response(
        202 if state == "queued" else 200, json={"id": "i-1", "state": state, "error": None, **fields}
    )


IMPORT = ("imports", "create", "s3://b/datasets/incoming/demo/a.jsonl", "--name", "a", "--wait")


def test_an_import_is_waited_for(service: Service, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalward.command_line.imports._POLL_SECONDS", 0)
    service.answers = [imported("queued"), imported("running"), imported("succeeded")]
    assert json.loads(call(*IMPORT, "--json").out)["state"] == "succeeded"
    assert len(service.requests) == 3


def test_an_import_that_failed_is_told_place_by_place(
    service: Service, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalward.command_line.imports._POLL_SECONDS", 0)
    error = {"code": "dataset_invalid", "detail": "1 error.", "errors": [{"row": 7, "field": "/id", "message": "bad"}]}
    service.answers = [imported("queued"), imported("failed", error=error)] * 2
    ended = call(*IMPORT)
    assert (ended.status, ended.out) == (ExitCode.REFUSED, "")
    assert ended.err.startswith("The import failed: 1 error.\n  row 7 /id: bad\n")
    assert json.loads(call(*IMPORT, "--json").err)["error"]["code"] == "dataset_invalid"


def test_an_import_of_nothing_is_told(service: Service, call: Call) -> None:
    error = {"code": "object_not_found", "detail": "There is no object.", "errors": []}
    service.answers = [imported("queued"), imported("failed", error=error)]
    told = ["The import failed: There is no object.", "Mend it, then send the same command again."]
    assert call(*IMPORT).err.splitlines() == told


def test_an_import_that_takes_longer_is_told(service: Service, call: Call) -> None:
    service.answers = [imported("queued"), imported("running")]
    ended = call(*IMPORT, "--wait-seconds", "0")
    assert ended.status == ExitCode.WAITED_IN_VAIN
    assert ended.err.endswith("`evalward imports show i-1` says what becomes of it.\n")
