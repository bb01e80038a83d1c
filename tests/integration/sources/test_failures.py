from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from integration.sources.conftest import World

MINUTE = timedelta(minutes=1)


def test_pull_that_fails_is_a_failure_until_the_window_is_read(world: World) -> None:
    world.create()
    tick = world.last_tick()
    trace, spans = world.make_spans(tick - 30 * MINUTE)
    del spans[0]["endTimeUnixNano"]
    key = "traces/demo/" + (tick - 30 * MINUTE).strftime("year=%Y/month=%m/day=%d/hour=%H/minute=%M") + "/one.json"
    world.add_file(spans, at=tick - 30 * MINUTE, key=key)
    world.set_cursor(tick - MINUTE)
    for _ in range(2):
        world.make_due()
        world.pull()
    (failure,) = world.service.get("/v1/projects/demo/failures").json["items"]
    assert (failure["kind"], failure["work"], failure["state"]) == ("pull", "nightly", "unresolved")
    assert failure["occurrence_count"] == 2
    assert failure["error"].startswith(f"{world.windows()[0]['error_code']}: ")
    assert trace not in failure["error"]

    spans[0]["endTimeUnixNano"] = spans[1]["endTimeUnixNano"]
    world.environment.objects.delete([key])
    world.add_file(spans, at=tick - 30 * MINUTE)
    world.make_due()
    world.pull()

    assert world.windows()[0]["state"] == "done"
    (failure,) = world.service.get("/v1/projects/demo/failures").json["items"]
    assert (failure["state"], failure["resolved_by"]) == ("resolved", "work")
