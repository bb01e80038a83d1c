"""What the command prints and how it ends."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from evalward.command_line.exit_codes import ExitCode, of_error, of_run
from evalward.command_line.imports import describe_error
from evalward.command_line.main import app
from evalward.command_line.output import clean, print_json
from evalward.command_line.problem_text import advise, describe, print_error
from evalward.command_line.runs import is_regression
from evalward.errors import (
    ConfigurationError,
    EvalwardError,
    OutcomeUnknownError,
    ProblemError,
    StaleWriteError,
    UnreachableError,
    UploadRefusedError,
    WaitedInVainError,
)
from typer.main import get_command

PROGRAM = Path(sys.executable).with_name("evalward")


def run(tmp_path: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables}
    return subprocess.run(
        [PROGRAM, *arguments],
        env=environment,
        capture_output=True,
        encoding=variables.get("PYTHONIOENCODING", "utf-8"),
        check=False,
        stdin=subprocess.DEVNULL,
    )


ERRORS: list[tuple[EvalwardError, int, str]] = [
    (ProblemError({"status": 409, "code": "project_exists"}), 1, "project_exists"),
    (ProblemError({"status": 409, "code": "idempotency_uncertain"}), 6, "idempotency_uncertain"),
    (ProblemError({"status": 502, "code": "unknown", "title": "HTTP 502 Bad Gateway", "detail": ""}), 1, "unknown"),
    (UploadRefusedError("no"), 1, "upload_refused"),
    (ConfigurationError("no"), 2, "configuration"),
    (OutcomeUnknownError("runs.create", "k", "lost"), 6, "outcome_unknown"),
    (StaleWriteError("a", "runs.create", "then"), 6, "stale_write"),
    (UnreachableError("no"), 7, "unreachable"),
    (WaitedInVainError("no"), 8, "waited_in_vain"),
]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS, ids=[code for _, _, code in ERRORS])
def test_errors_have_their_exit_status_and_a_code(error: EvalwardError, status: int, code: str) -> None:
    assert of_error(error) == status
    described = describe(error)
    assert (described["code"], described["exit_code"]) == (code, status)
    assert described["detail"]


@pytest.mark.parametrize(
    "error",
    [
        *(error for error, _, code in ERRORS if code != "configuration"),
        ProblemError({"status": 400, "code": "invalid_request", "errors": [{"pointer": "/a", "message": "is wrong"}]}),
        ProblemError({"status": 409, "code": "project_exists"}, about="https://api.example.com/docs#project_exists"),
        ProblemError({"status": 429, "code": "too_many"}, retry_after_seconds=3),
        ProblemError({"status": 429, "code": "too_many"}),
        ProblemError({"status": 404, "code": "unknown"}),
    ],
    ids=lambda error: f"{type(error).__name__} {getattr(error, 'code', '')}",
)
def test_every_error_says_what_to_do_next(error: EvalwardError, capsys: pytest.CaptureFixture[str]) -> None:
    advice = advise(error)
    assert advice
    assert describe(error)["advice"] == advice
    print_error(error)
    assert advice in capsys.readouterr().err.splitlines()


PLACES: list[tuple[dict[str, Any], str]] = [
    ({"row": 3, "field": "input"}, "row 3 input"),
    ({"row": 3, "field": None}, "row 3"),
    ({"row": None, "field": None}, "the file"),
    ({"line": 3, "pointer": "/input"}, "line 3 /input"),
    ({"line": 3, "pointer": ""}, "line 3"),
    ({"line": None, "pointer": "/evaluators"}, "the settings /evaluators"),
    ({"pointer": "/evaluators/0"}, "/evaluators/0"),
    ({"pointer": ""}, "the body"),
]


@pytest.mark.parametrize(("place", "words"), PLACES, ids=[words for _, words in PLACES])
def test_a_fault_is_told_with_its_place(place: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ProblemError({"status": 422, "code": "x", "errors": [{**place, "message": "is wrong"}]}))
    assert f"\n  {words}: is wrong\n" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "words"), PLACES[:3], ids=[words for _, words in PLACES[:3]])
def test_a_failed_import_is_told_with_the_first_place(place: dict[str, Any], words: str) -> None:
    error = {"detail": "It is no dataset.", "errors": [{**place, "message": "is wrong"}, {"row": 9, "field": None}]}
    assert describe_error({"error": error}) == f"It is no dataset. ({words}: is wrong)"
    assert describe_error({"error": {"detail": "It is gone.", "errors": []}}) == "It is gone."
    told = {"detail": "1 error; the first, in row 7: is wrong.", "errors": [{**place, "message": "is wrong"}]}
    assert describe_error({"error": told}) == told["detail"]
    assert describe_error({"error": None}) == ""


def test_runs_have_their_exit_status() -> None:
    statuses = {state: int(of_run(state)) for state in ("succeeded", "failed", "error", "cancelled")}
    assert statuses == {"succeeded": 0, "failed": 3, "error": 5, "cancelled": 5}


@pytest.mark.parametrize(
    ("better", "low", "high", "is_worse"),
    [
        ("higher", -0.2, -0.1, True),
        ("higher", -0.2, 0.0, False),
        ("higher", 0.1, 0.2, False),
        ("lower", 0.1, 0.2, True),
        ("lower", 0.0, 0.2, False),
        ("lower", -0.2, -0.1, False),
        (None, -0.2, -0.1, False),
        ("higher", None, None, False),
    ],
)
def test_a_regression_is_beyond_doubt(
    better: str | None, low: float | None, high: float | None, is_worse: bool
) -> None:
    assert is_regression({"better": better, "ci_low": low, "ci_high": high}) is is_worse


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\x07b", "a\x9bb", "safe\u202eexe", "\r overwritten"])
def test_a_text_of_somebody_elses_commands_no_terminal(text: str) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", clean(text))
    assert "\N{REPLACEMENT CHARACTER}" in clean(text)


def test_json_says_the_same_and_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"name": "a\x1b\x7f\x9b\u202e\nb", "list": ["Z\u00fcrich", 1.5, None]}
    print_json(document)
    printed = capsys.readouterr().out
    assert json.loads(printed) == document
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", printed)
    assert "Z\u00fcrich" in printed


def commands(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        return [(path, command)]
    return [found for name, one in command.commands.items() for found in commands(one, (*path, name))]


COMMANDS = commands(get_command(app))


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])
def test_every_command_has_json_and_says_what_it_does(path: tuple[str, ...], command: Any) -> None:
    names = {name for parameter in command.params for name in parameter.opts}
    assert path in {("logout",), ("datasets", "content")} or "--json" in names
    assert command.help
    undocumented = [
        parameter.name
        for parameter in command.params
        if not getattr(parameter, "help", None) and parameter.name not in ("help", "import_id")
    ]
    assert undocumented == []


def test_without_a_login_the_command_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "runs", "list")
    assert done.returncode == ExitCode.USAGE
    assert "evalward login URL" in done.stderr
    assert done.stdout == ""


def test_an_error_is_json_when_json_was_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "runs", "list", "--json")
    assert json.loads(done.stderr)["error"]["code"] == "configuration"


def test_an_api_that_is_not_there_is_told(tmp_path: Path) -> None:
    variables = {
        "EVALWARD_API_URL": "https://127.0.0.1:9",
        "EVALWARD_API_KEY": "ew_x",
        "EVALWARD_PATIENCE_SECONDS": "0",
    }
    done = run(tmp_path, "whoami", **variables)
    assert done.returncode == ExitCode.UNREACHABLE
    assert "does not answer" in done.stderr
    assert "$HTTPS_PROXY" in done.stderr
    done = run(tmp_path, "projects", "create", "demo", **variables)
    assert done.returncode == ExitCode.UNREACHABLE
    assert run(tmp_path, "pending", "list", "--json").stdout == '{\n  "items": [],\n  "more": false\n}\n'


def test_nobody_is_asked_where_there_is_nobody(tmp_path: Path) -> None:
    variables = {"EVALWARD_API_URL": "https://127.0.0.1:9", "EVALWARD_API_KEY": "ew_x"}
    done = run(tmp_path, "keys", "delete", "a" * 16, **variables)
    assert done.returncode == ExitCode.USAGE
    assert "--yes" in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there(tmp_path: Path, shell: str) -> None:
    completed = run(
        tmp_path, _EVALWARD_COMPLETE=f"complete_{shell}", COMP_WORDS="evalward ru", COMP_CWORD="1",
        _TYPER_COMPLETE_ARGS="evalward ru", _TYPER_COMPLETE_FISH_ACTION="get-args",
    )  # fmt: skip
    assert "runs" in completed.stdout


def test_the_version_is_told(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", run(tmp_path, "--version").stdout)


def leave_pending(tmp_path: Path) -> None:
    folder = tmp_path / ".local" / "state" / "evalward" / "pending"
    folder.mkdir(parents=True)
    write = {
        "name": "a" * 32,
        "operation": "runs.create",
        "target": "Z\u00fcrich \U0001f600 \u2026",
        "started_at": "then",
    }
    (folder / f"{'a' * 32}.json").write_text(json.dumps({**write, "idempotency_key": "k"}))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_an_output_that_lacks_characters_shows_escapes(tmp_path: Path, encoding: str) -> None:
    leave_pending(tmp_path)
    done = run(tmp_path, "pending", "list", "--json", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert json.loads(done.stdout)["items"][0]["target"] == "Z\u00fcrich \U0001f600 \u2026"
    done = run(tmp_path, "pending", "list", PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.returncode == ExitCode.DONE, done.stderr
    assert ("\\U0001f600" in done.stdout) is (encoding != "utf-8")


@pytest.mark.parametrize("arguments", [("--json",), ()])
def test_a_reader_that_goes_ends_the_command_without_a_word(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    leave_pending(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [PROGRAM, "pending", "list", *arguments],
        env=environment, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    os.close(writing)
    assert (done.returncode, done.stderr) == (ExitCode.OUTPUT_CLOSED, b"")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_stream_is_no_crash(tmp_path: Path, closed: int) -> None:
    leave_pending(tmp_path)
    script = f'exec {closed}>&-; exec "$@"'
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "EVALWARD_API_KEY": "ew_x"}
    environment |= {"EVALWARD_API_URL": "https://127.0.0.1:9"}
    for arguments, status in ((("pending", "list"), ExitCode.DONE), (("keys", "delete", "a"), ExitCode.USAGE)):
        done = subprocess.run(
            ["bash", "-c", script, "sh", PROGRAM, *arguments],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "variables",
    [{"HTTPS_PROXY": "socks5://127.0.0.1:1"}, {"HTTPS_PROXY": "nonsense://x"}, {"SSL_CERT_FILE": "/none.pem"}],
    ids=["socks", "no proxy", "no certificates"],
)
def test_an_environment_that_cannot_be_used_is_told(tmp_path: Path, variables: dict[str, str]) -> None:
    login = {
        "EVALWARD_API_URL": "https://api.example.com",
        "EVALWARD_API_KEY": "ew_x",
        "EVALWARD_PATIENCE_SECONDS": "0",
    }
    done = run(tmp_path, "whoami", **login, **variables)
    assert done.returncode == ExitCode.USAGE, done.stderr
    assert "$HTTPS_PROXY" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_proxy_that_is_not_there_has_passed_nothing_on(tmp_path: Path) -> None:
    login = {
        "EVALWARD_API_URL": "https://api.example.com",
        "EVALWARD_API_KEY": "ew_x",
        "EVALWARD_PATIENCE_SECONDS": "0",
    }
    done = run(tmp_path, "projects", "create", "demo", HTTPS_PROXY="http://127.0.0.1:9", **login)
    assert done.returncode == ExitCode.UNREACHABLE, done.stderr


def interrupt(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Press Ctrl-C until the process ends: one that comes between question and reading is kept until the next."""
    for _ in range(10):
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    raise AssertionError("Ctrl-C does not end the question")


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [("n\n", ExitCode.REFUSED, "Nothing was done."), ("interrupt", ExitCode.INTERRUPTED, "Nothing was done.")],
)
def test_a_question_that_is_not_agreed_to_changes_nothing(
    tmp_path: Path, answer: str, status: ExitCode, told: str
) -> None:
    leave_pending(tmp_path)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [PROGRAM, "pending", "forget", "a" * 32],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stderr
        asked = b""
        while not asked.endswith(b"[y/N]:"):
            byte = process.stderr.read(1)
            assert byte, asked
            asked += byte
        if answer == "interrupt":
            printed, errors = interrupt(process)
        else:
            os.write(ours, answer.encode())
            printed, errors = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    # The space behind the question is the terminal's.
    assert (process.returncode, printed.strip()) == (status, b"")
    assert errors.decode().splitlines()[-1] == told
    assert len(json.loads(run(tmp_path, "pending", "list", "--json").stdout)["items"]) == 1


def test_a_login_without_a_key_in_the_standard_input_is_told(tmp_path: Path) -> None:
    done = run(tmp_path, "login", "https://127.0.0.1:9", "--key-stdin")
    assert done.returncode == ExitCode.USAGE
    assert "holds no key" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    leave_pending(tmp_path)
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [PROGRAM, "pending", "list", "--json"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, check=False, text=True,
        )  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert json.loads(done.stderr)["error"]["detail"].startswith("The standard output cannot be written: No space")


def test_a_text_that_is_none_is_told(tmp_path: Path) -> None:
    variables = {"EVALWARD_API_URL": "https://127.0.0.1:9", "EVALWARD_API_KEY": "ew_x"}
    done = subprocess.run(
        [PROGRAM, "projects", "create", "demo", "--description", b"Z\xfcrich"],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **variables},
        stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True,
    )  # fmt: skip
    assert done.returncode == ExitCode.USAGE
    assert "LC_ALL=C.UTF-8" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_system_without_file_locks_is_told(tmp_path: Path) -> None:
    script = "import sys; sys.modules['fcntl'] = None; import evalward"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: evalward runs on Linux and macOS; on Windows, in WSL."
