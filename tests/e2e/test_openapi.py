"""Every operation of the OpenAPI document, called as schemathesis likes: no 500, no undocumented answer."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from evalward_local.showcase import Showcase
from evalward_local.stack_client import StackClient

PROGRAM = Path(__file__).parents[2] / ".local/openapi/bin/st"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
EXAMPLES = os.environ.get("EVALWARD_OPENAPI_EXAMPLES", "3")
PATIENCE_SECONDS = 1200

pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason="`make test` sets schemathesis up: .local/openapi")


@pytest.fixture(scope="module")
def client(calling_client: StackClient) -> StackClient:
    return calling_client


def write_parameters(client: StackClient, showcase: Showcase) -> str:
    """Return a configuration whose path parameters lead somewhere: a made-up project would be a 404 each time."""
    base = f"/v1/projects/{showcase.project}"
    window = client.expect(200, "GET", f"{base}/sources/{showcase.source}/windows?limit=1")["items"][0]
    (failure, *_) = client.expect(200, "GET", f"{base}/failures")["items"]
    (delivery, *_) = client.expect(200, "GET", f"{base}/webhooks/{showcase.webhook}/deliveries")["items"]
    parameters = {
        "path.project": showcase.project,
        "path.dataset": ["support-answers@1", "support-answers@2", "0" * 64, "none"],
        "path.delivery": [delivery["id"], "none"],
        "path.failure": [failure["id"], "none"],
        "path.import": [showcase.failed_import, "none"],
        "path.run": [showcase.baseline, showcase.candidate, "none"],
        "path.source": [showcase.source, "none"],
        "path.start": [window["window"]["start"], "none"],
        "path.webhook": [showcase.webhook, "none"],
        # Waiting for the end of a run has tests of its own.
        "query.wait_seconds": 0,
    }
    hooks = Path(__file__).parents[1] / "openapi/hooks.py"
    return f"hooks = {json.dumps(str(hooks))}\n[parameters]\n" + "".join(
        f'"{name}" = {json.dumps(value)}\n' for name, value in parameters.items()
    )


@pytest.mark.long
def test_every_operation_answers_as_documented(client: StackClient, showcase: Showcase, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(write_parameters(client, showcase))
    command = [str(PROGRAM), "--config-file", str(tmp_path / "schemathesis.toml"), "run"]
    command += [f"{client.stack.api_url}/v1/openapi.json", "--checks", ",".join(CHECKS)]
    command += ["--phases", "examples,coverage,fuzzing", "--max-examples", EXAMPLES, "--generation-deterministic"]
    command += ["--header", f"Authorization: Bearer {client.stack.admin_key}", "--max-redirects", "0"]
    command += ["--suppress-health-check", "all", "--warnings", "off", "--no-color", "--continue-on-failure"]
    called = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    told = "\n".join(line[:300] for line in (called.stdout + called.stderr).splitlines())
    assert called.returncode == 0, told
    assert "Test cases:" in called.stdout
