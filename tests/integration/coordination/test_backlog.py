from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coordination.clock import Deadline
from coordination.database import connection_string
from coordination.environment import Environment
from coordination.leases import take_lease
from coordination.settings import Settings
from coordination.wake_ups import WakeUp
from delivery.send_due_wake_ups import send_due_wake_ups

if TYPE_CHECKING:
    from conftest import FreshDatabase


def read_metrics(printed: str) -> dict[str, Any]:
    """Return name and value of the figures in CloudWatch's embedded metric format."""
    figures: dict[str, Any] = {}
    for line in printed.splitlines():
        blob = json.loads(line)
        if "_aws" not in blob:
            continue
        (directive,) = blob["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "evalward"
        assert directive["Dimensions"] == [["deployment"]]
        assert blob["deployment"] == "local"
        for metric in directive["Metrics"]:
            (figures[metric["Name"]],) = blob[metric["Name"]]
    return figures


def test_pulse_tells_what_is_due_and_how_long_it_has_waited(
    environment: Environment,
    database: FreshDatabase,
    make_project: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("demo", "resting"):
        make_project(name)
    app = environment.database
    for project, ref_id in (("demo", "waits"), ("demo", "worked-on"), ("resting", "paused"), ("demo", "later")):
        with app.transaction(project) as transaction:
            transaction.wake(WakeUp("evaluation", "run", project, ref_id))
    database.look("UPDATE coordination.projects SET paused = true WHERE id = 'resting'")
    database.look("UPDATE coordination.wake_ups SET due_at = clock_timestamp() - interval '700 seconds'")
    database.look("UPDATE coordination.wake_ups SET due_at = due_at + interval '1 day' WHERE ref_id = 'later'")
    assert take_lease(app, "run:demo:worked-on", 60) is not None
    send_due_wake_ups(environment, Deadline(time.monotonic() + 60))
    figures = read_metrics(capsys.readouterr().out)
    assert figures["DueWork"] == 1
    assert 700 <= figures["OldestDueSeconds"] < 800


def test_nothing_due_is_told_as_zero(environment: Environment, capsys: pytest.CaptureFixture[str]) -> None:
    send_due_wake_ups(environment, Deadline(time.monotonic() + 60))
    assert read_metrics(capsys.readouterr().out) == {"DueWork": 0, "OldestDueSeconds": 0}


def test_host_of_a_proxy_wins_over_the_one_in_the_secret() -> None:
    secret = {"host": "writer", "port": 5432, "dbname": "evalward", "username": "evalward_app", "password": "p"}
    settings = Settings(database_secret_arn="arn", database_host="proxy", database_url=None)
    assert "host=proxy " in connection_string(settings, lambda _arn, _is_fresh: secret, is_fresh=False)
    settings = Settings(database_secret_arn="arn", database_host=None, database_url=None)
    assert "host=writer " in connection_string(settings, lambda _arn, _is_fresh: secret, is_fresh=False)
