from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from coordination.environment import Environment
from coordination.settings import TransactionSettings
from psycopg.sql import SQL
from run_evaluation import finish_run as finishing

if TYPE_CHECKING:
    from integration.conftest import Reply
    from integration.runs.conftest import World

SLOW = SQL("SELECT pg_sleep(30), %(tenant)s::text")
RUNS = "/v1/projects/demo/runs"
COMPARE = "/v1/projects/demo/runs:compare"


def report(world: World, run: str, **options: Any) -> Reply:
    return world.service.get(f"{RUNS}/{run}/report", **options)


def metric_of(world: World, run: str, metric: str) -> Any:
    (found,) = [one for one in report(world, run).json["metrics"] if one["id"] == metric]
    return found


def test_report_counts_scores_in_twenty_bins(world: World) -> None:
    records = [{"id": f"r{at}", "output": "a b c d", "reference": " ".join("abcd"[:at])} for at in range(5)]
    world.publish(records)
    run = world.run_to_end(evaluators=[{"name": "token_f1", "params": {"threshold": 0.7}}])
    metric = metric_of(world, run, "token_f1")
    assert metric["distribution"]["low"] == 0.0
    assert metric["distribution"]["high"] == 1.0
    # "a" is an article to SQuAD: the F1s are 0, 0, 0.5, 0.8, 1.
    counts = [0] * 20
    counts[0], counts[10], counts[16], counts[19] = 2, 1, 1, 1
    assert metric["distribution"]["counts"] == counts
    assert (metric["passed"], metric["failed"], metric["n"]) == (2, 3, 5)


def test_numbers_without_a_scale_are_binned_between_their_extremes(world: World) -> None:
    world.publish([{"id": f"r{at}", "output": "x", "usage": {"latency_ms": ms}} for at, ms in enumerate([10, 20, 50])])
    run = world.run_to_end(evaluators=[{"name": "latency"}])
    distribution = metric_of(world, run, "latency")["distribution"]
    assert (distribution["low"], distribution["high"], sum(distribution["counts"])) == (10, 50, 3)
    assert (distribution["counts"][0], distribution["counts"][5], distribution["counts"][19]) == (1, 1, 1)


def test_equal_numbers_are_one_bin_and_pass_fail_has_none(world: World) -> None:
    world.publish([{"id": f"r{at}", "output": "x", "reference": "x", "usage": {"latency_ms": 7}} for at in range(3)])
    run = world.run_to_end(evaluators=[{"name": "latency"}, {"name": "exact_match"}, {"name": "cost"}])
    assert metric_of(world, run, "latency")["distribution"] == {"low": 7.0, "high": 7.0, "counts": [3]}
    assert metric_of(world, run, "exact_match")["distribution"] is None
    assert metric_of(world, run, "cost")["distribution"] is None


def test_worst_records_are_errors_then_failures_then_the_worst_scores(world: World) -> None:
    records: list[dict[str, Any]] = [
        {"id": f"r{at}", "output": output, "reference": "yes", "usage": {"latency_ms": 100 - at}}
        for at, output in enumerate(["yes", "no", "yes", "a\0b", None, *["no"] * 12])
    ]
    world.publish(records)
    run = world.run_to_end(evaluators=[{"name": "exact_match"}, {"name": "latency"}, {"name": "length"}])
    worst = report(world, run).json["worst"]
    exact = [(one["record"], one["status"]) for one in worst if one["evaluator"] == "exact_match"]
    assert exact == [("r3", "error"), ("r1", "scored"), *[(f"r{at}", "scored") for at in range(5, 13)]]
    assert "NUL" in worst[0]["error"]
    latency = [(one["record"], one["score"]) for one in worst if one["evaluator"] == "latency"]
    assert latency[:3] == [("r3", None), ("r0", 100.0), ("r1", 99.0)]
    # A length is neither good nor bad: only what could not be judged is named.
    assert [one["record"] for one in worst if one["evaluator"] == "length"] == ["r3"]


def test_perfect_scores_are_none_of_the_worst(world: World) -> None:
    world.publish_answers(["yes", "yes"])
    run = world.run_to_end(evaluators=[{"name": "exact_match"}, {"name": "token_f1"}])
    assert report(world, run).json["worst"] == []


def test_skipped_results_say_why(world: World) -> None:
    world.publish_answers([None])
    run = world.run_to_end()
    (result,) = world.results(run)
    assert (result["status"], result["score"], result["error"]) == ("skipped", None, "the record has no output")


def test_report_is_answered_in_the_form_asked_for(world: World) -> None:
    world.publish_answers(["yes", "no"])
    run = world.run_to_end(gates=[{"metric": "exact_match", "stat": "mean", "min": 0.9}], labels={"a": "b"})
    assert report(world, run).headers["content-type"] == "application/json"
    page = report(world, run, headers={"Accept": "text/html,application/xml;q=0.9,*/*;q=0.8"})
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content.startswith(b"<!doctype html>")
    assert page.headers["vary"] == "accept"
    assert b"questions@1" in page.content
    assert report(world, run, query="format=html").content == page.content
    text = report(world, run, headers={"accept": "text/markdown"})
    assert text.content.decode().startswith("# ❌ Failed: nightly")
    junit = report(world, run, query="format=junit", headers={"accept": "application/json"})
    assert junit.headers["content-type"] == "application/xml"
    assert ElementTree.fromstring(junit.content).get("failures") == "1"
    assert report(world, run, query="format=pdf").status == 400


def test_report_says_what_moved_since_a_named_or_the_previous_run(world: World) -> None:
    world.publish_answers(["yes", "yes", "no"])
    first = world.run_to_end()
    assert "comparison" not in report(world, first, query="baseline=previous").json
    another = {"name": "another", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
    other = world.service.post(RUNS, another).json["id"]
    world.work_all()
    world.publish_answers(["yes", "no", "no"], name="changed")
    last = world.run_to_end(name="changed")
    assert "comparison" not in report(world, last).json
    moved = report(world, last, query="baseline=previous").json["comparison"]
    assert moved["baseline"]["id"] == first
    assert (moved["metrics"][0]["regressions_count"], moved["metrics"][0]["fixes_count"]) == (1, 0)
    assert moved == world.service.get(COMPARE, query=f"baseline={first}&candidate={last}").json
    named = report(world, last, query=f"baseline={other}").json["comparison"]
    assert named["baseline"]["name"] == "another"
    page = report(world, last, query="baseline=previous&format=html").content.decode()
    assert ">What moved</h2>" in page
    assert f"run {first}" in page
    text = report(world, last, query="baseline=previous&format=markdown").content.decode()
    assert "## What moved" in text


def test_baseline_that_is_none_is_a_problem(world: World) -> None:
    world.publish_answers(["yes"])
    run, pending = world.run_to_end(), world.create()
    assert report(world, run, query=f"baseline={uuid.uuid4()}").status == 404
    assert report(world, run, query=f"baseline={pending}").code == "run_not_finished"
    assert report(world, run, query="baseline=yesterday").status == 400


def test_page_of_a_hostile_run_has_no_script(world: World) -> None:
    world.publish([{"id": "<script>alert(1)</script>", "output": "a", "reference": "b"}])
    run = world.run_to_end(labels={}, gates=[])
    content = report(world, run, query="format=html").content
    assert b"<script" not in content
    assert b"&lt;script&gt;" in content


@pytest.mark.parametrize("form", ["json", "html", "markdown", "junit"])
def test_run_without_report_is_a_problem_in_every_form(world: World, form: str, make_key: Callable[..., str]) -> None:
    world.publish_answers(["yes"])
    run = world.create()
    assert report(world, run, query=f"format={form}").code == "run_not_finished"
    world.act(run, "cancel")
    assert report(world, run, query=f"format={form}").code == "run_without_report"
    stranger = make_key({"project": "demo", "permissions": ["datasets.read"]})
    assert report(world, run, query=f"format={form}", key=stranger).status == 403


def test_run_whose_worst_records_cannot_be_listed_in_time_ends_without_them(
    world: World, make_environments: Callable[..., Environment], monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish_answers(["yes", "no"])
    run = world.create()
    monkeypatch.setattr(finishing, "_QUERIES", dict(finishing._QUERIES) | {"list_worst_results": SLOW})
    world.environment = make_environments(transactions=TransactionSettings(statement_timeout_ms=1_500))
    world.work_all()
    assert world.read(run)["state"] == "succeeded"
    assert report(world, run).json["worst"] == []
    assert metric_of(world, run, "exact_match")["mean"] == 0.5
