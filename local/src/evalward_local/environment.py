"""One execution environment: AWS's runtime client in a process, and the Runtime API it talks to."""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from evalward_local.account import REGION
from evalward_local.children import Children, plain_environment
from evalward_local.functions import RESPONSE_LIMIT_BYTES, FunctionSettings
from evalward_local.listener import LOOPBACK, Listener, open_socket

_API_VERSION = "/2018-06-01"
# What Lambda grants before the first event; a longer one counts against the function's own timeout.
_INIT_LIMIT_SECONDS = 10.0


@dataclass(frozen=True)
class InvocationResult:
    """What became of an invocation.

    Attributes
    ----------
    request_id
        Lambda's id of the invocation.
    payload
        JSON: the function's answer, or an object with errorType and errorMessage.
    function_error
        `Unhandled` when the function failed, else None.
    """

    request_id: str
    payload: bytes
    function_error: str | None


@dataclass
class Invocation:
    """One event on its way through an environment."""

    payload: bytes
    client_context: str | None = None
    trace_id: str = field(default_factory=lambda: f"Root=1-{int(time.time()):08x}-{uuid.uuid4().hex[:24]};Sampled=0")
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    deadline_milliseconds: int = 0
    handed_over_at: float = 0.0
    outcome: asyncio.Future[InvocationResult] = field(default_factory=lambda: asyncio.Future[InvocationResult]())

    def answer(self, payload: bytes, function_error: str | None = None) -> None:
        """Settle the outcome; whoever comes second is ignored."""
        if not self.outcome.done():
            self.outcome.set_result(InvocationResult(self.request_id, payload, function_error))

    def fail(self, error_type: str, message: str) -> None:
        """Settle the outcome with an error in Lambda's own words."""
        text = f"RequestId: {self.request_id} Error: {message}"
        self.answer(json.dumps({"errorType": error_type, "errorMessage": text}).encode(), "Unhandled")


class Environment:
    """A process that serves one invocation at a time, frozen in between as on Lambda.

    Parameters
    ----------
    settings
        The function.
    children
        Starts the process.
    variables
        Environment variables the stack adds (endpoints, credentials).
    log
        File that receives what the process prints.
    on_exit
        Called in the event loop when the process has ended.
    """

    def __init__(
        self,
        settings: FunctionSettings,
        children: Children,
        variables: Mapping[str, str],
        log: Path,
        on_exit: Callable[["Environment"], None],
    ) -> None:
        self._settings = settings
        self._children = children
        self._variables = variables
        self._log = log
        self._on_exit = on_exit
        self._ready = asyncio.Event()
        self._exited = asyncio.Event()
        self._inbox: asyncio.Queue[Invocation | None] = asyncio.Queue(1)
        self._pid = 0
        self._is_frozen = False
        self.current: Invocation | None = None
        self.is_usable = True
        self.init_milliseconds = 0.0
        self._listener = Listener(
            Starlette(
                routes=[
                    Route(f"{_API_VERSION}/runtime/invocation/next", self._give_next),
                    Route(
                        f"{_API_VERSION}/runtime/invocation/{{request_id}}/response",
                        self._take_response,
                        methods=["POST"],
                    ),
                    Route(
                        f"{_API_VERSION}/runtime/invocation/{{request_id}}/error", self._take_error, methods=["POST"]
                    ),
                    Route(f"{_API_VERSION}/runtime/init/error", self._take_init_error, methods=["POST"]),
                ]
            ),
            open_socket(),
        )

    async def start(self) -> None:
        """Start the process and the Runtime API it will ask for events.

        Raises
        ------
        OSError
            When the process cannot be started.
        """
        await self._listener.start()
        loop = asyncio.get_running_loop()
        started_at = time.monotonic()
        with self._log.open("ab") as log:
            process = self._children.start(
                [*self._settings.code.interpreter, "-m", "awslambdaric", self._settings.handler],
                environment=self._process_environment(),
                output=log,
                cwd=self._settings.code.folder,
            )
        self._pid = process.pid
        self._started_at = started_at

        def wait_for_exit() -> None:
            status = process.wait()
            self._children.forget(process.pid)
            with contextlib.suppress(RuntimeError):  # the loop may be closed by now
                loop.call_soon_threadsafe(self._handle_exit, status)

        threading.Thread(target=wait_for_exit, daemon=True).start()

    async def run(self, invocation: Invocation) -> InvocationResult:
        """Hand an event to the process and wait for the answer, the timeout or the end of the process.

        Parameters
        ----------
        invocation
            The event; its deadline is set when the process is ready for it.

        Returns
        -------
        InvocationResult
            After a timeout the process is killed and `is_usable` is False.
        """
        self.current = invocation
        timeout = self._settings.timeout_seconds
        try:
            if not self._ready.is_set():
                await self._wait_until_ready(invocation, max(_INIT_LIMIT_SECONDS, timeout))
            if not invocation.outcome.done():
                invocation.deadline_milliseconds = int((time.time() + timeout) * 1000)
                invocation.handed_over_at = time.monotonic()
                self._thaw()
                self._inbox.put_nowait(invocation)
                await asyncio.wait([invocation.outcome], timeout=timeout)
            if not invocation.outcome.done():
                self.kill()
                invocation.fail("Sandbox.Timedout", f"Task timed out after {timeout:.2f} seconds")
            return await invocation.outcome
        finally:
            self.current = None

    def kill(self) -> None:
        """Kill the process and everything in its group; it is not used again."""
        self.is_usable = False
        if not self._exited.is_set() and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and close the Runtime API."""
        self.kill()
        self._listener.close()

    async def _wait_until_ready(self, invocation: Invocation, limit_seconds: float) -> None:
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait([ready, invocation.outcome], timeout=limit_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            self.kill()
            invocation.fail("Sandbox.Timedout", f"Task timed out after {limit_seconds:.2f} seconds")

    def _process_environment(self) -> dict[str, str]:
        settings = self._settings
        environment = {
            **plain_environment(),
            "TZ": ":UTC",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            **self._variables,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(settings.memory_megabytes),
            "AWS_LAMBDA_FUNCTION_NAME": settings.name,
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{settings.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{uuid.uuid4().hex}",
            "AWS_LAMBDA_RUNTIME_API": f"{LOOPBACK}:{self._listener.port}",
            "AWS_REGION": REGION,
            "LAMBDA_TASK_ROOT": str(settings.code.folder),
            "_HANDLER": settings.handler,
            **settings.variables,
        }
        if settings.code.python_path:
            environment["PYTHONPATH"] = os.pathsep.join(str(folder) for folder in settings.code.python_path)
        return environment

    def _freeze(self) -> None:
        # On Lambda nothing runs between invocations: threads, timers and children stand still with the process.
        if not self._is_frozen and self.is_usable:
            self._is_frozen = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGSTOP)

    def _thaw(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGCONT)

    def _handle_exit(self, status: int) -> None:
        self.is_usable = False
        self._exited.set()
        if self.current is not None:
            how = f"exit status {status}" if status >= 0 else f"signal: {signal.Signals(-status).name}"
            self.current.fail("Runtime.ExitError", f"Runtime exited with error: {how}")
        with contextlib.suppress(asyncio.QueueFull):
            self._inbox.put_nowait(None)
        self._listener.close()
        self._on_exit(self)

    async def _give_next(self, _: Request) -> Response:
        if not self._ready.is_set():
            self.init_milliseconds = (time.monotonic() - self._started_at) * 1000
            self._ready.set()
        elif self._inbox.empty():
            self._freeze()
        invocation = await self._inbox.get()
        if invocation is None:
            return Response(status_code=410)
        headers = {
            "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
            "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_milliseconds),
            "Lambda-Runtime-Invoked-Function-Arn": self._settings.arn,
            "Lambda-Runtime-Trace-Id": invocation.trace_id,
        }
        if invocation.client_context is not None:
            headers["Lambda-Runtime-Client-Context"] = invocation.client_context
        return Response(invocation.payload, headers=headers, media_type="application/json")

    def _invocation_of(self, request: Request) -> Invocation | None:
        is_current = self.current is not None and self.current.request_id == request.path_params["request_id"]
        return self.current if is_current else None

    async def _take_response(self, request: Request) -> Response:
        payload = await request.body()
        invocation = self._invocation_of(request)
        if invocation is None:
            return JSONResponse({"errorType": "InvalidRequestID"}, status_code=400)
        if len(payload) > RESPONSE_LIMIT_BYTES:
            # The runtime client is in no state to go on after this answer: Lambda drops the environment as well.
            self.is_usable = False
            message = f"Response payload size exceeded maximum allowed payload size ({RESPONSE_LIMIT_BYTES} bytes)."
            error = {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": message}
            invocation.answer(json.dumps(error).encode(), "Unhandled")
            return JSONResponse({"errorType": "RequestEntityTooLarge"}, status_code=413)
        invocation.answer(payload)
        return _accepted()

    async def _take_error(self, request: Request) -> Response:
        payload = await request.body()
        invocation = self._invocation_of(request)
        if invocation is None:
            return JSONResponse({"errorType": "InvalidRequestID"}, status_code=400)
        invocation.answer(payload, "Unhandled")
        return _accepted()

    async def _take_init_error(self, request: Request) -> Response:
        payload = await request.body()
        self.is_usable = False
        if self.current is not None:
            self.current.answer(payload, "Unhandled")
        return _accepted()


def _accepted() -> JSONResponse:
    body: dict[str, Any] = {"status": "OK"}
    return JSONResponse(body, status_code=202)
