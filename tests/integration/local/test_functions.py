import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import ClientError
from evalward_local.stack_file import StackFile

REQUEST_LIMIT_BYTES = 6 * 1024 * 1024
RESPONSE_LIMIT_BYTES = 6_291_556


def error_code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


@pytest.fixture(scope="module")
def call(make_client: Callable[[str], Any]) -> Callable[..., tuple[Any, str | None]]:
    client = make_client("lambda")

    def invoke(event: Any, function: str = "evalward-ProbeFunction") -> tuple[Any, str | None]:
        answer = client.invoke(FunctionName=function, Payload=json.dumps(event).encode())
        return json.loads(answer["Payload"].read()), answer.get("FunctionError")

    return invoke


def test_a_function_gets_its_event_its_context_and_its_variables(call: Callable[..., tuple[Any, str | None]]) -> None:
    answer, error = call({"a": "é"})
    assert error is None
    assert answer["event"] == {"a": "é"}
    assert answer["bucket"].startswith("evalward-dropbucket")
    assert 0 < answer["remaining"] <= 20_000


def test_an_environment_is_used_again(call: Callable[..., tuple[Any, str | None]]) -> None:
    first, _ = call({})
    second, _ = call({})
    assert second["pid"] == first["pid"]
    assert second["invocation"] == first["invocation"] + 1
    assert second["request_id"] != first["request_id"]


def test_a_function_is_found_by_its_arn(call: Callable[..., tuple[Any, str | None]]) -> None:
    arn = "arn:aws:lambda:us-east-1:123456789012:function:evalward-ProbeFunction"
    assert call({"n": 1}, arn)[0]["event"] == {"n": 1}


def test_an_exception_is_an_unhandled_error(call: Callable[..., tuple[Any, str | None]]) -> None:
    answer, error = call({"do": "raise", "message": "as asked"})
    assert error == "Unhandled"
    assert (answer["errorType"], answer["errorMessage"]) == ("ValueError", "as asked")


def test_a_function_that_takes_too_long_is_killed_and_the_next_call_works(
    call: Callable[..., tuple[Any, str | None]],
) -> None:
    before, _ = call({}, "evalward-HastyFunction")
    answer, error = call({"do": "sleep", "seconds": 60}, "evalward-HastyFunction")
    assert error == "Unhandled"
    assert answer["errorType"] == "Sandbox.Timedout"
    assert answer["errorMessage"].endswith("Error: Task timed out after 1.00 seconds")
    assert (
        not Path(f"/proc/{before['pid']}/status").exists()
        or call({}, "evalward-HastyFunction")[0]["pid"] != before["pid"]
    )


def test_a_process_that_ends_is_an_exit_error_and_the_next_call_works(
    call: Callable[..., tuple[Any, str | None]],
) -> None:
    answer, error = call({"do": "exit", "status": 7})
    assert error == "Unhandled"
    assert answer["errorType"] == "Runtime.ExitError"
    assert answer["errorMessage"].endswith("exit status 7")
    assert call({"n": 2})[1] is None


def test_a_function_that_cannot_be_loaded_reports_why(call: Callable[..., tuple[Any, str | None]]) -> None:
    answer, error = call({}, "evalward-BrokenFunction")
    assert error == "Unhandled"
    assert answer["errorType"] == "Runtime.ImportModuleError"
    assert "nowhere" in answer["errorMessage"]


def test_a_response_of_exactly_the_limit_passes_and_one_byte_more_does_not(
    call: Callable[..., tuple[Any, str | None]],
) -> None:
    quotes = 2
    answer, error = call({"do": "fill", "bytes": RESPONSE_LIMIT_BYTES - quotes})
    assert error is None
    assert len(answer) == RESPONSE_LIMIT_BYTES - quotes
    answer, error = call({"do": "fill", "bytes": RESPONSE_LIMIT_BYTES - quotes + 1})
    assert error == "Unhandled"
    assert answer["errorType"] == "Function.ResponseSizeTooLarge"
    assert call({"n": 3})[1] is None


def test_a_request_over_the_limit_is_refused(call: Callable[..., tuple[Any, str | None]]) -> None:
    overhead = len('{"fill": ""}')
    assert call({"fill": "x" * (REQUEST_LIMIT_BYTES - overhead)}, "evalward-ConsumerFunction")[1] == "Unhandled"
    with pytest.raises(ClientError) as refused:
        call({"fill": "x" * (REQUEST_LIMIT_BYTES - overhead + 1)})
    assert error_code(refused.value) == "RequestTooLargeException"


def test_beyond_the_concurrency_the_answer_is_429(
    call: Callable[..., tuple[Any, str | None]], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    release = tmp_path / "release"
    started = [tmp_path / "first", tmp_path / "second"]
    events = [{"do": "wait", "started": str(path), "until": str(release)} for path in started]
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(call, event) for event in events]
        try:
            eventually(lambda: all(path.exists() for path in started))
            with pytest.raises(ClientError) as refused:
                call({})
        finally:
            release.touch()
        assert error_code(refused.value) == "TooManyRequestsException"
        assert [future.result()[1] for future in running] == [None, None]


def test_a_function_invokes_another_through_boto3(call: Callable[..., tuple[Any, str | None]]) -> None:
    answer, _ = call({"do": "invoke", "function": "evalward-HastyFunction", "event": {"n": 4}})
    assert answer["event"] == {"n": 4}


def test_an_event_invocation_is_accepted_at_once_and_runs(
    make_client: Callable[[str], Any], eventually: Callable[..., Any], tmp_path: Path
) -> None:
    release, started = tmp_path / "release", tmp_path / "started"
    release.touch()
    event = {"do": "wait", "started": str(started), "until": str(release)}
    answer = make_client("lambda").invoke(
        FunctionName="evalward-ProbeFunction", InvocationType="Event", Payload=json.dumps(event).encode()
    )
    assert answer["StatusCode"] == 202
    eventually(started.exists)


def test_kill_ends_every_environment_and_tells_which_were_busy(
    stack: StackFile,
    http: httpx.Client,
    call: Callable[..., tuple[Any, str | None]],
    eventually: Callable[..., Any],
    tmp_path: Path,
) -> None:
    event = {"do": "wait", "started": str(tmp_path / "started"), "until": str(tmp_path / "never")}
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(call, event)
        eventually((tmp_path / "started").exists)
        killed = http.post(f"{stack.control_url}/functions/ProbeFunction/kill").json()
        answer, error = running.result()
    assert killed["busy"] == 1
    assert killed["killed"] >= 1
    assert error == "Unhandled"
    assert answer["errorMessage"].endswith("signal: SIGKILL")
    assert call({"n": 5})[1] is None


def test_logs_hold_what_the_function_printed_and_the_report_lines(
    stack: StackFile, http: httpx.Client, call: Callable[..., tuple[Any, str | None]]
) -> None:
    answer, _ = call({})
    log = http.get(f"{stack.control_url}/logs/ProbeFunction").text
    assert f"START RequestId: {answer['request_id']}" in log
    assert f"REPORT RequestId: {answer['request_id']}\tDuration:" in log
    assert "Init Duration:" in log


def test_the_configuration_is_readable_through_boto3(make_client: Callable[[str], Any]) -> None:
    configuration = make_client("lambda").get_function_configuration(FunctionName="evalward-ProbeFunction")
    assert configuration["Timeout"] == 20
    assert "PROBE_BUCKET" in configuration["Environment"]["Variables"]


def test_unknown_names_are_404(stack: StackFile, http: httpx.Client) -> None:
    for path in ("functions/Nothing/invoke", "functions/Nothing/kill", "schedules/Nothing/fire"):
        assert http.post(f"{stack.control_url}/{path}").status_code == 404
    assert http.get(f"{stack.control_url}/logs/Nothing").status_code == 404
