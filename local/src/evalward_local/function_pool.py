"""The environments of one function, started when needed and used again."""

import asyncio
import math
import time
from collections.abc import Mapping
from pathlib import Path

from evalward_local.children import Children
from evalward_local.environment import Environment, Invocation, InvocationResult
from evalward_local.functions import (
    REQUEST_LIMIT_BYTES,
    FunctionSettings,
    RequestTooLargeError,
    TooManyRequestsError,
)


class FunctionPool:
    """Runs invocations of one function, at most its concurrency at the same time.

    Parameters
    ----------
    settings
        The function.
    children
        Starts the environments' processes.
    variables
        Environment variables the stack adds.
    log
        File for what the function prints and for Lambda's START, END and REPORT lines.
    """

    def __init__(self, settings: FunctionSettings, children: Children, variables: Mapping[str, str], log: Path) -> None:
        self.settings = settings
        self.log = log
        # The environments append to the same file; what an earlier stack left there is not this one's.
        log.unlink(missing_ok=True)
        self._log_file = log.open("a", buffering=1)
        self._children = children
        self._variables = variables
        self._free = asyncio.Semaphore(settings.concurrency)
        # The last one used is the first one taken, as on Lambda: caches stay warm and the others may go cold.
        self._idle: list[Environment] = []
        self._all: set[Environment] = set()
        self._running: set[asyncio.Task[InvocationResult]] = set()

    @property
    def running_count(self) -> int:
        """Invocations that have not ended."""
        return len(self._running)

    async def invoke(
        self,
        payload: bytes,
        *,
        wait_seconds: float = 0.0,
        answer_seconds: float | None = None,
        client_context: str | None = None,
        trace_id: str | None = None,
    ) -> InvocationResult:
        """Run the function on an event.

        Parameters
        ----------
        payload
            The event as JSON.
        wait_seconds
            How long to wait for a free environment.
        answer_seconds
            How long to wait for the answer from then on; None waits until the function's own timeout.
        client_context, trace_id
            Passed on to the function.

        Returns
        -------
        InvocationResult
            Also for a function that failed.

        Raises
        ------
        RequestTooLargeError
            When the event is over Lambda's limit.
        TooManyRequestsError
            When no environment became free in time.
        TimeoutError
            When no answer came within `answer_seconds`; the invocation goes on.
        """
        if len(payload) > REQUEST_LIMIT_BYTES:
            raise RequestTooLargeError(
                f"{len(payload)} byte payload is too large for the RequestResponse invocation type "
                f"(limit {REQUEST_LIMIT_BYTES} bytes)"
            )
        invocation = Invocation(payload, client_context)
        if trace_id:
            invocation.trace_id = trace_id
        await self._take_turn(wait_seconds)
        task = asyncio.create_task(self._run(invocation))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        # A caller that gives up does not end the invocation.
        async with asyncio.timeout(answer_seconds):
            return await asyncio.shield(task)

    def kill_environments(self) -> tuple[int, int]:
        """Kill every environment.

        Returns
        -------
        tuple of int
            How many were killed, and how many of those were in an invocation.
        """
        alive = [environment for environment in self._all if environment.is_usable]
        busy_count = sum(environment.current is not None for environment in alive)
        self._idle.clear()
        for environment in alive:
            environment.kill()
        return len(alive), busy_count

    async def close(self) -> None:
        """Kill every environment, take back what it listens on, and let what ran end with the error it now has."""
        for environment in list(self._all):
            environment.close()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._log_file.close()

    async def _take_turn(self, wait_seconds: float) -> None:
        if wait_seconds <= 0 and self._free.locked():
            raise TooManyRequestsError(self.settings.name)
        try:
            async with asyncio.timeout(max(wait_seconds, 0.001)):
                await self._free.acquire()
        except TimeoutError:
            raise TooManyRequestsError(self.settings.name) from None

    async def _run(self, invocation: Invocation) -> InvocationResult:
        environment: Environment | None = None
        try:
            is_cold = not self._idle
            environment = await self._start() if is_cold else self._idle.pop()
            self._write_log(f"START RequestId: {invocation.request_id} Version: $LATEST")
            result = await environment.run(invocation)
            self._write_report(invocation, environment.init_milliseconds if is_cold else 0.0, result)
            return result
        finally:
            if environment is not None:
                if environment.is_usable:
                    self._idle.append(environment)
                else:
                    environment.kill()
            self._free.release()

    async def _start(self) -> Environment:
        environment = Environment(self.settings, self._children, self._variables, self.log, self._forget)
        self._all.add(environment)
        await environment.start()
        return environment

    def _forget(self, environment: Environment) -> None:
        self._all.discard(environment)
        if environment in self._idle:
            self._idle.remove(environment)

    def _write_report(self, invocation: Invocation, init_milliseconds: float, result: InvocationResult) -> None:
        # From the hand-over: what a cold environment needed to load is reported apart.
        milliseconds = (time.monotonic() - invocation.handed_over_at) * 1000 if invocation.handed_over_at else 0.0
        memory = self.settings.memory_megabytes
        init = f"\tInit Duration: {init_milliseconds:.2f} ms" if init_milliseconds else ""
        error = (
            f"\tStatus: error\tError: {result.payload[:500].decode(errors='replace')}" if result.function_error else ""
        )
        self._write_log(
            f"END RequestId: {invocation.request_id}\n"
            f"REPORT RequestId: {invocation.request_id}\tDuration: {milliseconds:.2f} ms"
            f"\tBilled Duration: {math.ceil(milliseconds)} ms\tMemory Size: {memory} MB{init}{error}"
        )

    def _write_log(self, line: str) -> None:
        self._log_file.write(f"{line}\n")
