"""The function the local stack is tested with: does what its event says."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3

_INVOCATIONS = iter(range(1, 1_000_000))


def lambda_handler(event: dict[str, Any], context: Any) -> Any:
    """Answer an HTTP event, a batch of messages, a custom resource request or a plain command."""
    if "requestContext" in event:
        return _answer_http(event)
    if "Records" in event:
        return _take_messages(event["Records"])
    if "ResponseURL" in event:
        return _answer_custom_resource(event)
    if event.get("source") in ("aws.scheduler", "aws.events"):
        _log(f"SCHEDULED {json.dumps(event)}")
        return {"scheduled": event["time"]}
    return _obey(event, context)


def _log(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _obey(event: dict[str, Any], context: Any) -> Any:
    match event.get("do"):
        case "sleep":
            time.sleep(event["seconds"])
        case "raise":
            raise ValueError(event["message"])
        case "exit":
            os._exit(event["status"])
        case "fill":
            return "x" * event["bytes"]
        case "wait":
            # Answers when the file is there: the test decides when, and nobody sleeps for it.
            Path(event["started"]).touch()
            while not Path(event["until"]).exists():
                time.sleep(0.01)
        case "invoke":
            client = boto3.client("lambda")
            answer = client.invoke(FunctionName=event["function"], Payload=json.dumps(event["event"]).encode())
            return json.loads(answer["Payload"].read())
        case _:
            pass
    return {
        "event": event,
        "invocation": next(_INVOCATIONS),
        "pid": os.getpid(),
        "remaining": context.get_remaining_time_in_millis(),
        "request_id": context.aws_request_id,
        "bucket": os.environ.get("PROBE_BUCKET", ""),
    }


def _answer_http(event: dict[str, Any]) -> Any:
    path = event["rawPath"]
    if path == "/cookies":
        return {"statusCode": 201, "cookies": ["a=1; Path=/", "b=2"], "headers": {"X-One": "1"}, "body": "made"}
    if path == "/binary":
        return {"statusCode": 200, "headers": {"content-type": "image/png"}, "body": "AAH/", "isBase64Encoded": True}
    if path == "/plain":
        return {"answer": 42}
    if path == "/fail":
        raise ValueError("as asked")
    if path == "/large":
        return {"statusCode": 200, "body": "x" * (7 * 1024 * 1024)}
    return {"statusCode": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(event)}


def _take_messages(records: list[dict[str, Any]]) -> dict[str, Any]:
    failures: list[dict[str, str]] = []
    for record in records:
        _log(f"MESSAGE {json.dumps(record)}")
        if "refuse" in record["body"]:
            failures.append({"itemIdentifier": record["messageId"]})
    return {"batchItemFailures": failures}


def _answer_custom_resource(event: dict[str, Any]) -> None:
    body = {
        "Status": event["ResourceProperties"].get("Answer", "SUCCESS"),
        "Reason": "as the template says",
        "PhysicalResourceId": "probe",
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
    }
    with urlopen(Request(event["ResponseURL"], json.dumps(body).encode(), method="PUT"), timeout=10):
        pass
