"""What the report of a source's run quotes."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.sources.conftest import World

MINUTE = timedelta(minutes=1)


def test_records_of_a_source_are_quoted_as_they_were_redacted(world: World) -> None:
    world.create(evaluators=[{"name": "contains", "params": {"text": "nowhere"}}])
    tick = world.last_tick()
    world.add_trace(tick - 30 * MINUTE, output="write to ann@example.com")
    world.set_cursor(tick - MINUTE)
    world.pulse()
    world.pull()
    world.finish_runs()

    (run,) = world.runs()
    reply = world.service.get(f"/v1/projects/demo/runs/{run['id']}/report", query="excerpts=true")
    (worst,) = reply.json["worst"]
    assert worst["excerpts"] == {
        "input": {"text": "a question", "is_cut": False},
        "output": {"text": "write to [redacted:email]", "is_cut": False},
        "reference": None,
        # No dataset lists it, and the record carries its output.
        "record_path": None,
        "output_path": None,
    }
    assert b"ann@example.com" not in reply.content
