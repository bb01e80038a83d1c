from pathlib import Path
from typing import Any

import pytest
from evalward_local.intrinsics import CreatedResource, Resolver, TemplateError, parameter_values, referenced_names
from evalward_local.template import read_template


def make_resolver(conditions: dict[str, Any] | None = None, **parameters: Any) -> Resolver:
    resolver = Resolver(
        parameters,
        conditions or {},
        {"Sizes": {"small": {"memory": "128"}}},
        region="us-east-1",
        stack_name="evalward",
    )
    resolver.created["Queue"] = CreatedResource("http://queue", {"Arn": "arn:aws:sqs:us-east-1:123456789012:queue"})
    return resolver


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "Name"}, "demo"),
        ({"Ref": "Queue"}, "http://queue"),
        ({"Ref": "AWS::Region"}, "us-east-1"),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "arn:aws:sqs:us-east-1:123456789012:queue"),
        ({"Fn::GetAtt": "Queue.Arn"}, "arn:aws:sqs:us-east-1:123456789012:queue"),
        ({"Fn::Sub": "${Name}/${Queue.Arn}/*"}, "demo/arn:aws:sqs:us-east-1:123456789012:queue/*"),
        ({"Fn::Sub": ["${a}-${Name}", {"a": {"Ref": "AWS::Partition"}}]}, "aws-demo"),
        ({"Fn::Sub": "${!Literal}"}, "${Literal}"),
        ({"Fn::Join": ["-", ["a", {"Ref": "Name"}, 3]]}, "a-demo-3"),
        ({"Fn::Select": ["1", {"Fn::Split": [",", "a,b,c"]}]}, "b"),
        ({"Fn::FindInMap": ["Sizes", "small", "memory"]}, "128"),
        ({"Fn::If": ["Always", "yes", "no"]}, "yes"),
        ({"Fn::If": ["Never", "yes", "no"]}, "no"),
        ([1, {"Ref": "AWS::NoValue"}, 2], [1, 2]),
        ({"Kept": 1, "Dropped": {"Fn::If": ["Never", "x", {"Ref": "AWS::NoValue"}]}}, {"Kept": 1}),
        # A policy statement's Condition block is data, a condition's name is a function.
        (
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
            {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        ),
    ],
)
def test_intrinsic_functions_resolve(value: Any, expected: Any) -> None:
    conditions = {"Always": {"Fn::Equals": ["a", "a"]}, "Never": {"Fn::Not": [{"Condition": "Always"}]}}
    assert make_resolver(conditions, Name="demo").resolve(value) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"Fn::And": [{"Condition": "Yes"}, {"Condition": "Yes"}]}, True),
        ({"Fn::And": [{"Condition": "Yes"}, {"Condition": "No"}]}, False),
        ({"Fn::Or": [{"Condition": "No"}, {"Condition": "Yes"}]}, True),
        ({"Fn::Or": [{"Condition": "No"}, {"Condition": "No"}]}, False),
        ({"Fn::Not": [{"Fn::Equals": [{"Fn::Join": ["", {"Ref": "Subnets"}]}, ""]}]}, False),
    ],
)
def test_conditions_combine(condition: Any, expected: bool) -> None:
    conditions = {"Yes": {"Fn::Equals": [1, 1]}, "No": {"Fn::Equals": [1, 2]}, "Asked": condition}
    assert make_resolver(conditions, Subnets=[""]).is_true("Asked") is expected


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"Fn::ImportValue": "x"}, "Fn::ImportValue"),
        ({"Ref": "Nothing"}, "Ref Nothing"),
        ({"Fn::GetAtt": ["Queue", "Nothing"]}, "Queue.Nothing"),
        ({"Fn::If": ["Nothing", 1, 2]}, "condition Nothing"),
        ({"Fn::Select": [7, ["a"]]}, "malformed"),
    ],
)
def test_what_cannot_be_resolved_is_refused_with_the_logical_id(value: Any, reason: str) -> None:
    with pytest.raises(TemplateError, match=rf"^Thing: .*{reason}"):
        make_resolver().resolve_resource("Thing", {"Property": value})


def test_parameters_take_the_given_value_or_their_default() -> None:
    declared = {
        "Name": {"Type": "String", "Default": "a"},
        "Count": {"Type": "Number", "Default": 3},
        "Subnets": {"Type": "CommaDelimitedList", "Default": ""},
    }
    assert parameter_values(declared, {"Name": "b"}) == {"Name": "b", "Count": "3", "Subnets": [""]}
    assert parameter_values(declared, {"Subnets": "x, y"})["Subnets"] == ["x", "y"]


@pytest.mark.parametrize(
    ("declared", "given", "reason"),
    [
        ({"Name": {"Type": "String"}}, {}, "Name: the parameter has no default"),
        ({}, {"Other": "x"}, "Other: the template has no such parameter"),
        ({"Size": {"Type": "String", "AllowedValues": ["s", "m"]}}, {"Size": "l"}, "Size: 'l' is none of s, m"),
    ],
)
def test_wrong_parameters_are_refused(declared: dict[str, Any], given: dict[str, str], reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        parameter_values(declared, given)


def test_references_are_found_in_every_notation() -> None:
    value = {
        "a": {"Ref": "One"},
        "b": [{"Fn::GetAtt": ["Two", "Arn"]}, {"Fn::GetAtt": "Three.Arn"}],
        "c": {"Fn::Sub": ["${Four.Arn}${x}${!Five}", {"x": {"Ref": "Six"}}]},
    }
    assert set(referenced_names(value)) == {"One", "Two", "Three", "Four", "x", "Six"}


def test_a_template_is_expanded_and_remembers_where_the_code_is(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        """
Transform: AWS::Serverless-2016-10-31
Resources:
  Shared:
    Type: AWS::Serverless::LayerVersion
    Properties: {ContentUri: layer/src}
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.13
      Handler: worker.handler
      CodeUri: worker
      Layers: [!Ref Shared]
      Events:
        Pulse: {Type: ScheduleV2, Properties: {ScheduleExpression: rate(1 minute)}}
"""
    )
    read = read_template(template)
    assert read.code_folders == {"Worker": tmp_path / "worker"}
    assert list(read.layer_ids.values()) == ["Shared"]
    assert read.event_names == {"WorkerPulse": "Pulse"}
    assert read.resources["WorkerPulse"]["Type"] == "AWS::Scheduler::Schedule"


def test_a_template_that_sam_refuses_is_refused_with_its_reason(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text(
        """
Transform: AWS::Serverless-2016-10-31
Resources:
  Worker:
    Type: AWS::Serverless::Function
    Properties: {Handler: a.b, CodeUri: worker, Runtime: python3.13, Events: {X: {Type: Nonsense}}}
"""
    )
    with pytest.raises(TemplateError, match="Worker"):
        read_template(template)
