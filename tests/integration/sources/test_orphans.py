from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
import retention_sweep.collect_snapshots
from coordination.clock import Deadline
from coordination.snapshots import snapshot_key
from retention_sweep.collect_snapshots import collect_snapshots

if TYPE_CHECKING:
    from integration.sources.conftest import World

MINUTE = timedelta(minutes=1)


@pytest.fixture
def done(world: World) -> str:
    """Make a window a run, leave what two attempts that were cut short would, and return the run's id."""
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    world.finish_runs()
    (run,) = world.runs()
    world.put(snapshot_key("demo", uuid.UUID(run["id"]), "a" * 64), b"{}")
    world.put(snapshot_key("demo", uuid.uuid4(), "b" * 64), b"{}")
    assert len(world.stored_keys()) == 4
    return run["id"]


def collect(world: World) -> int:
    return collect_snapshots(world.environment, "demo", Deadline.of_invocation(_Context()))  # pyright: ignore[reportArgumentType]


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def test_snapshots_that_no_run_refers_to_are_removed_and_the_others_stay(
    world: World, done: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Objects of a test are new: the age they must have is moved.
    monkeypatch.setattr(retention_sweep.collect_snapshots, "_AGE", timedelta(minutes=-1))
    assert collect(world) == 2
    world.remove_snapshots()
    left = world.stored_keys()
    assert len(left) == 2
    assert all(key.startswith(f"snapshots/demo/{done}/") and "a" * 64 not in key for key in left)
    assert collect(world) == 0
    results = world.service.get(f"/v1/projects/demo/runs/{done}/results")
    assert (results.status, len(results.json["items"])) == (200, 1)


@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.parametrize("is_decided_by", ["its retry", "hand"])
def test_what_an_attempt_that_was_killed_has_stored_is_collected(
    world: World, monkeypatch: pytest.MonkeyPatch, stored: int, is_decided_by: str
) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    put, written = world.environment.objects.put, list[str]()

    class KilledError(BaseException):
        pass

    def put_and_die(key: str, *content: Any) -> bool:
        put(key, *content)
        written.append(key)
        if len(written) == stored:
            raise KilledError
        return True

    with monkeypatch.context() as patch:
        patch.setattr(world.environment.objects, "put", put_and_die)
        with pytest.raises(KilledError):
            world.pull()
    assert world.stored_keys() == sorted(written)
    if is_decided_by == "hand":
        start = world.windows()[0]["window"]["start"]
        assert world.act(f"nightly/windows/{start}/skip").status == 200
    else:
        # The retry reads another trace too: what the dead one stored is none of it.
        world.add_trace(tick - MINUTE)
        world.make_due()
        world.pull()
        world.finish_runs()
        assert len(world.stored_keys()) == stored + 2
    monkeypatch.setattr(retention_sweep.collect_snapshots, "_AGE", timedelta(minutes=-1))
    assert collect(world) == 1
    world.remove_snapshots()
    left = world.stored_keys()
    assert not set(left) & set(written)
    assert len(left) == (0 if is_decided_by == "hand" else 2)
    assert [run["state"] for run in world.runs()] == ([] if is_decided_by == "hand" else ["succeeded"])


def test_young_snapshots_are_left_alone(world: World, done: str) -> None:
    assert collect(world) == 0
    assert len(world.stored_keys()) == 4
