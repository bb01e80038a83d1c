"""Reports to render."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api.runs.excerpts import make_excerpt
from api.runs.models import Comparison, Excerpts, Report
from records.gates import Gate
from records.report import Distribution, MetricAggregate, RunFacts, build_report
from records.statistics import Moments

DIGEST = "ab" * 32
WORST = {"evaluator": "exact", "trial": 1, "status": "scored", "score": 0.0, "passed": False, "error": None}


@pytest.fixture
def make_report() -> Callable[..., Report]:
    """Return a function that makes a report of three metrics; `text` stands wherever users may name something."""

    def make(text: str = "nightly", *, gates: tuple[Gate, ...] | None = None, **facts: Any) -> Report:
        values: dict[str, Any] = {
            "run": "0198f5a0-0000-7000-8000-000000000000",
            "project": "demo",
            "name": text,
            "dataset": "questions@3",
            "dataset_sha256": DIGEST,
            "config_sha256": "cd" * 32,
            "records": 10,
            "created_at": "2026-01-01T00:00:00Z",
            "started_at": "2026-01-01T00:00:01Z",
            "finished_at": "2026-01-01T00:00:03.5Z",
            "input_tokens": 0,
            "cost_usd": 0.0,
            **facts,
        }
        about = RunFacts(**values)
        zero: dict[str, Any] = {"version": 1, "minimum": 0.0}
        metrics = [
            MetricAggregate(id="exact", evaluator="exact_match", kind="pass_fail", moments=Moments(8, 0.875, 0.875),
                            skipped=1, errors=1, passed=7, failed=1, maximum=1.0, **zero),
            MetricAggregate(id=text, evaluator="token_f1", kind="number", moments=Moments.of([0.0, 0.5, 1.0, 1.0]),
                            skipped=6, errors=0, maximum=1.0,
                            distribution=Distribution(low=0.0, high=1.0, counts=[1, 0, 1, 2]), **zero),
            MetricAggregate(id="latency", evaluator="latency", kind="number", moments=Moments(), skipped=10, errors=0,
                            **zero),
        ]  # fmt: skip
        if gates is None:
            gates = (
                Gate(metric=text, stat="ci_low", min=0.9),
                Gate(metric="exact", stat="mean", min=0.5, max=1.0),
                Gate(metric=text, stat="mean", max=2.0),
            )
        worst = [
            WORST | {"record": text, "status": "error", "score": None, "passed": None, "error": text},
            WORST | {"record": "r2"},
            WORST | {"record": "r3", "evaluator": text, "passed": None},
        ]
        return Report.model_validate(build_report(about, metrics, gates, worst=worst))

    return make


@pytest.fixture
def quote() -> Callable[..., Report]:
    """Return a function that quotes a text of every worst record of a report."""

    def add(report: Report, text: str) -> Report:
        excerpt = make_excerpt(text)
        excerpts = Excerpts(input=excerpt, output=excerpt, reference=None, record_path=None, output_path=None)
        return report.model_copy(
            update={"worst": [one.model_copy(update={"excerpts": excerpts}) for one in report.worst]}
        )

    return add


@pytest.fixture
def make_comparison() -> Callable[..., Comparison]:
    """Return a function that makes a comparison of three metrics: worse, better, without a pair."""

    def make(text: str = "nightly") -> Comparison:
        def metric(name: str, **values: Any) -> dict[str, Any]:
            return {
                "id": name, "evaluator": "exact_match", "kind": "pass_fail", "better": "higher", "same_params": True,
                "n": 8, "baseline_mean": 0.75, "candidate_mean": 0.25, "difference": -0.5, "ci_low": -0.75,
                "ci_high": -0.125, "regressions_count": 0, "fixes_count": 0, "regressions": [], "fixes": [],
                "baseline_only": 0, "candidate_only": 0,
            } | values  # fmt: skip

        def side(run: int) -> dict[str, Any]:
            return {
                "id": f"0198f5a0-0000-7000-8000-00000000000{run}", "name": text, "state": "succeeded",
                "dataset": None, "config_sha256": DIGEST, "finished_at": "2026-01-01T00:00:00Z",
            }  # fmt: skip

        regressions = [{"record": f"{text}-{at}", "trial": 1, "baseline": 1.0, "candidate": 0.0} for at in range(7)]
        better = {"baseline_mean": 0.25, "candidate_mean": 0.75, "difference": 0.5, "ci_low": 0.125, "ci_high": 0.75}
        unknown = dict.fromkeys(better)
        return Comparison.model_validate(
            {
                "baseline": side(1),
                "candidate": side(2),
                "same_dataset": False,
                "same_config": True,
                "metrics": [
                    metric(text, regressions_count=9, regressions=regressions),
                    metric("exact", fixes_count=4, **better),
                    metric("latency", n=0, **unknown),
                ],
                "not_compared": [{"id": "judge", "reason": f"only the candidate has it {text}"}],
            }
        )

    return make
