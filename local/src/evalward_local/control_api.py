"""The stack's control API, and the part of Lambda's API that boto3 needs to invoke a function."""

import asyncio
import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from evalward_local.drain import WorkLedger
from evalward_local.function_pool import FunctionPool
from evalward_local.functions import RequestTooLargeError, TooManyRequestsError
from evalward_local.schedule_clock import ScheduleClock

_LAMBDA_API = "/2015-03-31/functions/{name}"
_DEFAULT_DRAIN_SECONDS = 60.0


class ControlApi:
    """Routes over the stack's parts.

    Parameters
    ----------
    pools
        Functions by logical id.
    clock
        The schedules.
    ledger
        What `drain` looks at.
    """

    def __init__(self, pools: Mapping[str, FunctionPool], clock: ScheduleClock, ledger: WorkLedger) -> None:
        self._pools = pools
        self._clock = clock
        self._ledger = ledger
        self._background: set[asyncio.Task[Any]] = set()

    def make_app(self, *further_routes: BaseRoute) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/schedules/{name}/fire", self._fire, methods=["POST"]),
                Route("/functions/{name}/invoke", self._invoke, methods=["POST"]),
                Route("/functions/{name}/kill", self._kill, methods=["POST"]),
                Route("/drain", self._drain, methods=["POST"]),
                Route("/logs/{name}", self._read_log),
                Route(f"{_LAMBDA_API}/invocations", self._invoke, methods=["POST"]),
                Route(f"{_LAMBDA_API}/configuration", self._describe),
                *further_routes,
            ]
        )

    def _find_pool(self, request: Request) -> FunctionPool | None:
        """Find a function by logical id, name, or ARN with or without a qualifier."""
        given: str = request.path_params["name"]
        name = given.rpartition(":function:")[2].partition(":")[0]
        for logical_id, pool in self._pools.items():
            if name in (logical_id, pool.settings.name):
                return pool
        return None

    async def _fire(self, request: Request) -> Response:
        schedule = self._clock.find(request.path_params["name"])
        if schedule is None:
            return JSONResponse({"message": f"no schedule {request.path_params['name']}"}, status_code=404)
        try:
            result = await self._clock.fire(schedule, datetime.now(UTC))
        except TooManyRequestsError:
            return JSONResponse({"message": "Rate Exceeded."}, status_code=429)
        return JSONResponse(
            {
                "schedule": schedule.logical_id,
                "function_error": result.function_error,
                "payload": json.loads(result.payload or b"null"),
            }
        )

    async def _invoke(self, request: Request) -> Response:
        pool = self._find_pool(request)
        if pool is None:
            return _lambda_error(404, "ResourceNotFoundException", f"Function not found: {request.path_params['name']}")
        payload = await request.body() or b"{}"
        invocation_type = request.headers.get("x-amz-invocation-type", "RequestResponse")
        if invocation_type == "DryRun":
            return Response(status_code=204)
        context = request.headers.get("x-amz-client-context")
        call = pool.invoke(
            payload,
            wait_seconds=0.0 if invocation_type == "RequestResponse" else pool.settings.timeout_seconds,
            client_context=None if context is None else base64.b64decode(context).decode(),
            trace_id=request.headers.get("x-amzn-trace-id"),
        )
        if invocation_type == "Event":
            task = asyncio.create_task(call)
            self._background.add(task)
            task.add_done_callback(self._background.discard)
            return Response(status_code=202)
        try:
            result = await call
        except RequestTooLargeError as error:
            return _lambda_error(413, "RequestTooLargeException", str(error))
        except TooManyRequestsError:
            return _lambda_error(
                429,
                "TooManyRequestsException",
                "Rate Exceeded.",
                Reason="ReservedFunctionConcurrentInvocationLimitExceeded",
            )
        headers = {"x-amzn-requestid": result.request_id, "x-amz-executed-version": "$LATEST"}
        if result.function_error is not None:
            headers["x-amz-function-error"] = result.function_error
        return Response(result.payload, headers=headers, media_type="application/json")

    async def _describe(self, request: Request) -> Response:
        pool = self._find_pool(request)
        if pool is None:
            return _lambda_error(404, "ResourceNotFoundException", f"Function not found: {request.path_params['name']}")
        settings = pool.settings
        return JSONResponse(
            {
                "FunctionName": settings.name,
                "FunctionArn": settings.arn,
                "Runtime": "python3.13",
                "Handler": settings.handler,
                "Timeout": int(settings.timeout_seconds),
                "MemorySize": settings.memory_megabytes,
                "State": "Active",
                "Environment": {"Variables": dict(settings.variables)},
            }
        )

    async def _kill(self, request: Request) -> Response:
        pool = self._find_pool(request)
        if pool is None:
            return JSONResponse({"message": f"no function {request.path_params['name']}"}, status_code=404)
        killed, busy = pool.kill_environments()
        return JSONResponse({"killed": killed, "busy": busy})

    async def _drain(self, request: Request) -> Response:
        try:
            timeout_seconds = float(request.query_params.get("timeout_seconds", _DEFAULT_DRAIN_SECONDS))
        except ValueError:
            return JSONResponse({"message": "timeout_seconds is no number"}, status_code=400)
        still_running = await self._ledger.wait_until_quiet(timeout_seconds)
        return JSONResponse({"still_running": still_running}, status_code=504 if still_running else 200)

    async def _read_log(self, request: Request) -> Response:
        pool = self._find_pool(request)
        if pool is None:
            return JSONResponse({"message": f"no function {request.path_params['name']}"}, status_code=404)
        text = await asyncio.to_thread(pool.log.read_text, errors="replace") if pool.log.exists() else ""
        return PlainTextResponse(text)


def _lambda_error(status: int, kind: str, message: str, **more: str) -> Response:
    return JSONResponse(
        {"Type": "User", "message": message, **more}, status_code=status, headers={"x-amzn-errortype": kind}
    )
