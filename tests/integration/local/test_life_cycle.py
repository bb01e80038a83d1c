import json
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
import psycopg
import pytest
from botocore.config import Config
from evalward_local.running_stack import running_stack
from evalward_local.stack import StackStartError
from evalward_local.stack_file import StackFile, read_stack_file
from psycopg.conninfo import conninfo_to_dict

PROBE_TEMPLATE = Path(__file__).with_name("probe_template.yaml")
MARKER = b"EVALWARD_LOCAL_STACK="


def family_of(pid: int) -> set[tuple[int, str]]:
    """Return pid and start time of every process that the stack started, directly or not."""
    processes = {int(entry.name): entry for entry in Path("/proc").glob("[0-9]*")}
    children = {number for number, entry in processes.items() if parent_of(entry) == pid}
    markers = {marker for number in children for marker in markers_of(processes[number])}
    family = children | {number for number, entry in processes.items() if markers & markers_of(entry)}
    return {(number, started_at(number)) for number in family}


def parent_of(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def markers_of(entry: Path) -> set[bytes]:
    try:
        return {item for item in (entry / "environ").read_bytes().split(b"\0") if item.startswith(MARKER)}
    except OSError:
        return set()


def started_at(pid: int) -> str:
    """Return the start time, or an empty string for a process that is gone or a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state == "Z" else fields[18]


def is_gone(family: set[tuple[int, str]]) -> bool:
    return not any(started_at(pid) == start for pid, start in family)


def start_up(state: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "evalward_local", "up", "--ephemeral", "--state", str(state)]
    with (state / "log").open("wb") as log:
        return subprocess.Popen([*command, "--template", str(PROBE_TEMPLATE), *options], stdout=log, stderr=log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_the_stack(number: signal.Signals, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    process = start_up(tmp_path)
    try:
        stack: StackFile = eventually(lambda: read_stack_file(tmp_path), 60)
        httpx.get(f"{stack.api_url}/plain", trust_env=False)
        family = family_of(process.pid)
        data_folder = Path(str(conninfo_to_dict(stack.superuser_url)["host"])).parent
        # Postmaster and backends, moto, the watchdog and environments.
        assert len(family) >= 6
        process.send_signal(number)
        status = process.wait(30)
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        eventually(lambda: is_gone(family))
        eventually(lambda: not data_folder.exists())
        assert read_stack_file(tmp_path) is None
    finally:
        process.kill()
        process.wait()


def test_a_stack_stopped_while_it_starts_leaves_nothing(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    process = start_up(tmp_path)
    try:
        family: set[tuple[int, str]] = eventually(lambda: family_of(process.pid), 60)
        process.terminate()
        assert process.wait(30) == 0
        eventually(lambda: is_gone(family))
        assert read_stack_file(tmp_path) is None
    finally:
        process.kill()
        process.wait()


def test_two_stacks_run_side_by_side(stack: StackFile, tmp_path: Path, http: httpx.Client) -> None:
    with running_stack(tmp_path, template=PROBE_TEMPLATE) as other:
        assert http.get(f"{other.api_url}/plain").json() == http.get(f"{stack.api_url}/plain").json()
        assert other.aws_endpoint_url != stack.aws_endpoint_url
    assert http.get(f"{stack.api_url}/plain").status_code == 200


def test_the_stack_file_tells_everything_and_only_to_its_owner(tmp_path: Path) -> None:
    with running_stack(tmp_path, template=PROBE_TEMPLATE, environments=3) as stack:
        file = tmp_path / "stack.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert set(json.loads(file.read_text())) == {
            *("api_url", "control_url", "admin_key", "database_url", "superuser_url", "pg_bin_dir"),
            *("bucket", "aws_endpoint_url", "region", "pid", "functions"),
        }
        assert {"id": "ProbeFunction", "name": "evalward-ProbeFunction", "environments": 3} in json.loads(
            file.read_text()
        )["functions"]
        with psycopg.connect(stack.superuser_url) as connection:
            assert connection.execute("SELECT current_user, current_database()").fetchone() == ("postgres", "evalward")
        assert (Path(stack.pg_bin_dir) / "psql").exists()
    assert not file.exists()


def test_a_wrong_password_is_refused(stack: StackFile) -> None:
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stack.superuser_url, password="wrong")


def read_login(stack: StackFile) -> dict[str, str]:
    session: Any = boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=stack.region)
    client = session.client("secretsmanager", endpoint_url=stack.aws_endpoint_url, config=Config(proxies={}))
    return json.loads(client.get_secret_value(SecretId="evalward-LoginSecret")["SecretString"])


def test_database_and_secrets_are_kept_when_the_stack_is_not_ephemeral() -> None:
    # Below pytest's own folder, which is closed to the user the server runs as, there is no place for the data.
    state = Path(tempfile.mkdtemp(prefix="evalward-kept-", dir="/tmp"))
    state.chmod(0o755)
    try:
        with running_stack(state, template=PROBE_TEMPLATE, is_ephemeral=False) as stack:
            login = read_login(stack)
            with psycopg.connect(stack.superuser_url) as connection:
                connection.execute("CREATE TABLE kept (n int)")
        with running_stack(state, template=PROBE_TEMPLATE, is_ephemeral=False) as stack:
            assert read_login(stack) == login
            with psycopg.connect(stack.superuser_url) as connection:
                assert connection.execute("SELECT count(*) FROM kept").fetchone() == (0,)
        assert login["username"] == "somebody"
        assert len(login["password"]) == 32
    finally:
        shutil.rmtree(state)


def test_a_second_stack_on_the_same_state_folder_is_refused(tmp_path: Path) -> None:
    with running_stack(tmp_path, template=PROBE_TEMPLATE):
        process = start_up(tmp_path)
        assert process.wait(60) == 1
        assert "already runs" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        ("Type: AWS::DynamoDB::Table", "Extra: the local stack does not know the type AWS::DynamoDB::Table"),
        ("{Type: AWS::SQS::Queue, Properties: {QueueName: !ImportValue x}}", "Extra: .*Fn::ImportValue"),
    ],
)
def test_what_the_stack_does_not_know_stops_the_start(tmp_path: Path, resource: str, reason: str) -> None:
    text = PROBE_TEMPLATE.read_text().replace("CodeUri: probe", f"CodeUri: {PROBE_TEMPLATE.with_name('probe')}")
    template = tmp_path / "template.yaml"
    template.write_text(
        f"{text}\n  Extra:\n    {resource}\n" if resource.startswith("Type") else f"{text}\n  Extra: {resource}\n"
    )
    with pytest.raises(StackStartError, match=reason), running_stack(tmp_path / "state", template=template):
        pass


def test_a_custom_resource_that_fails_stops_the_start(tmp_path: Path) -> None:
    options = {"MigrationAnswer": "FAILED"}
    with (
        pytest.raises(StackStartError, match="Migration: FAILED: as the template says"),
        running_stack(tmp_path, template=PROBE_TEMPLATE, parameters=options),
    ):
        pass


def test_another_server_is_used_when_its_url_is_given(
    stack: StackFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALWARD_DATABASE_URL", stack.superuser_url)
    with running_stack(tmp_path, template=PROBE_TEMPLATE) as other:
        assert other.superuser_url == stack.superuser_url
        assert other.pg_bin_dir == ""
