"""CloudFormation's custom resource protocol: every request is answered through its pre-signed URL."""

from collections.abc import Callable
from typing import Any

import orjson
import urllib3
from aws_lambda_powertools import Logger
from coordination.clock import Deadline

logger = Logger(child=True)

_PHYSICAL_ID = "evalward-database"
_ANSWER_SECONDS = 10.0


def answer_custom_resource(
    event: dict[str, Any], deadline: Deadline, act: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """Act on Create and Update and tell CloudFormation how it went.

    Parameters
    ----------
    event
        RequestType, ResponseURL, StackId, RequestId, LogicalResourceId.
    deadline
        When the invocation ends.
    act
        Does the work; its result becomes the resource's `Data`.

    Returns
    -------
    dict
        What was answered. A failure of `act` is answered as FAILED with its reason, not raised: otherwise
        CloudFormation would wait for an hour.
    """
    status, reason, data = "SUCCESS", "", dict[str, Any]()
    if event["RequestType"] != "Delete":
        try:
            data = act()
        except Exception as error:
            logger.exception("migration failed")
            status, reason = "FAILED", f"{type(error).__name__}: {error}"[:1000]
    answer = {
        "Status": status,
        "Reason": reason or "done",
        "PhysicalResourceId": event.get("PhysicalResourceId") or _PHYSICAL_ID,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": data,
    }
    urllib3.request(
        "PUT",
        event["ResponseURL"],
        body=orjson.dumps(answer),
        headers={"content-type": ""},
        timeout=min(_ANSWER_SECONDS, max(1.0, deadline.remaining_seconds())),
        retries=3,
    )
    return answer
