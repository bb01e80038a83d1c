from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING

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


def test_young_snapshots_are_left_alone(world: World, done: str) -> None:
    assert collect(world) == 0
    assert len(world.stored_keys()) == 4
