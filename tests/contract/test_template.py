"""The template holds what the deployment relies on: limits, permissions, secrets, one entry per function."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coordination.ports.client_configs import make_message_config, make_service_config
from evalward_local.resources import Schedule
from evalward_local.schedule_expressions import parse_schedule_expression
from evalward_local.template import Template, read_template
from scheduled_pull.pull_source import LEASE_SECONDS, PULL_SECONDS

PROJECT = Path(__file__).resolve().parents[2]
TEMPLATE = read_template(PROJECT / "template.yaml")
FUNCTIONS = sorted(TEMPLATE.code_folders)
FOURTEEN_DAYS = 14 * 24 * 3600


def resources_of(kind: str, template: Template = TEMPLATE) -> dict[str, dict[str, Any]]:
    return {
        logical_id: resource.get("Properties", {})
        for logical_id, resource in template.resources.items()
        if resource["Type"] == kind
    }


def properties_of(logical_id: str) -> dict[str, Any]:
    return TEMPLATE.resources[logical_id]["Properties"]


def variables_of(function_id: str) -> dict[str, Any]:
    return properties_of(function_id)["Environment"]["Variables"]


def statements_of(function_id: str) -> list[dict[str, Any]]:
    """Return the statements of our own policies in the role that SAM makes for a function."""
    policies = properties_of(f"{function_id}Role").get("Policies", [])
    found = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]
    # A statement under a condition counts as there.
    return [statement["Fn::If"][1] if "Fn::If" in statement else statement for statement in found]


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_every_function_folder_has_an_entry_and_every_entry_a_folder() -> None:
    folders = {path.parent for path in (PROJECT / "functions").glob("*/pyproject.toml")}
    assert set(TEMPLATE.code_folders.values()) == folders


def test_every_layer_folder_has_an_entry() -> None:
    folders = {path.parent / "src" for path in (PROJECT / "layers").glob("*/pyproject.toml")}
    assert set(TEMPLATE.layer_folders.values()) == folders


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_a_function_is_complete(function_id: str) -> None:
    function = properties_of(function_id)
    folder = TEMPLATE.code_folders[function_id].name
    assert function["Handler"] == f"{folder}.handler.lambda_handler"
    assert function["Runtime"] == "python3.13"
    assert function["Timeout"] > 0
    assert function["Description"]
    assert TEMPLATE.layers_of(function_id) == ["CoordinationLayer", "RecordsLayer"]
    log_group = properties_of(function["LoggingConfig"]["LogGroup"]["Ref"])
    assert log_group["RetentionInDays"] == {"Ref": "LogRetentionDays"}


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_a_function_has_an_alarm_on_its_errors(function_id: str) -> None:
    dimension = {"Name": "FunctionName", "Value": {"Ref": function_id}}
    alarms = [alarm for alarm in resources_of("AWS::CloudWatch::Alarm").values() if alarm.get("MetricName") == "Errors"]
    assert any(alarm.get("Dimensions") == [dimension] for alarm in alarms)


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_a_function_may_do_named_things_to_named_resources_only(function_id: str) -> None:
    statements = statements_of(function_id)
    assert statements
    for statement in statements:
        assert statement["Effect"] == "Allow"
        actions = as_list(statement["Action"])
        assert actions
        assert not [action for action in actions if "*" in action]
        for resource in as_list(statement["Resource"]):
            # A key prefix may end in a star; what it is a prefix of may not be one.
            text = resource.get("Fn::Sub", "") if isinstance(resource, dict) else resource
            assert not text.startswith("*")
            assert "arn:aws:s3:::*" not in text
            assert resource != "*"


def test_nobody_but_the_migration_reads_the_admin_secret_and_only_the_probe_the_owners_too() -> None:
    guarded = ("DatabaseAdminSecretArn", "OwnerSecret")
    readers = {"SchemaMigrationFunction": list(guarded), "CapacityProbeFunction": ["OwnerSecret"]}
    for function_id in FUNCTIONS:
        mentions = str(statements_of(function_id)) + str(variables_of(function_id))
        readable = [name for name in guarded if f"'{name}'" in mentions]
        assert readable == readers.get(function_id, []), function_id


def test_the_probe_gets_the_owners_secret_only() -> None:
    assert set(variables_of("CapacityProbeFunction")) == {
        "EVALWARD_DATABASE_SECRET_ARN",
        "POWERTOOLS_LOG_LEVEL",
        "POWERTOOLS_SERVICE_NAME",
    }
    (statement,) = statements_of("CapacityProbeFunction")
    assert statement["Action"] == "secretsmanager:GetSecretValue"


def test_the_migration_gets_its_own_settings_only() -> None:
    assert set(variables_of("SchemaMigrationFunction")) == {
        "EVALWARD_MIGRATION__ADMIN_KEY_SECRET_ARN",
        "EVALWARD_MIGRATION__ADMIN_SECRET_ARN",
        "EVALWARD_MIGRATION__APP_SECRET_ARN",
        "EVALWARD_MIGRATION__OWNER_SECRET_ARN",
        "POWERTOOLS_LOG_LEVEL",
        "POWERTOOLS_SERVICE_NAME",
    }


@pytest.mark.parametrize(
    "function_id", [name for name in FUNCTIONS if name not in ("SchemaMigrationFunction", "CapacityProbeFunction")]
)
def test_a_function_gets_its_settings_and_waits_for_the_migration(function_id: str) -> None:
    assert {
        "EVALWARD_DATABASE_HOST",
        "EVALWARD_DATABASE_SECRET_ARN",
        "EVALWARD_IDEMPOTENCY__MAX_BYTES",
        "EVALWARD_IDEMPOTENCY__MAX_RECORDS",
        "EVALWARD_QUEUES__CONVERSION_URL",
        "EVALWARD_QUEUES__DELIVERY_URL",
        "EVALWARD_QUEUES__EVALUATION_URL",
        "EVALWARD_STORAGE__BUCKET",
    } <= set(variables_of(function_id))
    assert variables_of(function_id)["EVALWARD_DATABASE_SECRET_ARN"] == {"Ref": "AppSecret"}
    assert TEMPLATE.resources[function_id]["DependsOn"] == "DatabaseMigration"


def test_only_the_migration_writes_a_secret() -> None:
    for function_id in FUNCTIONS:
        writes = "secretsmanager:PutSecretValue" in str(statements_of(function_id))
        assert writes == (function_id == "SchemaMigrationFunction")


def test_a_new_layer_runs_the_migration_again() -> None:
    migration = properties_of("DatabaseMigration")
    assert migration["ServiceToken"] == {"Fn::GetAtt": ["SchemaMigrationFunction", "Arn"]}
    assert TEMPLATE.layer_ids[migration["Layer"]["Ref"]] == "CoordinationLayer"


@pytest.mark.parametrize(
    ("mapping", "queue", "maximum_concurrency"),
    [
        ("DatasetConversionFunctionIncoming", "IncomingQueue", 2),
        ("RunEvaluationFunctionEvaluation", "EvaluationQueue", {"Ref": "EvaluationMaximumConcurrency"}),
    ],
)
def test_an_event_source_has_its_limits(mapping: str, queue: str, maximum_concurrency: Any) -> None:
    source = properties_of(mapping)
    assert source["EventSourceArn"] == {"Fn::GetAtt": [queue, "Arn"]}
    assert source["BatchSize"] == 1
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert source["ScalingConfig"] == {"MaximumConcurrency": maximum_concurrency}
    assert properties_of(source["FunctionName"]["Ref"])["Timeout"] == 120
    assert TEMPLATE.parameters["EvaluationMaximumConcurrency"]["Default"] == 10


@pytest.mark.parametrize("name", ["Incoming", "Evaluation"])
def test_a_queue_has_its_limits_and_a_watched_dead_letter_queue(name: str) -> None:
    queue, dead_letter_queue = properties_of(f"{name}Queue"), properties_of(f"{name}DeadLetterQueue")
    assert queue["VisibilityTimeout"] == 150
    assert queue["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": [f"{name}DeadLetterQueue", "Arn"]},
        "maxReceiveCount": 5,
    }
    assert dead_letter_queue["MessageRetentionPeriod"] == FOURTEEN_DAYS
    dimension = {"Name": "QueueName", "Value": {"Fn::GetAtt": [f"{name}DeadLetterQueue", "QueueName"]}}
    assert any(alarm.get("Dimensions") == [dimension] for alarm in resources_of("AWS::CloudWatch::Alarm").values())


def test_the_delivery_queue_holds_a_message_longer_than_the_function_works_on_it() -> None:
    queue, source = properties_of("DeliveryQueue"), properties_of("DeliveryFunctionDelivery")
    assert queue["VisibilityTimeout"] > properties_of("DeliveryFunction")["Timeout"]
    assert queue["RedrivePolicy"] == {
        "deadLetterTargetArn": {"Fn::GetAtt": ["DeliveryDeadLetterQueue", "Arn"]},
        "maxReceiveCount": 5,
    }
    assert properties_of("DeliveryDeadLetterQueue")["MessageRetentionPeriod"] == FOURTEEN_DAYS
    dimension = {"Name": "QueueName", "Value": {"Fn::GetAtt": ["DeliveryDeadLetterQueue", "QueueName"]}}
    assert any(alarm.get("Dimensions") == [dimension] for alarm in resources_of("AWS::CloudWatch::Alarm").values())
    assert source["EventSourceArn"] == {"Fn::GetAtt": ["DeliveryQueue", "Arn"]}
    assert (source["BatchSize"], source["FunctionResponseTypes"]) == (1, ["ReportBatchItemFailures"])


def test_only_those_who_sign_read_the_secret_of_webhooks() -> None:
    readers = {function_id for function_id in FUNCTIONS if "'WebhookSecret'" in str(statements_of(function_id))}
    assert readers == {"ApiFunction", "DeliveryFunction"}


@pytest.mark.parametrize(
    ("action", "parameter"), [("lambda:InvokeFunction", "TargetFunctionArns"), ("bedrock:InvokeModel", "ModelArns")]
)
def test_only_the_evaluation_calls_functions_and_models_and_only_those_that_are_named(
    action: str, parameter: str
) -> None:
    assert TEMPLATE.parameters[parameter]["Type"] == "CommaDelimitedList"
    assert TEMPLATE.parameters[parameter]["Default"] == ""
    for function_id in FUNCTIONS:
        found = [one for one in statements_of(function_id) if action in as_list(one["Action"])]
        assert bool(found) == (function_id == "RunEvaluationFunction")
        for statement in found:
            assert (statement["Action"], statement["Resource"]) == (action, {"Ref": parameter})


def test_without_functions_and_models_there_is_no_statement_about_them() -> None:
    policies = properties_of("RunEvaluationFunctionRole")["Policies"]
    choices = [one["Fn::If"] for policy in policies for one in policy["PolicyDocument"]["Statement"] if "Fn::If" in one]
    assert {condition: otherwise for condition, _, otherwise in choices} == {
        "HasTargetFunctions": {"Ref": "AWS::NoValue"},
        "HasModels": {"Ref": "AWS::NoValue"},
    }


def test_only_delivery_puts_events_and_only_its_own_on_the_default_bus() -> None:
    for function_id in FUNCTIONS:
        statements = [one for one in statements_of(function_id) if "events:PutEvents" in as_list(one["Action"])]
        assert bool(statements) == (function_id == "DeliveryFunction")
        for statement in statements:
            assert statement["Resource"]["Fn::Sub"].endswith(":event-bus/default")
            assert statement["Condition"] == {"StringEquals": {"events:source": "evalward"}}


def test_the_pulse_is_found_by_its_event_name_and_fires_every_minute() -> None:
    (logical_id,) = [key for key, name in TEMPLATE.event_names.items() if name == "PulseSchedule"]
    schedule = properties_of(logical_id)
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["Target"]["Arn"] == {"Fn::GetAtt": ["DeliveryFunction", "Arn"]}
    expression = parse_schedule_expression(schedule["ScheduleExpression"])
    assert Schedule(logical_id, schedule["Name"], "PulseSchedule", expression, "f", None, "aws.scheduler").arn


@pytest.mark.parametrize("pulse", ["KeeperPulse", "CapacityProbePulse"])
def test_what_computes_its_due_time_is_pulsed_within_minutes_of_a_deployment(pulse: str) -> None:
    (logical_id,) = [key for key, name in TEMPLATE.event_names.items() if name == pulse]
    assert properties_of(logical_id)["ScheduleExpression"] == "rate(5 minutes)"


@pytest.mark.parametrize(("make_config", "sent_after_seconds"), [(make_service_config, 1), (make_message_config, 0)])
def test_call_that_meets_silence_ends_before_the_shortest_function(
    make_config: Callable[[], Any], sent_after_seconds: int
) -> None:
    config = make_config()
    tries: int = config.retries["total_max_attempts"]
    # Between two tries botocore waits for up to 1, 2, 4, ... seconds.
    call_seconds = tries * (sent_after_seconds + config.read_timeout) + 2 ** (tries - 1) - 1
    # A name with two addresses, as an endpoint in two zones has.
    connection_seconds = tries * 2 * config.connect_timeout + 2 ** (tries - 1) - 1
    assert max(call_seconds, connection_seconds) < min(properties_of(name)["Timeout"] for name in FUNCTIONS)


def test_pull_that_meets_silence_at_its_end_ends_before_its_function_and_that_before_its_lease() -> None:
    timeout = properties_of("ScheduledPullFunction")["Timeout"]
    config: Any = make_service_config()
    assert PULL_SECONDS + config.retries["total_max_attempts"] * (1 + config.read_timeout) + 3 < timeout < LEASE_SECONDS


def test_each_route_calls_its_function() -> None:
    routes = {
        f"{method} {path}": operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"]
        for path, operations in properties_of("HttpApi")["Body"]["paths"].items()
        for method, operation in operations.items()
    }
    expected = {
        "post /v1/projects/{project}/datasets": "DatasetConversionFunction",
        "post /v1/projects/{project}/evaluate": "RunEvaluationFunction",
        "post /v1/projects/{project}/uploads": "DatasetConversionFunction",
        "post /v1/projects/{project}/uploads/{upload}/finalize": "DatasetConversionFunction",
        "x-amazon-apigateway-any-method $default": "ApiFunction",
    }
    assert set(routes) == set(expected)
    for route, function_id in expected.items():
        # The API is called by its alias, whose environments may be kept warm.
        target = "ApiFunctionAliaslive" if function_id == "ApiFunction" else f"{function_id}.Arn"
        assert f"/${{{target}}}/" in routes[route]
    assert properties_of("ApiFunctionAliaslive")["FunctionName"] == {"Ref": "ApiFunction"}


@pytest.mark.parametrize("function_id", FUNCTIONS)
def test_throttles_of_a_function_are_watched_and_only_the_hot_path_is_never_traced(function_id: str) -> None:
    metrics = [one["MetricStat"]["Metric"] for one in properties_of("ThrottleAlarm")["Metrics"] if "MetricStat" in one]
    watched = [metric["Dimensions"][0]["Value"]["Ref"] for metric in metrics if metric["MetricName"] == "Throttles"]
    assert function_id in watched
    assert ("TracingConfig" in properties_of(function_id)) == (function_id != "ApiFunction")


def test_what_costs_by_itself_is_made_only_when_it_is_asked_for() -> None:
    asked_for = {
        "AWS::CloudFront::Distribution",
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::VPCEndpoint",
        "AWS::KMS::Key",
        "AWS::RDS::DBCluster",
        "AWS::RDS::DBClusterParameterGroup",
        "AWS::RDS::DBInstance",
        "AWS::RDS::DBProxy",
        "AWS::RDS::DBProxyTargetGroup",
        "AWS::RDS::DBSubnetGroup",
    }
    conditional = {resource["Type"] for resource in TEMPLATE.resources.values() if "Condition" in resource}
    assert conditional - {"AWS::IAM::Role", "AWS::CloudWatch::Alarm"} == asked_for
    for logical_id, resource in TEMPLATE.resources.items():
        assert ("Condition" in resource) or resource["Type"] not in asked_for, logical_id
    for name in ("CreateDatabase", "CreateDatabaseProxy", "CreateVpcEndpoints", "CreateEncryptionKey", "Tracing"):
        assert TEMPLATE.parameters[name]["Default"] == "false"


def test_everything_that_holds_data_takes_the_key_of_the_deployment() -> None:
    keys = {
        "AWS::Logs::LogGroup": "KmsKeyId",
        "AWS::SQS::Queue": "KmsMasterKeyId",
        "AWS::SecretsManager::Secret": "KmsKeyId",
        "AWS::RDS::DBCluster": "KmsKeyId",
    }
    for kind, name in keys.items():
        for logical_id, properties in resources_of(kind).items():
            assert properties[name]["Fn::If"][0] == "CreatesKey", logical_id
            assert "EncryptionKey" in str(properties[name]), logical_id


def test_the_doctor_s_silence_is_an_alarm_too() -> None:
    for name in ("DoctorAlarm", "BacklogAlarm"):
        alarm = properties_of(name)
        assert alarm["TreatMissingData"] == "breaching"
        assert alarm["Dimensions"] == [{"Name": "deployment", "Value": {"Ref": "AWS::StackName"}}]


def test_the_bucket_is_private_encrypted_and_forgets_what_came_in() -> None:
    bucket = properties_of("DatasetBucket")
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert "BucketEncryption" in bucket
    assert "BucketName" not in bucket
    assert TEMPLATE.resources["DatasetBucket"]["DependsOn"] == "IncomingQueuePolicy"
    rules = bucket["LifecycleConfiguration"]["Rules"]
    expiries = {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    # What is published never expires by itself.
    assert expiries == {"datasets/incoming/": 30, "datasets/uploads/": 2}
    (notification,) = bucket["NotificationConfiguration"]["QueueConfigurations"]
    assert notification["Queue"] == {"Fn::GetAtt": ["IncomingQueue", "Arn"]}
    assert notification["Filter"]["S3Key"]["Rules"] == [{"Name": "prefix", "Value": "datasets/incoming/"}]


def test_what_holds_data_is_retained() -> None:
    kinds = ("AWS::S3::Bucket", "AWS::SecretsManager::Secret", "AWS::Logs::LogGroup")
    for kind in kinds:
        assert resources_of(kind)
        for logical_id in resources_of(kind):
            resource = TEMPLATE.resources[logical_id]
            assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain", logical_id
