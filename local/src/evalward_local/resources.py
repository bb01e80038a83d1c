"""Creates the template's resources: a table from resource type to the function that makes one."""

import contextlib
import json
import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any

import boto3
from botocore.config import Config

from evalward_local.account import ACCOUNT_ID, REGION
from evalward_local.functions import FunctionSettings
from evalward_local.http_routes import HttpRoute, read_routes
from evalward_local.intrinsics import CreatedResource, Resolver, TemplateError, referenced_names
from evalward_local.schedule_expressions import Cron, Rate, ScheduleExpressionError, parse_schedule_expression
from evalward_local.template import Template


@dataclass(frozen=True)
class EventSource:
    """An SQS event source mapping.

    Attributes
    ----------
    logical_id
        In the expanded template.
    queue_arn, function_name
        From where to where.
    batch_size
        Messages in one event, at most.
    maximum_concurrency
        Invocations at the same time, at most; None leaves it to the function's own concurrency.
    reports_item_failures
        Whether the function names the messages it could not handle.
    """

    logical_id: str
    queue_arn: str
    function_name: str
    batch_size: int
    maximum_concurrency: int | None
    reports_item_failures: bool


@dataclass(frozen=True)
class Schedule:
    """A schedule that invokes a function.

    Attributes
    ----------
    logical_id, name, event_name
        In the expanded template, at AWS, and in the function's `Events`: each of them finds it.
    expression
        When it fires.
    function_name
        What it invokes.
    input
        The event as JSON text; None for the service's default event.
    service
        `aws.scheduler` or `aws.events`, the source the default event names.
    """

    logical_id: str
    name: str
    event_name: str
    expression: Rate | Cron
    function_name: str
    input: str | None
    service: str

    @property
    def arn(self) -> str:
        """The ARN the default event names."""
        if self.service == "aws.events":
            return f"arn:aws:events:{REGION}:{ACCOUNT_ID}:rule/{self.name}"
        return f"arn:aws:scheduler:{REGION}:{ACCOUNT_ID}:schedule/default/{self.name}"


@dataclass(frozen=True)
class ObjectNotification:
    """New objects of a bucket under a prefix are told to a queue."""

    bucket: str
    prefix: str
    queue_arn: str


@dataclass(frozen=True)
class CustomResource:
    """A custom resource: a function that is called once when everything else exists."""

    logical_id: str
    resource_type: str
    function_name: str
    properties: Mapping[str, Any]


@dataclass
class World:
    """Everything the template asked for, created or waiting to be brought to life.

    Attributes
    ----------
    created
        Logical id to what `Ref` and `Fn::GetAtt` answer.
    functions, event_sources, schedules, custom_resources, routes
        What the stack itself plays.
    object_notifications
        What the stack plays when its object store does not.
    """

    created: dict[str, CreatedResource]
    functions: list[FunctionSettings] = field(default_factory=list[FunctionSettings])
    event_sources: list[EventSource] = field(default_factory=list[EventSource])
    schedules: list[Schedule] = field(default_factory=list[Schedule])
    custom_resources: list[CustomResource] = field(default_factory=list[CustomResource])
    routes: list[HttpRoute] = field(default_factory=list[HttpRoute])
    object_notifications: list[ObjectNotification] = field(default_factory=list[ObjectNotification])


class AwsClients:
    """The boto3 clients of the stack's own AWS endpoint.

    Parameters
    ----------
    endpoint_url
        Where moto listens.
    s3_endpoint_url
        Where another object store listens, whose objects are kept; None leaves S3 to moto.
    """

    def __init__(self, endpoint_url: str, s3_endpoint_url: str | None = None) -> None:
        self.endpoint_url = endpoint_url
        self.s3_endpoint_url = s3_endpoint_url
        self.s3: Any = self.make("s3")
        self.sqs: Any = self.make("sqs")
        self.secrets: Any = self.make("secretsmanager")

    def make(self, service: str) -> Any:
        """Return a client of a service: no retries, and no proxy between the stack and itself."""
        session: Any = boto3.Session()
        return session.client(
            service,
            endpoint_url=(self.s3_endpoint_url or self.endpoint_url) if service == "s3" else self.endpoint_url,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106
            config=Config(proxies={}, retries={"total_max_attempts": 1}, max_pool_connections=50, read_timeout=70),
        )


class ResourceCreator:
    """Creates resources in the order of their references.

    Parameters
    ----------
    template
        The expanded template.
    resolver
        Knows the parameters; learns each resource as it is created.
    clients
        Reach S3, SQS and Secrets Manager.
    make_function
        Turns a function's logical id, name, ARN, resolved properties and layer ids into its settings.
    stack_name
        Begins every physical name.
    kept_secrets
        Logical id to the value a secret had before the stack was stopped.
    """

    def __init__(
        self,
        template: Template,
        resolver: Resolver,
        clients: AwsClients,
        make_function: Callable[[str, str, str, dict[str, Any], list[str]], FunctionSettings],
        stack_name: str,
        kept_secrets: Mapping[str, str],
    ) -> None:
        self._template = template
        self._resolver = resolver
        self._clients = clients
        self._make_function = make_function
        self._stack_name = stack_name
        self._kept_secrets = kept_secrets
        self._layer_arns: dict[str, str] = {}
        self._world = World(resolver.created)
        self._creators: dict[str, Callable[[str, dict[str, Any]], CreatedResource]] = {
            "AWS::ApiGatewayV2::Api": self._create_api,
            "AWS::ApiGatewayV2::Stage": self._note,
            "AWS::CloudFront::Distribution": self._note_distribution,
            "AWS::CloudWatch::Alarm": self._note,
            "AWS::CloudWatch::Dashboard": self._note,
            # The functions run outside any network of AWS.
            "AWS::EC2::SecurityGroup": self._note,
            "AWS::EC2::SecurityGroupIngress": self._note,
            "AWS::EC2::VPCEndpoint": self._note,
            "AWS::Events::Rule": self._create_rule,
            "AWS::IAM::Role": self._note_role,
            "AWS::KMS::Key": self._note_key,
            "AWS::Lambda::Alias": self._note_alias,
            "AWS::Lambda::EventSourceMapping": self._create_event_source,
            "AWS::Lambda::Function": self._create_function,
            "AWS::Lambda::LayerVersion": self._note_layer,
            "AWS::Lambda::Permission": self._note,
            "AWS::Lambda::Version": self._note_version,
            "AWS::Logs::LogGroup": self._note_log_group,
            # The stack has a database, which plays the one that the template would make.
            "AWS::RDS::DBCluster": self._note_database,
            "AWS::RDS::DBClusterParameterGroup": self._note,
            "AWS::RDS::DBInstance": self._note,
            "AWS::RDS::DBProxy": self._note_database,
            "AWS::RDS::DBProxyTargetGroup": self._note,
            "AWS::RDS::DBSubnetGroup": self._note,
            "AWS::S3::Bucket": self._create_bucket,
            # Moto checks neither; a policy that denies plain HTTP would only be in the way here.
            "AWS::S3::BucketPolicy": self._note,
            "AWS::SQS::QueuePolicy": self._note,
            "AWS::SQS::Queue": self._create_queue,
            "AWS::Scheduler::Schedule": self._create_schedule,
            "AWS::SecretsManager::Secret": self._create_secret,
        }

    def create_all(self) -> World:
        """Create every resource whose condition holds.

        Returns
        -------
        World
            What the stack has to play itself.

        Raises
        ------
        TemplateError
            On an unknown resource type or function, before anything is created for the former; the message starts with
            the logical id.
        """
        resources = {
            logical_id: resource
            for logical_id, resource in self._template.resources.items()
            if "Condition" not in resource or self._resolver.is_true(resource["Condition"])
        }
        for logical_id, resource in resources.items():
            if resource["Type"] not in self._creators and not _is_custom(resource["Type"]):
                raise TemplateError(f"{logical_id}: the local stack does not know the type {resource['Type']}")
        for logical_id in _in_dependency_order(resources):
            resource = resources[logical_id]
            properties = self._resolver.resolve_resource(logical_id, resource.get("Properties"))
            create = self._creators.get(resource["Type"])
            try:
                if create is None:
                    created = self._create_custom(logical_id, resource["Type"], properties)
                else:
                    created = create(logical_id, properties)
            except (KeyError, ValueError, TypeError) as error:
                raise TemplateError(f"{logical_id}: {error!r}") from error
            self._resolver.created[logical_id] = created
        return self._world

    def _physical_name(self, logical_id: str) -> str:
        return f"{self._stack_name}-{logical_id}"

    def _note(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        return CreatedResource(self._physical_name(logical_id))

    def _note_role(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        name = self._physical_name(logical_id)
        return CreatedResource(name, {"Arn": f"arn:aws:iam::{ACCOUNT_ID}:role/{name}"})

    def _note_distribution(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        name = self._physical_name(logical_id)
        return CreatedResource(name, {"DomainName": f"{name}.cloudfront.net"})

    def _note_key(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        name = self._physical_name(logical_id)
        return CreatedResource(name, {"Arn": f"arn:aws:kms:{REGION}:{ACCOUNT_ID}:key/{name}"})

    def _note_version(self, _logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{properties['FunctionName']}:1"
        return CreatedResource(arn, {"Version": "1"})

    def _note_alias(self, _logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        name = f"{properties['FunctionName']}:{properties['Name']}"
        return CreatedResource(f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{name}")

    def _note_database(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        host, secret = self._resolver.resolve({"Ref": "DatabaseHost"}), {"Ref": "DatabaseAdminSecretArn"}
        attributes = {"Endpoint": host, "Endpoint.Address": host}
        return CreatedResource(
            self._physical_name(logical_id),
            {**attributes, "MasterUserSecret.SecretArn": self._resolver.resolve(secret)},
        )

    def _note_log_group(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        name = properties.get("LogGroupName") or self._physical_name(logical_id)
        return CreatedResource(name, {"Arn": f"arn:aws:logs:{REGION}:{ACCOUNT_ID}:log-group:{name}:*"})

    def _note_layer(self, logical_id: str, _: dict[str, Any]) -> CreatedResource:
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:layer:{logical_id}:1"
        self._layer_arns[arn] = self._template.layer_ids[logical_id]
        return CreatedResource(arn)

    def _create_function(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        name = properties.get("FunctionName") or self._physical_name(logical_id)
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{name}"
        layer_ids = [self._layer_arns[layer] for layer in properties.get("Layers") or []]
        self._world.functions.append(self._make_function(logical_id, name, arn, properties, layer_ids))
        return CreatedResource(name, {"Arn": arn})

    def _create_api(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        if self._world.routes:
            raise TemplateError(f"{logical_id}: the local stack serves one HTTP API")
        self._world.routes.extend(read_routes(properties["Body"]))
        name = self._physical_name(logical_id)
        return CreatedResource(name, {"ApiEndpoint": f"http://{name}", "ApiId": name})

    def _create_event_source(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        maximum = (properties.get("ScalingConfig") or {}).get("MaximumConcurrency")
        if not properties["EventSourceArn"].startswith("arn:aws:sqs:"):
            raise TemplateError(f"{logical_id}: the local stack knows SQS event sources only")
        self._world.event_sources.append(
            EventSource(
                logical_id=logical_id,
                queue_arn=properties["EventSourceArn"],
                function_name=_function_name(properties["FunctionName"]),
                batch_size=int(properties.get("BatchSize", 10)),
                maximum_concurrency=None if maximum is None else int(maximum),
                reports_item_failures="ReportBatchItemFailures" in (properties.get("FunctionResponseTypes") or []),
            )
        )
        return CreatedResource(self._physical_name(logical_id))

    def _create_schedule(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        name = properties.get("Name") or self._physical_name(logical_id)
        target = properties["Target"]
        self._add_schedule(logical_id, name, properties, target, "aws.scheduler")
        return CreatedResource(name, {"Arn": f"arn:aws:scheduler:{REGION}:{ACCOUNT_ID}:schedule/default/{name}"})

    def _create_rule(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        if "ScheduleExpression" not in properties:
            raise TemplateError(f"{logical_id}: the local stack knows scheduled rules only")
        name = properties.get("Name") or self._physical_name(logical_id)
        for target in properties["Targets"]:
            self._add_schedule(logical_id, name, properties, target, "aws.events")
        return CreatedResource(name, {"Arn": f"arn:aws:events:{REGION}:{ACCOUNT_ID}:rule/{name}"})

    def _add_schedule(
        self, logical_id: str, name: str, properties: dict[str, Any], target: dict[str, Any], service: str
    ) -> None:
        try:
            expression = parse_schedule_expression(properties["ScheduleExpression"])
        except ScheduleExpressionError as error:
            raise TemplateError(f"{logical_id}: {error}") from error
        if properties.get("State", "ENABLED") != "ENABLED":
            return
        self._world.schedules.append(
            Schedule(
                logical_id=logical_id,
                name=name,
                event_name=self._template.event_names.get(logical_id, logical_id),
                expression=expression,
                function_name=_function_name(target["Arn"]),
                input=target.get("Input"),
                service=service,
            )
        )

    def _create_custom(self, logical_id: str, resource_type: str, properties: dict[str, Any]) -> CreatedResource:
        self._world.custom_resources.append(
            CustomResource(logical_id, resource_type, _function_name(properties["ServiceToken"]), properties)
        )
        return CreatedResource(self._physical_name(logical_id))

    def _create_queue(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        name = properties.get("QueueName") or self._physical_name(logical_id)
        attributes = {
            key: json.dumps(value) if isinstance(value, dict) else _attribute(value)
            for key, value in properties.items()
            if key not in ("QueueName", "Tags")
        }
        url: str = self._clients.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        arn = f"arn:aws:sqs:{REGION}:{ACCOUNT_ID}:{name}"
        return CreatedResource(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})

    def _create_secret(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        kept = self._kept_secrets.get(logical_id)
        if "SecretString" in properties:
            value = properties["SecretString"] if kept is None else kept
        else:
            value = _generate_secret(properties.get("GenerateSecretString") or {}, kept)
        name = properties.get("Name") or self._physical_name(logical_id)
        arn: str = self._clients.secrets.create_secret(Name=name, SecretString=value)["ARN"]
        return CreatedResource(arn, {"Id": arn})

    def _create_bucket(self, logical_id: str, properties: dict[str, Any]) -> CreatedResource:
        is_kept = self._clients.s3_endpoint_url is not None
        # A bucket that is kept has to be found again under its name.
        suffix = "" if is_kept else f"-{secrets.token_hex(4)}"
        name = properties.get("BucketName") or f"{self._physical_name(logical_id)}{suffix}".lower()
        s3 = self._clients.s3
        with contextlib.suppress(s3.exceptions.BucketAlreadyOwnedByYou):
            s3.create_bucket(Bucket=name)
        if rules := (properties.get("LifecycleConfiguration") or {}).get("Rules"):
            s3.put_bucket_lifecycle_configuration(
                Bucket=name, LifecycleConfiguration={"Rules": [_lifecycle_rule(rule) for rule in rules]}
            )
        if notifications := properties.get("NotificationConfiguration"):
            unknown = set(notifications) - {"QueueConfigurations", "EventBridgeConfiguration"}
            if unknown:
                raise TemplateError(f"{logical_id}: the local stack does not know {', '.join(sorted(unknown))}")
            configuration: dict[str, Any] = {
                "QueueConfigurations": [
                    _queue_configuration(item) for item in notifications.get("QueueConfigurations") or []
                ]
            }
            if "EventBridgeConfiguration" in notifications:
                configuration["EventBridgeConfiguration"] = {}
            if is_kept:
                self._world.object_notifications += _played_notifications(name, configuration)
            else:
                s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration=configuration)
        domain = f"{name}.s3.amazonaws.com"
        return CreatedResource(name, {"Arn": f"arn:aws:s3:::{name}", "DomainName": domain})


def _in_dependency_order(resources: Mapping[str, Mapping[str, Any]]) -> list[str]:
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for logical_id, resource in resources.items():
        depends_on = resource.get("DependsOn") or []
        explicit = [depends_on] if isinstance(depends_on, str) else depends_on
        names = {*explicit, *referenced_names(resource.get("Properties") or {})}
        sorter.add(logical_id, *sorted(name for name in names if name in resources))
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise TemplateError(f"{error.args[1][0]}: circular dependency {' -> '.join(error.args[1])}") from error


def _is_custom(resource_type: str) -> bool:
    return resource_type.startswith("Custom::") or resource_type == "AWS::CloudFormation::CustomResource"


def _function_name(reference: str) -> str:
    return reference.rpartition(":function:")[2].partition(":")[0]


def _attribute(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _generate_secret(options: Mapping[str, Any], kept: str | None) -> str:
    """Return a new value, or the kept one in today's surroundings: the database's host is another at each start."""
    key = options.get("GenerateStringKey")
    kept_text: str | None = json.loads(kept)[key] if kept and key else kept
    generated = kept_text or _generate_text(options)
    return generated if key is None else json.dumps({**json.loads(options["SecretStringTemplate"]), key: generated})


def _generate_text(options: Mapping[str, Any]) -> str:
    alphabet = string.ascii_letters + string.digits
    if not options.get("ExcludePunctuation"):
        alphabet += string.punctuation
    excluded = options.get("ExcludeCharacters", "")
    allowed = [character for character in alphabet if character not in excluded]
    return "".join(secrets.choice(allowed) for _ in range(int(options.get("PasswordLength", 32))))


def _lifecycle_rule(rule: Mapping[str, Any]) -> dict[str, Any]:
    converted: dict[str, Any] = {"Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "Id" in rule:
        converted["ID"] = rule["Id"]
    if "ExpirationInDays" in rule:
        converted["Expiration"] = {"Days": int(rule["ExpirationInDays"])}
    if abort := rule.get("AbortIncompleteMultipartUpload"):
        converted["AbortIncompleteMultipartUpload"] = {"DaysAfterInitiation": int(abort["DaysAfterInitiation"])}
    return converted


def _played_notifications(bucket: str, configuration: Mapping[str, Any]) -> list[ObjectNotification]:
    return [
        ObjectNotification(bucket, rule["Value"], item["QueueArn"])
        for item in configuration["QueueConfigurations"]
        for rule in item["Filter"]["Key"]["FilterRules"]
        if rule["Name"] == "prefix"
    ]


def _queue_configuration(item: Mapping[str, Any]) -> dict[str, Any]:
    configuration: dict[str, Any] = {"QueueArn": item["Queue"], "Events": [item["Event"]]}
    rules = ((item.get("Filter") or {}).get("S3Key") or {}).get("Rules") or []
    if rules:
        filter_rules = [{"Name": rule["Name"], "Value": rule["Value"]} for rule in rules]
        configuration["Filter"] = {"Key": {"FilterRules": filter_rules}}
    return configuration
