"""Reports to render."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from api.runs.models import Report
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
