"""A real `sam deploy` of the built template, into an emulator that runs the deploy hook against a real database."""

import json
import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from botocore.config import Config
from evalward_local.listener import find_free_ports
from evalward_local.running_stack import running_stack
from psycopg.conninfo import conninfo_to_dict

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / ".local/ministack/bin/ministack"
SAM = ROOT / ".local/sam/bin/sam"
BUILD = ROOT / ".aws-sam/build/template.yaml"
DEPLOY_SECONDS = 600
# The emulator refuses alarms on an expression over several metrics, which CloudFormation takes (cfn-lint knows them).
UNKNOWN = ("ThrottleAlarm", "ApiFaultAlarm")

pytestmark = pytest.mark.skipif(
    not (PROGRAM.exists() and SAM.exists() and BUILD.exists()), reason="`make deploy-test` makes what it needs"
)


@contextmanager
def emulator(folder: Path) -> Generator[dict[str, str]]:
    """Run the emulator while the block runs; yield the variables that lead to it."""
    (port,) = find_free_ports(1)
    variables = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_SECRET_ACCESS_KEY": "test",
        "SAM_CLI_TELEMETRY": "0",
    }
    settings = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port)}
    with (folder / "emulator.log").open("wb") as log:
        process = subprocess.Popen(
            [str(PROGRAM)], stdout=log, stderr=subprocess.STDOUT, env=os.environ | settings, cwd=folder
        )
    try:
        client_of("sts", variables).get_caller_identity()
        yield variables
    finally:
        process.terminate()
        process.wait(30)


def client_of(service: Any, variables: dict[str, str]) -> Any:
    # It is not there yet when it is first asked.
    patient = Config(retries={"total_max_attempts": 20, "mode": "standard"}, read_timeout=120)
    return boto3.client(
        service,
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_DEFAULT_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        config=patient,
    )


@pytest.fixture
def login(tmp_path: Path) -> Generator[dict[str, Any]]:
    """Return the login of a superuser to an empty database, of a server that a local stack has."""
    with running_stack(tmp_path / "stack", environments=1) as stack:
        with psycopg.connect(stack.superuser_url, autocommit=True) as connection:
            connection.execute("CREATE DATABASE deployed")
        yield conninfo_to_dict(stack.superuser_url)


def write_template(folder: Path) -> Path:
    """Write the built template without what the emulator does not know; code stays where it was built."""
    text = BUILD.read_text()
    for name in UNKNOWN:
        text, times = re.subn(rf"(?m)^  {name}:\n(?:    .*\n|\n)+", "", text)
        assert times == 1, name
    text = re.sub(r"(?m)^( +(?:CodeUri|ContentUri): )(\w+)$", rf"\g<1>{BUILD.parent}/\g<2>", text)
    path = folder / "template.yaml"
    path.write_text(text)
    return path


def test_built_template_deploys_and_answers(tmp_path: Path, login: dict[str, Any]) -> None:
    with emulator(tmp_path) as variables:
        secrets = client_of("secretsmanager", variables)
        admin = {"username": login["user"], "password": login.get("password", "")}
        arn = secrets.create_secret(Name="admin", SecretString=json.dumps(admin))["ARN"]
        parameters = {
            "Architecture": os.uname().machine.replace("aarch64", "arm64"),
            "DatabaseAdminSecretArn": arn,
            "DatabaseHost": login["host"],
            "DatabaseName": "deployed",
            "DatabasePort": login.get("port", "5432"),
        }
        command = [str(SAM), "deploy", "--template", str(write_template(tmp_path)), "--stack-name", "evalward"]
        command += ["--resolve-s3", "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset"]
        command += ["--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())]
        deployed = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=DEPLOY_SECONDS,
            check=False,
        )
        assert deployed.returncode == 0, deployed.stdout[-4000:] + deployed.stderr[-1000:]

        formation = client_of("cloudformation", variables)
        (stack,) = formation.describe_stacks(StackName="evalward")["Stacks"]
        outputs = {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
        assert stack["StackStatus"] == "CREATE_COMPLETE"
        key = json.loads(secrets.get_secret_value(SecretId=outputs["AdminKeySecretArn"])["SecretString"])
        assert key["key"].startswith("ew_")

        resources = formation.describe_stack_resources(StackName="evalward")["StackResources"]
        (function,) = [one["PhysicalResourceId"] for one in resources if one["LogicalResourceId"] == "ApiFunction"]
        event = (ROOT / "events/api.healthz.json").read_text()
        invoked = client_of("lambda", variables).invoke(FunctionName=function, Payload=event)
        answer = json.loads(invoked["Payload"].read())
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["database"] == "reachable"
