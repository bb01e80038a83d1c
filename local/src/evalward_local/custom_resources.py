"""Calls the functions behind custom resources, as CloudFormation does at a deployment."""

import asyncio
import json
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evalward_local.account import ACCOUNT_ID, REGION
from evalward_local.function_pool import FunctionPool
from evalward_local.resources import CustomResource


class CustomResourceError(Exception):
    """A custom resource failed; the message has its logical id and the function's reason."""


class CustomResourceDesk:
    """Sends the requests and takes the answers.

    Parameters
    ----------
    base_url
        Where `route` is served.
    stack_name
        Told to the functions.
    """

    def __init__(self, base_url: str, stack_name: str) -> None:
        self._base_url = base_url
        self._stack_id = f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:stack/{stack_name}/local"
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.route = Route("/custom-resources/{token}", self._take_answer, methods=["PUT"])

    async def create(self, resource: CustomResource, pool: FunctionPool) -> None:
        """Send a Create request and wait for the answer at its ResponseURL.

        Parameters
        ----------
        resource
            The custom resource.
        pool
            Its function.

        Raises
        ------
        CustomResourceError
            When the function answers FAILED, fails, or ends without an answer.
        """
        token = uuid.uuid4().hex
        answer: asyncio.Future[dict[str, Any]] = asyncio.Future()
        self._answers[token] = answer
        event = {
            "RequestType": "Create",
            "ServiceToken": resource.properties["ServiceToken"],
            "ResponseURL": f"{self._base_url}/custom-resources/{token}",
            "StackId": self._stack_id,
            "RequestId": str(uuid.uuid4()),
            "ResourceType": resource.resource_type,
            "LogicalResourceId": resource.logical_id,
            "ResourceProperties": dict(resource.properties),
        }
        result = await pool.invoke(json.dumps(event).encode())
        del self._answers[token]
        if not answer.done():
            reason = (
                result.payload.decode(errors="replace") if result.function_error else "no answer at its ResponseURL"
            )
            raise CustomResourceError(f"{resource.logical_id}: {reason}")
        status, reason = answer.result().get("Status"), answer.result().get("Reason")
        if status != "SUCCESS":
            raise CustomResourceError(f"{resource.logical_id}: {status}: {reason}")

    async def _take_answer(self, request: Request) -> Response:
        answer = self._answers.get(request.path_params["token"])
        if answer is None or answer.done():
            return Response(status_code=404)
        try:
            answer.set_result(json.loads(await request.body()))
        except ValueError:
            return Response(status_code=400)
        return Response()
