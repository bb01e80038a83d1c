"""What `make build` made: complete, small enough, compiled, and answering alike in the stack and in AWS's emulator."""

import http.server
import json
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from evalward_local.functions import CodeLocation
from evalward_local.listener import open_socket
from evalward_local.packaging import UNZIPPED_LIMIT_BYTES, measure_build
from evalward_local.running_stack import PROJECT_FOLDER
from evalward_local.stack_file import StackFile
from evalward_local.template import Template, read_template

FUNCTIONS = sorted(read_template(PROJECT_FOLDER / "template.yaml").code_folders)
MACHINE = "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"
EMULATOR = next(
    (PROJECT_FOLDER / ".local/sam").glob(f"lib/python3*/site-packages/samcli/local/rapid/aws-lambda-rie-{MACHINE}"),
    None,
)
MESSAGE = {
    "messageId": "2e1424d4-f796-459a-8184-9c92662be6da",
    "receiptHandle": "handle",
    "attributes": {"ApproximateReceiveCount": "1"},
    "messageAttributes": {},
    "eventSource": "aws:sqs",
    "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:queue",
    "awsRegion": "us-east-1",
}
NUDGE = {"kind": "run", "project": "nowhere", "ref_id": "00000000-0000-4000-8000-000000000000"}
SCHEDULED = {
    "version": "0",
    "id": "f3ec0a4c-4d4c-4b0e-9c0e-6f2c3c8f5a11",
    "detail-type": "Scheduled Event",
    "source": "aws.scheduler",
    "account": "123456789012",
    "time": "2026-03-12T19:03:00Z",
    "region": "us-east-1",
    "resources": ["arn:aws:scheduler:us-east-1:123456789012:schedule/default/pulse"],
    "detail": "{}",
}
# A function that is not named here is one that a schedule invokes with nothing to say.
EVENTS: dict[str, dict[str, Any]] = {
    "ApiFunction": {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/healthz",
        "rawQueryString": "",
        "headers": {"host": "localhost", "content-length": "0"},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "local",
            "domainName": "localhost",
            "domainPrefix": "local",
            "http": {
                "method": "GET",
                "path": "/healthz",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "test",
            },
            "requestId": "JKJaXmPLvHcESHA=",
            "routeKey": "$default",
            "stage": "$default",
            "time": "12/Mar/2026:19:03:58 +0000",
            "timeEpoch": 1773342238390,
        },
        "isBase64Encoded": False,
    },
    "DatasetConversionFunction": {
        "Records": [{**MESSAGE, "body": json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})}]
    },
    "RunEvaluationFunction": {"Records": [{**MESSAGE, "body": json.dumps(NUDGE)}]},
    "RetentionSweepFunction": {"sweep": "idempotency"},
    "SchemaMigrationFunction": {
        "RequestType": "Delete",
        "ServiceToken": "arn:aws:lambda:us-east-1:123456789012:function:migration",
        "StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/evalward/local",
        "RequestId": "1c5ef0a0-3f0c-4e02-9f0e-3f7d4a8c7a11",
        "ResourceType": "Custom::DatabaseMigration",
        "LogicalResourceId": "DatabaseMigration",
        "PhysicalResourceId": "database",
        "ResourceProperties": {"ServiceToken": "x", "Layer": "y"},
    },
}


def run_python(location: CodeLocation, program: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(folder) for folder in location.python_path)
    command = [*location.interpreter, "-c", program]
    return subprocess.run(command, env={"PYTHONPATH": path}, cwd="/", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_a_function_is_imported_from_what_was_built_alone(
    function_id: str, template: Template, locations: dict[str, CodeLocation]
) -> None:
    module, _, name = template.resources[function_id]["Properties"]["Handler"].rpartition(".")
    program = f"import json, sys, {module} as m; m.{name}; print(json.dumps([x for x in sys.path if x]))"
    result = run_python(locations[function_id], program)
    assert result.returncode == 0, result.stderr
    assert not [entry for entry in json.loads(result.stdout) if "/.venv/" in entry]


def test_parquet_is_read_by_what_is_left_of_arrow(locations: dict[str, CodeLocation]) -> None:
    program = (
        "import io, pyarrow, pyarrow.parquet as p; b = io.BytesIO()\n"
        "p.write_table(pyarrow.table({'a': [[1, None], []], 'b': ['x', 'y']}), b, compression='zstd')\n"
        "print([row for batch in p.ParquetFile(b).iter_batches() for row in batch.to_pylist()])"
    )
    result = run_python(locations["DatasetConversionFunction"], program)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "[{'a': [1, None], 'b': 'x'}, {'a': [], 'b': 'y'}]\n"


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_a_function_is_below_lambdas_limit(function_id: str) -> None:
    (size,) = [size for size in measure_build(PROJECT_FOLDER / "template.yaml") if size.function_id == function_id]
    assert 0 < size.total_bytes <= UNZIPPED_LIMIT_BYTES


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_bytecode_is_shipped_and_never_checked_against_sources(
    function_id: str, locations: dict[str, CodeLocation], template: Template
) -> None:
    module = template.resources[function_id]["Properties"]["Handler"].rpartition(".")[0]
    source = locations[function_id].folder / f"{module.replace('.', '/')}.py"
    compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
    # The second word of the header: bit 0 hash-based, bit 1 check the source.
    assert int.from_bytes(compiled.read_bytes()[4:8], "little") == 0b01


@pytest.mark.skipif(EMULATOR is None, reason="the emulator comes with aws-sam-cli: run `make build`")
@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_the_emulator_gets_the_same_answer_as_the_stack(
    function_id: str, built_stack: StackFile, locations: dict[str, CodeLocation]
) -> None:
    with answer_desk() as (response_url, answers), httpx.Client(trust_env=False, timeout=60) as client:
        event = EVENTS.get(function_id, SCHEDULED)
        if "RequestType" in event:
            event = {**event, "ResponseURL": response_url}
        invocation = f"{built_stack.control_url}/functions/{function_id}/invoke"
        if function_id == "CapacityProbeFunction":
            # It measures once an hour, so whoever asks first gets another answer.
            assert client.post(invocation, json=event).json()["measured"] > 0
        ours = client.post(invocation, json=event)
        assert "x-amz-function-error" not in ours.headers, ours.text
        base = f"{built_stack.control_url}/2015-03-31/functions/{function_id}/configuration"
        configuration = client.get(base).json()
        with emulator(locations[function_id], configuration, built_stack) as address:
            theirs = client.post(f"{address}/2015-03-31/functions/function/invocations", json=event)
    assert comparable(theirs.json()) == comparable(ours.json())
    assert [comparable(answer) for answer in answers[1:]] == [comparable(answer) for answer in answers[:-1]]


def comparable(answer: Any) -> Any:
    """Parse the body of an HTTP answer: what is compared is what it says, not how it is spelled."""
    if isinstance(answer, dict) and isinstance(answer.get("body"), str):
        return {**answer, "body": json.loads(answer["body"])}
    return answer


@contextmanager
def answer_desk() -> Generator[tuple[str, list[Any]]]:
    """Serve a URL that a custom resource's answer can be put to."""
    answers: list[Any] = []

    class Desk(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/answer", answers
        server.shutdown()


@contextmanager
def emulator(location: CodeLocation, configuration: dict[str, Any], stack: StackFile) -> Generator[str]:
    """Run a function in the Runtime Interface Emulator."""
    ports = [open_socket() for _ in range(2)]
    runtime_port, front_port = (port.getsockname()[1] for port in ports)
    for port in ports:
        port.close()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in location.python_path),
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": stack.region,
        "AWS_DEFAULT_REGION": stack.region,
        "AWS_ENDPOINT_URL": stack.aws_endpoint_url,
        "AWS_LAMBDA_FUNCTION_NAME": configuration["FunctionName"],
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(configuration["MemorySize"]),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(configuration["Timeout"]),
        "LAMBDA_TASK_ROOT": str(location.folder),
        **configuration["Environment"]["Variables"],
    }
    addresses = {
        # It listens on every interface otherwise.
        "--runtime-api-address": f"127.0.0.1:{runtime_port}",
        "--runtime-interface-emulator-address": f"127.0.0.1:{front_port}",
    }
    command = [str(EMULATOR), *(part for pair in addresses.items() for part in pair)]
    command += [*location.interpreter, "-m", "awslambdaric", configuration["Handler"]]
    process = subprocess.Popen(command, env=environment, cwd=location.folder, start_new_session=True)
    try:
        wait_until_listening(front_port, process.poll)
        yield f"http://127.0.0.1:{front_port}"
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def wait_until_listening(port: int, ended: Callable[[], int | None]) -> None:
    give_up_at = time.monotonic() + 20
    entry = f"0100007F:{port:04X}"
    while ended() is None and time.monotonic() < give_up_at:
        # Connecting to find out would be a request to it.
        if any(
            line.split()[1] == entry and line.split()[3] == "0A"
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        ):
            return
        time.sleep(0.02)
    raise AssertionError("the emulator does not listen")
