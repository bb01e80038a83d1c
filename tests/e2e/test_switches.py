"""The template with every option switched on: the local stack notes what only AWS can make, and the work goes on."""

import pytest
from evalward_local.running_stack import running_stack
from evalward_local.stack_client import StackClient

SWITCHES = {
    "CreateDatabase": "true",
    "CreateDatabaseProxy": "true",
    "CreateDatabaseStandby": "true",
    "CreateEncryptionKey": "true",
    "CreateVpcEndpoints": "true",
    "ProvisionedConcurrency": "2",
    "RouteTableIds": "rtb-0123456789abcdef0",
    "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1",
    "Tracing": "true",
    "VpcId": "vpc-0123456789abcdef0",
    "WebAclArn": "arn:aws:wafv2:us-east-1:123456789012:global/webacl/front/0123456789abcdef",
}


def test_bundle_works_with_every_option_switched_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("stack")
    with running_stack(folder, environments=2, parameters=SWITCHES) as stack, StackClient(stack) as client:
        client.expect(201, "POST", "/v1/projects", json={"id": "switched"})
        key = client.drop("switched", "answers.jsonl", b'{"input": "q", "output": "yes", "reference": "yes"}\n')
        assert client.wait_for_import("switched", key)["state"] == "succeeded"
        order = {"name": "r", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}]}
        run = client.expect(202, "POST", "/v1/projects/switched/runs", json=order)
        assert client.wait_for_run("switched", run["id"])["state"] == "succeeded"
