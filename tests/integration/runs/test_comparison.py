from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from records.statistics import interval_of_paired_difference
from scipy import stats

if TYPE_CHECKING:
    from integration.conftest import Reply
    from integration.runs.conftest import World

PATH = "/v1/projects/demo/runs:compare"


def compare(world: World, baseline: str, candidate: str, **options: Any) -> Reply:
    return world.service.get(PATH, query=f"baseline={baseline}&candidate={candidate}", **options)


def run_of(world: World, name: str, outputs: dict[str, Any], **options: Any) -> str:
    world.publish(
        [{"id": record, "output": output, "reference": "yes"} for record, output in outputs.items()], name=name
    )
    return world.run_to_end(name=name, **options)


def test_pass_fail_records_are_paired_by_id(world: World) -> None:
    first = run_of(world, "first", {"a": "yes", "b": "yes", "c": "no", "d": "no", "e": "yes", "only-1": "yes"})
    second = run_of(world, "second", {"only-2": "no", "e": None, "d": "no", "c": "yes", "b": "no", "a": "yes"})
    reply = compare(world, first, second)
    assert reply.status == 200, reply.json
    (metric,) = reply.json["metrics"]
    low, high = interval_of_paired_difference(both=1, fixes=1, regressions=1, neither=1) or (0, 0)
    assert metric == {
        "id": "exact_match", "evaluator": "exact_match", "kind": "pass_fail", "better": "higher", "unit": None,
        "same_params": True, "n": 4, "baseline_mean": 0.5, "candidate_mean": 0.5, "difference": 0.0,
        "ci_low": pytest.approx(low), "ci_high": pytest.approx(high), "regressions_count": 1, "fixes_count": 1,
        "regressions": [{"record": "b", "trial": 1, "baseline": 1.0, "candidate": 0.0}],
        "fixes": [{"record": "c", "trial": 1, "baseline": 0.0, "candidate": 1.0}],
        "baseline_only": 2, "candidate_only": 1,
    }  # fmt: skip
    assert -1 <= low < high <= 1
    assert reply.json["same_dataset"] is False
    assert reply.json["same_config"] is True
    assert reply.json["baseline"]["id"] == first
    assert reply.json["candidate"]["dataset"]["name"] == "second"


def test_opposite_extremes_stay_inside_minus_one_to_one(world: World) -> None:
    first = run_of(world, "first", {f"r{at}": "yes" for at in range(3)})
    second = run_of(world, "second", {f"r{at}": "no" for at in range(3)})
    (metric,) = compare(world, first, second).json["metrics"]
    assert (metric["difference"], metric["ci_low"]) == (-1.0, -1.0)
    assert -1 < metric["ci_high"] < 0


def latencies(world: World, name: str, values: list[float], **options: Any) -> str:
    world.publish(
        [{"id": f"r{at}", "output": "x", "usage": {"latency_ms": ms}} for at, ms in enumerate(values)], name=name
    )
    return world.run_to_end(name=name, evaluators=[{"name": "latency", **options}])


def test_numbers_are_compared_by_students_t_of_the_differences(world: World) -> None:
    before, after = [100.0, 200.0, 300.0, 400.0], [110.0, 180.0, 330.0, 390.0]
    first, second = latencies(world, "first", before), latencies(world, "second", after)
    (metric,) = compare(world, first, second).json["metrics"]
    changes = [new - old for old, new in zip(before, after, strict=True)]
    interval = stats.t.interval(0.95, 3, statistics.mean(changes), stats.sem(changes))
    assert metric["difference"] == pytest.approx(2.5)
    assert (metric["ci_low"], metric["ci_high"]) == pytest.approx(interval)
    # A longer latency is the worse one; the largest change comes first.
    assert [one["record"] for one in metric["regressions"]] == ["r2", "r0"]
    assert [one["record"] for one in metric["fixes"]] == ["r1", "r3"]
    assert metric["better"] == "lower"


def test_where_numbers_pass_or_fail_only_that_counts_as_a_change(world: World) -> None:
    first = latencies(world, "first", [100, 200, 300], params={"max": 250})
    second = latencies(world, "second", [120, 260, 240], params={"max": 250})
    (metric,) = compare(world, first, second).json["metrics"]
    assert [one["record"] for one in metric["regressions"]] == ["r1"]
    assert [one["record"] for one in metric["fixes"]] == ["r2"]


def test_differences_of_a_bounded_number_stay_in_its_bounds(world: World) -> None:
    f1 = [{"name": "token_f1"}]
    first = run_of(world, "first", {"a": "yes", "b": "no"}, evaluators=f1)
    second = run_of(world, "second", {"a": "no", "b": "yes"}, evaluators=f1)
    (metric,) = compare(world, first, second).json["metrics"]
    assert (metric["ci_low"], metric["ci_high"]) == (-1.0, 1.0)


def test_run_compared_with_itself_has_no_change(world: World) -> None:
    run = run_of(world, "first", {"a": "yes", "b": "no"})
    body = compare(world, run, run).json
    (metric,) = body["metrics"]
    assert (metric["difference"], metric["regressions_count"], metric["fixes_count"]) == (0.0, 0, 0)
    assert (body["same_dataset"], body["same_config"]) == (True, True)


def test_metrics_that_do_not_mean_the_same_are_left_out_with_a_reason(world: World) -> None:
    outputs = {"a": "yes"}
    first = run_of(world, "first", outputs, evaluators=[
        {"name": "exact_match"}, {"name": "contains", "id": "m"}, {"name": "length"},
        {"name": "fuzzy_match", "params": {"threshold": 0.5}}])  # fmt: skip
    second = run_of(world, "second", outputs, evaluators=[
        {"name": "exact_match"}, {"name": "json_valid", "id": "m"}, {"name": "json_valid"},
        {"name": "fuzzy_match", "params": {"threshold": 0.6}}])  # fmt: skip
    world.database.look(
        "UPDATE evals.runs SET report = jsonb_set(report, '{evaluator_versions,exact_match}', '2') WHERE id = %(id)s",
        {"id": second},
    )
    body = compare(world, first, second).json
    assert [(metric["id"], metric["same_params"]) for metric in body["metrics"]] == [("fuzzy_match", False)]
    assert body["not_compared"] == [
        {"id": "exact_match", "reason": "exact_match had version 1, then 2: its scores do not mean the same"},
        {"id": "m", "reason": "contains in the baseline, json_valid in the candidate"},
        {"id": "length", "reason": "only the baseline has it"},
        {"id": "json_valid", "reason": "only the candidate has it"},
    ]


def test_metric_without_any_score_has_no_difference(world: World) -> None:
    first = run_of(world, "first", {"a": None})
    (metric,) = compare(world, first, first).json["metrics"]
    assert (metric["n"], metric["difference"], metric["ci_low"], metric["regressions"]) == (0, None, None, [])


def test_lists_are_bounded_and_counts_are_not(world: World) -> None:
    first = run_of(world, "first", {f"r{at:03}": "yes" for at in range(120)})
    second = run_of(world, "second", {f"r{at:03}": "no" for at in range(120)})
    (metric,) = compare(world, first, second).json["metrics"]
    assert (metric["regressions_count"], len(metric["regressions"])) == (120, 100)
    assert metric["regressions"][0]["record"] == "r000"


def test_comparison_needs_two_finished_runs_of_the_project(
    world: World, make_key: Callable[..., str], make_project: Callable[..., str]
) -> None:
    run = run_of(world, "first", {"a": "yes"})
    pending = world.create(name="first")
    unknown = "00000000-0000-0000-0000-000000000000"
    assert compare(world, run, unknown).status == 404
    assert "candidate" in compare(world, run, unknown).json["detail"]
    assert compare(world, pending, run).code == "run_not_finished"
    world.act(pending, "cancel")
    assert compare(world, pending, run).code == "run_without_report"
    assert world.service.get(PATH).pointers == ["/baseline", "/candidate"]
    assert world.service.get(PATH, query="baseline=1&candidate=2").status == 400
    make_project("other")
    other = world.service.get("/v1/projects/other/runs:compare", query=f"baseline={run}&candidate={run}")
    assert other.status == 404
    assert compare(world, run, run, key=make_key({"project": "demo", "permissions": ["evaluate"]})).status == 403
