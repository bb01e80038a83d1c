"""Faults of runs and reports that users of other systems met."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest
from coordination.queries import load_queries
from records.evaluators import catalogue
from records.evaluators.contract import Scorer
from records.record import Record

if TYPE_CHECKING:
    from integration.runs.conftest import World

THREE = [{"name": "exact_match"}, {"name": "contains"}, {"name": "length"}]


def report_of(world: World, run: str) -> Any:
    reply = world.service.get(f"/v1/projects/demo/runs/{run}/report")
    assert reply.status == 200
    return reply.json


def test_error_on_the_first_row_hides_no_metric_and_leaves_no_mean_of_one(world: World) -> None:
    world.publish_answers(["a\0", "yes", "yes", "a\0"])
    gate = {"metric": "exact_match", "stat": "mean", "min": 0.5}
    run = world.run_to_end(gates=[gate])
    report = report_of(world, run)
    (metric,) = report["metrics"]
    assert (metric["mean"], metric["coverage"], metric["errors"]) == (1.0, 0.5, 2)
    (outcome,) = report["gates"]
    assert (outcome["passed"], world.read(run)["state"]) == (False, "failed")


def test_evaluator_that_throws_is_an_error_of_its_rows_and_stays_in_the_report(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(_record: Record) -> Any:
        raise ZeroDivisionError("a private text")

    def build(_evaluators: Any) -> list[tuple[str, Scorer]]:
        scorers = [(str(one["name"]), catalogue.build(str(one["name"]))) for one in THREE]
        scorers[1] = ("contains", Scorer(catalogue.get_evaluator("contains"), explode))
        return scorers

    world.publish_answers(["yes", "yes", "no"])
    monkeypatch.setattr("run_evaluation.evaluate_shard.build_scorers", build)
    run = world.run_to_end(evaluators=THREE)
    metrics = {metric["id"]: metric for metric in report_of(world, run)["metrics"]}
    assert list(metrics) == ["exact_match", "contains", "length"]
    assert (metrics["contains"]["mean"], metrics["contains"]["errors"]) == (None, 3)
    assert (metrics["exact_match"]["n"], metrics["length"]["n"]) == (3, 3)
    assert len(world.results(run)) == 9
    assert world.tables_that_mention("private") == {}


def test_every_row_is_scored_skipped_or_in_error_when_a_run_ends(world: World) -> None:
    world.publish_answers(["yes", None, "a\0", "no", "yes", None, "yes"])
    run = world.run_to_end(evaluators=THREE)
    shown = world.read(run)
    assert (shown["progress"]["total"], shown["progress"]["done"]) == (7, 7)
    assert sum(shown["progress"][status] for status in ("scored", "skipped", "errors")) == 7 * len(THREE)
    for metric in report_of(world, run)["metrics"]:
        assert metric["scored"] + metric["skipped"] + metric["errors"] == 7


def test_run_after_the_references_changed_uses_and_names_the_new_ones(world: World) -> None:
    old = world.publish([{"id": "a", "output": "yes", "reference": "yes"}], name="before")
    new = world.publish([{"id": "a", "output": "yes", "reference": "no"}], name="after")
    first, second = world.run_to_end(name="before"), world.run_to_end(name="after")
    means = {run: report_of(world, run)["metrics"][0]["mean"] for run in (first, second)}
    assert means == {first: 1.0, second: 0.0}
    assert [report_of(world, run)["dataset_sha256"] for run in (first, second)] == [old, new]
    comparison = world.service.get("/v1/projects/demo/runs:compare", query=f"baseline={first}&candidate={second}").json
    assert [comparison[side]["dataset"]["sha256"] for side in ("baseline", "candidate")] == [old, new]


def test_same_records_evaluated_twice_do_not_meet(world: World) -> None:
    world.publish_answers(["yes", "no"])
    first, second = world.run_to_end(), world.run_to_end()
    assert world.results(first) == world.results(second)
    assert world.database.look_up("SELECT count(*) FROM evals.run_results") == 4


@pytest.mark.parametrize("after", [None, 40_000])
def test_page_of_results_is_read_from_its_place_in_the_key(world: World, after: int | None) -> None:
    """The time of a page does not depend on the size of the run: it walks the key, and only so far as the page goes."""
    with world.database.connect("app") as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT scheduler_app.begin_tenant('demo', 1000, 60000)")
        connection.execute(
            "INSERT INTO evals.run_results (tenant_id, run_id, record_no, trial, evaluator, record, status, score)"
            " SELECT 'demo', '00000000-0000-0000-0000-000000000001', n, 1, 'length', 'r', 'scored', 1"
            " FROM generate_series(0, 49999) AS n"
        )
        text = load_queries("runs")["list_results"].as_string()
        params = dict.fromkeys(re.findall(r"%\((\w+)\)s", text)) | {
            "tenant": "demo",
            "run_id": "00000000-0000-0000-0000-000000000001",
            "after_record_no": after,
            "after_trial": None if after is None else 1,
            "after_evaluator": None if after is None else "length",
            "limit": 101,
        }
        rows = connection.execute(cast("Any", f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"), params).fetchall()
    (plan,) = rows[0]["QUERY PLAN"]
    scans = [node for node in walk(plan["Plan"]) if "Scan" in node["Node Type"]]
    assert [(node["Node Type"], node["Index Name"]) for node in scans] == [("Index Scan", "run_results_pkey")]
    assert scans[0]["Actual Rows"] <= 102
    assert scans[0].get("Rows Removed by Filter", 0) <= 1


def walk(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from walk(below)
