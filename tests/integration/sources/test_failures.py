from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import scheduled_pull.pull_source
from coordination.source_health import read_source_health

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


class KilledError(BaseException):
    """What no handler of errors sees."""


def die(*_arguments: Any) -> None:
    raise KilledError


def test_attempt_that_died_is_a_failed_one_whose_reason_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    with monkeypatch.context() as patch:
        patch.setattr(scheduled_pull.pull_source, "_read_window", die)
        with pytest.raises(KilledError):
            world.pull()
        assert (world.windows()[0]["error_code"], world.read()["failed_attempts"]) == (None, 0)
        # The next one is not due yet, and what became of the first is told all the same, once.
        for _ in range(2):
            world.pull()
            (window,) = world.windows()
            assert (window["state"], window["attempts"], window["error_code"]) == ("working", 1, "attempt_cut_short")
            assert world.read()["failed_attempts"] == 1
        world.make_due()
        with pytest.raises(KilledError):
            world.pull()
    (failure,) = world.service.get("/v1/projects/demo/failures").json["items"]
    assert (failure["work"], failure["occurrence_count"]) == ("nightly", 1)
    world.make_due()
    world.pull()
    (window,) = world.windows()
    assert (window["state"], window["attempts"], window["error_code"]) == ("done", 3, None)
    assert world.read()["failed_attempts"] == 2
    (failure,) = world.service.get("/v1/projects/demo/failures").json["items"]
    assert (failure["state"], failure["occurrence_count"]) == ("resolved", 2)


@pytest.mark.parametrize("is_by_hand", [False, True])
def test_window_whose_attempts_all_died_says_so_when_its_time_is_over(
    world: World, monkeypatch: pytest.MonkeyPatch, is_by_hand: bool
) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - MINUTE)
    if is_by_hand:
        world.pull()
        (window,) = world.windows()
        assert world.act(f"nightly/windows/{window['window']['start']}/run", {}).status == 202
        world.make_due()
    with monkeypatch.context() as patch:
        patch.setattr(scheduled_pull.pull_source, "_read_window", die)
        with pytest.raises(KilledError):
            world.pull()
    world.database.look("UPDATE evals.sources SET config = jsonb_set(config, '{starting_deadline_seconds}', '120')")
    world.database.look("UPDATE evals.source_windows SET deadline_at = clock_timestamp() - interval '1 second'"
                        " WHERE deadline_at IS NOT NULL")  # fmt: skip
    world.make_due()
    world.pull()
    (window,) = world.windows()
    assert (window["state"], window["error_code"]) == (
        "empty" if is_by_hand else "missed_deadline",
        "attempt_cut_short",
    )
    with world.environment.database.transaction("demo") as transaction:
        missed = read_source_health(transaction).missed
    assert [(one.reason, one.ticks) for one in missed] == ([] if is_by_hand else [("attempt_cut_short", 1)])


def test_attempt_that_is_given_up_by_an_edit_has_not_died(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    real = scheduled_pull.pull_source._read_window

    def read_while_paused(*arguments: Any) -> Any:
        world.act("nightly/pause")
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(scheduled_pull.pull_source, "_read_window", read_while_paused)
        world.pull()
    world.act("nightly/resume")
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert world.read()["failed_attempts"] == 0
    assert [window["error_code"] for window in world.windows()] == [None]
