"""Fires the template's schedules, by the stack's own clock or at once."""

import asyncio
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from evalward_local.account import ACCOUNT_ID, REGION
from evalward_local.environment import InvocationResult
from evalward_local.function_pool import FunctionPool
from evalward_local.functions import TooManyRequestsError
from evalward_local.resources import Schedule

_log = logging.getLogger(__name__)
_ENVIRONMENT_PATIENCE_SECONDS = 60.0
_CONTEXT_ATTRIBUTE = re.compile(r"<aws\.scheduler\.([a-z-]+)>")


class ScheduleClock:
    """Knows the schedules and the functions they invoke.

    Parameters
    ----------
    schedules
        From the template.
    pools
        The functions by name.
    """

    def __init__(self, schedules: Sequence[Schedule], pools: Mapping[str, FunctionPool]) -> None:
        self._schedules = schedules
        self._pools = pools

    def find(self, name: str) -> Schedule | None:
        """Return the schedule of a logical id, a name at AWS or an event name that only one schedule has."""
        for schedule in self._schedules:
            if name in (schedule.logical_id, schedule.name):
                return schedule
        matching = [schedule for schedule in self._schedules if schedule.event_name == name]
        return matching[0] if len(matching) == 1 else None

    async def fire(self, schedule: Schedule, scheduled_at: datetime) -> InvocationResult:
        """Invoke the schedule's function and wait for it.

        Raises
        ------
        TooManyRequestsError
            When all its environments stayed busy for a minute.
        """
        event = build_schedule_event(schedule, scheduled_at)
        pool = self._pools[schedule.function_name]
        return await pool.invoke(event.encode(), wait_seconds=_ENVIRONMENT_PATIENCE_SECONDS)

    async def run(self) -> None:
        """Fire every schedule when it is due, until cancelled.

        A firing that fails is logged, not repeated: what repeats is the schedule.
        """
        async with asyncio.TaskGroup() as group:
            for schedule in self._schedules:
                group.create_task(self._keep(schedule, group))

    async def _keep(self, schedule: Schedule, group: asyncio.TaskGroup) -> None:
        due_at = schedule.expression.next_after(datetime.now(UTC))
        while due_at is not None:
            await asyncio.sleep(max((due_at - datetime.now(UTC)).total_seconds(), 0))
            group.create_task(self._fire_logged(schedule, due_at))
            due_at = schedule.expression.next_after(due_at)
            # A machine that slept fires once, not once for everything it missed.
            while due_at is not None and due_at <= datetime.now(UTC):
                due_at = schedule.expression.next_after(due_at)

    async def _fire_logged(self, schedule: Schedule, due_at: datetime) -> None:
        try:
            result = await self.fire(schedule, due_at)
        except TooManyRequestsError as error:
            _log.warning("%s: %r", schedule.logical_id, error)
            return
        if result.function_error is not None:
            _log.warning("%s: %s", schedule.logical_id, result.payload[:500].decode(errors="replace"))


def build_schedule_event(schedule: Schedule, scheduled_at: datetime) -> str:
    """Return the event a schedule sends: its own input, or the service's default event.

    Parameters
    ----------
    schedule
        From the template.
    scheduled_at
        The time it was due, aware.

    Returns
    -------
    str
        JSON.
    """
    moment = scheduled_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if schedule.input is not None:
        attributes = {
            "schedule-arn": schedule.arn,
            "scheduled-time": moment,
            "execution-id": uuid.uuid4().hex,
            "attempt-number": "1",
        }
        return _CONTEXT_ATTRIBUTE.sub(lambda match: attributes.get(match[1], match[0]), schedule.input)
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": schedule.service,
            "account": ACCOUNT_ID,
            "time": moment,
            "region": REGION,
            "resources": [schedule.arn],
            # The scheduler sends its empty detail as text, rules send an object.
            "detail": "{}" if schedule.service == "aws.scheduler" else {},
        }
    )
