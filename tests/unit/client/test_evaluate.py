"""`evalward evaluate`: frames out of a file, faults held to its lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from evalward.command_line.exit_codes import ExitCode
from evalward.errors import ConfigurationError
from evalward.evaluation import MAX_BYTES, read_frames

from .conftest import Call, Service, problem

RESULT = {"evaluator": "exact_match", "status": "scored", "score": 1.0, "passed": True, "error": None}
FRAMES: list[dict[str, Any]] = [
    {"record": "1", "results": [RESULT]},
    {"record": "2", "results": [RESULT], "output": "made\x1b[31m"},
    {
        "summary": {
            "metrics": [
                {"id": "exact_match", "n": 2, "mean": 1, "ci_low": 0.3, "ci_high": 1, "skipped": 0, "errors": 0}
            ]
        }
    },
]
type Write = Callable[[str], Path]


def answer(*frames: dict[str, Any]) -> httpx.Response:
    content = "".join(json.dumps(frame) + "\n" for frame in frames)
    return httpx.Response(200, content=content, headers={"content-type": "application/x-ndjson"})


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(text: str) -> Path:
        path = tmp_path / "few.jsonl"
        path.write_text(text)
        return path

    return make


def test_records_go_behind_the_settings_under_a_key(service: Service, call: Call, write: Write) -> None:
    write('\ufeff{"id": "1"}\r\n\n{"id": "2"}')
    service.answers = [answer(*FRAMES)]
    ended = call("evaluate", "few.jsonl", "-e", "exact_match", "-e", "token_f1")
    (request,) = service.requests
    settings, *records = request.content.split(b"\n")
    assert json.loads(settings) == {"evaluators": [{"name": "exact_match"}, {"name": "token_f1"}]}
    assert records == [b'{"id": "1"}', b'{"id": "2"}', b""]
    assert request.headers["idempotency-key"].startswith("evalward-")
    assert (ended.status, ended.err) == (ExitCode.DONE, "")
    assert "made" in ended.out
    assert "\x1b" not in ended.out
    assert "95 % from" in ended.out


def test_settings_stand_in_a_file_or_in_the_first_line(
    service: Service, call: Call, write: Write, tmp_path: Path
) -> None:
    write('{"id": "1"}\n')
    (tmp_path / "settings.yaml").write_text("evaluators: [{name: contains, params: {text: a}}]\n")
    service.answers = [answer(*FRAMES), answer(*FRAMES)]
    call("evaluate", "few.jsonl", "-f", "settings.yaml", "-e", "exact_match")
    write('{"evaluators": []}\n{"id": "1"}\n')
    call("evaluate", "few.jsonl")
    sent = [request.content.splitlines() for request in service.requests]
    assert json.loads(sent[0][0])["evaluators"] == [
        {"name": "contains", "params": {"text": "a"}},
        {"name": "exact_match"},
    ]
    assert sent[1] == [b'{"evaluators": []}', b'{"id": "1"}']


def test_json_is_one_document_or_a_line_each(service: Service, call: Call, write: Write) -> None:
    write('{"id": "1"}\n')
    service.answers = [answer(*FRAMES), answer(*FRAMES)]
    command = ("evaluate", "few.jsonl", "-e", "exact_match")
    assert json.loads(call(*command, "--json").out) == {"items": FRAMES[:2], "summary": FRAMES[2]["summary"]}
    assert [json.loads(line) for line in call(*command, "--jsonl").out.splitlines()] == FRAMES


def test_records_come_from_the_standard_input(service: Service, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"id": "1"}\n')))
    service.answers = [answer(*FRAMES)]
    assert call("evaluate", "-", "-e", "exact_match").status == ExitCode.DONE
    assert service.requests[0].content.endswith(b'\n{"id": "1"}\n')
    assert "cannot be both" in call("evaluate", "-", "-f", "-").err


FAULTS = [{"pointer": "/2/id", "message": "is wrong"}, {"pointer": "/2", "message": "is no record"}]


@pytest.mark.parametrize(
    ("settings", "text", "places"),
    [
        (("-e", "exact_match"), '{"id": "1"}\n\n{"id": 1.5}\n', ["line 3 /id: is wrong", "line 3: is no record"]),
        ((), '{"evaluators": []}\n\n\n{"id": "1"}\n{"id": 1.5}\n', ["line 5 /id: is wrong", "line 5: is no record"]),
    ],
    ids=["options", "first line"],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["refused", "after a record"])
def test_a_fault_is_told_with_the_line_it_stands_in(
    service: Service, call: Call, write: Write, settings: tuple[str, ...], text: str, places: list[str], is_late: bool
) -> None:
    write(text)
    refused = problem(400, "invalid_request", errors=FAULTS)
    service.answers = [answer(FRAMES[0], {"error": refused.json()}) if is_late else refused]
    ended = call("evaluate", "few.jsonl", *settings)
    assert ended.status == ExitCode.REFUSED
    assert ended.err.splitlines()[0] == "Title: 2 things to correct."
    assert [line.strip() for line in ended.err.splitlines()[1:3]] == places
    assert ("exact_match" in ended.out) is is_late


def test_a_fault_of_settings_that_are_options_has_no_line(service: Service, call: Call, write: Write) -> None:
    write('{"id": "1"}\n')
    fault = {"pointer": "/0/evaluators/0/name", "message": "is unknown"}
    service.answers = [problem(400, "invalid_request", errors=[fault]), problem(400, "invalid_request", errors=[fault])]
    command = ("evaluate", "few.jsonl", "-e", "exactly")
    assert "  the settings /evaluators/0/name: is unknown\n" in call(*command).err
    (told,) = json.loads(call(*command, "--json").err)["error"]["errors"]
    assert told == {"pointer": "/evaluators/0/name", "message": "is unknown", "line": None}


@pytest.mark.parametrize(
    ("content", "settings", "told"),
    [
        (b"", {"evaluators": []}, "the file holds no record"),
        (b"", None, "the file holds no record"),
        (b'\n{"input": "q"}\n{}\n', None, "the file, line 2: these are no settings"),
        (b"[]\n{}\n", None, "the file, line 1: these are no settings"),
        (b"{\n{}\n", None, "the file, line 1: these are no settings"),
        (b'{"evaluators": []}\n', None, "the file holds no record"),
        (b'{"id": 1}\n' + b"x" * MAX_BYTES, {}, "the file, line 2: "),
        (b"12345678\n" * (MAX_BYTES // 9 + 1), {}, f"the file, line {MAX_BYTES // 9 + 1}: "),
    ],
    ids=["nothing", "nothing at all", "no settings", "a list", "no JSON", "settings only", "a long line", "many lines"],
)
def test_what_is_no_request_is_told(content: bytes, settings: dict[str, Any] | None, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_frames(io.BytesIO(content), "the file", settings)
    assert str(refused.value).startswith(told)


def test_no_more_is_read_than_one_request_takes() -> None:
    class Endless(io.RawIOBase):
        given = 0

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any, /) -> int:
            buffer[:] = b"x" * len(buffer)
            self.given += len(buffer)
            return len(buffer)

    endless = Endless()
    with pytest.raises(ConfigurationError):
        read_frames(io.BufferedReader(endless), "the file", {})
    assert endless.given < MAX_BYTES + 2 * io.DEFAULT_BUFFER_SIZE


@pytest.mark.parametrize(
    ("first", "has_target"),
    [(b'{"evaluators": []}', False), (b'{"evaluators": [], "target": {"kind": "http"}}', True)],
)
def test_a_target_makes_a_second_time_matter(first: bytes, has_target: bool) -> None:
    assert read_frames(io.BytesIO(first + b"\n{}\n"), "the file").has_target is has_target


def test_an_answer_that_is_no_frames_is_not_taken_for_one(
    service: Service, call: Call, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALWARD_PATIENCE_SECONDS", "0")
    write('{"id": "1"}\n')
    service.answers = [httpx.Response(200, text="<html>", headers={"content-type": "text/html"}), answer(*FRAMES)]
    command = ("evaluate", "few.jsonl", "-e", "exact_match")
    assert call(*command).status == ExitCode.OUTCOME_UNKNOWN
    assert call(*command).status == ExitCode.DONE
    assert len(set(service.keys)) == 1
