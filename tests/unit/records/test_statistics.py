import itertools
import json
import math
from pathlib import Path
from typing import Any, cast

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records.statistics import (
    Moments,
    interval_of_mean,
    interval_of_paired_difference,
    interval_of_proportion,
    summarize,
    summarize_moments,
    summarize_proportion,
    t_quantile_975,
)
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "cases" / "statistics.json").read_text())
SCORES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=60)


def statsmodels_wilson(successes: int, n: int) -> tuple[float, float]:
    low, high = cast("tuple[float, float]", proportion_confint(successes, n, alpha=0.05, method="wilson"))
    return float(low), float(high)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}-{case['n']}-{case['mean']}")
def test_summary_is_the_one_that_a_report_must_show(case: dict[str, Any]) -> None:
    summary = summarize(case["kind"], case["scores"])
    for key in ("n", "mean", "std", "ci_low", "ci_high"):
        if key not in case:
            continue
        if case[key] is None:
            assert getattr(summary, key) is None
        else:
            assert getattr(summary, key) == pytest.approx(case[key], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    "df", [*range(1, 60), 99, 149, 150, 199, 298, 299, 300, 301, 500, 999, 10_000, 99_999, 10**6, 10**7]
)
def test_t_quantile_agrees_with_scipy(df: int) -> None:
    assert t_quantile_975(df) == pytest.approx(float(stats.t.ppf(0.975, df)), rel=1e-9)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 7, 30, 299, 300, 1_000, 1_000_000])
def test_t_quantile_solves_the_distribution_function_in_high_precision(df: int) -> None:
    with mpmath.workdps(40):
        t = mpmath.mpf(t_quantile_975(df))
        tails = mpmath.betainc(mpmath.mpf(df) / 2, mpmath.mpf(1) / 2, 0, df / (df + t * t), regularized=True)
        assert abs(tails - mpmath.mpf("0.05")) < mpmath.mpf("1e-12")


def test_t_quantile_falls_with_the_degrees_of_freedom_across_both_methods() -> None:
    quantiles = [t_quantile_975(df) for df in range(1, 700)]
    assert all(left > right for left, right in itertools.pairwise(quantiles))


@pytest.mark.parametrize("df", [0, -1])
def test_t_quantile_refuses_no_degrees_of_freedom(df: int) -> None:
    with pytest.raises(ValueError, match="degrees of freedom"):
        t_quantile_975(df)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_agrees_with_statsmodels(successes_and_n: tuple[int, int]) -> None:
    successes, n = successes_and_n
    interval = interval_of_proportion(successes, n)
    assert interval == pytest.approx(statsmodels_wilson(successes, n), rel=1e-9, abs=1e-9)
    assert interval is not None
    assert 0 <= interval[0] <= successes / n <= interval[1] <= 1


def test_wilson_interval_reaches_exactly_0_and_1() -> None:
    for n in range(1, 400):
        none, everything = interval_of_proportion(0, n), interval_of_proportion(n, n)
        assert none is not None
        assert everything is not None
        assert none[0] == 0.0
        assert everything[1] == 1.0
        assert none[1] == pytest.approx(1 - everything[0])


@pytest.mark.parametrize(("successes", "n"), [(2, 1), (-1, 3)])
def test_an_impossible_proportion_is_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="no proportion"):
        interval_of_proportion(successes, n)


@given(SCORES)
def test_mean_std_and_t_interval_agree_with_numpy_and_scipy(scores: list[float]) -> None:
    summary = summarize("number", scores)
    values = np.array(scores, dtype=np.float64)
    mean, std = float(values.mean()), float(values.std(ddof=1))
    assert summary.mean == pytest.approx(mean, rel=1e-9, abs=1e-9)
    assert summary.std == pytest.approx(std, rel=1e-9, abs=1e-7)
    if std > 1e-6:
        low, high = stats.t.interval(0.95, len(scores) - 1, loc=mean, scale=std / math.sqrt(len(scores)))
        assert (summary.ci_low, summary.ci_high) == pytest.approx((float(low), float(high)), rel=1e-9, abs=1e-6)


@given(st.floats(-1e100, 1e100), st.integers(2, 50))
def test_equal_scores_have_exactly_no_deviation(score: float, n: int) -> None:
    summary = summarize("number", [score] * n)
    assert (summary.mean, summary.std, summary.ci_low, summary.ci_high) == (score, 0.0, score, score)


def test_a_small_spread_far_from_zero_is_not_lost() -> None:
    scores = [1e9 + offset for offset in (4.0, 7.0, 13.0, 16.0)]
    assert Moments.of(scores).std == pytest.approx(math.sqrt(30), rel=1e-12)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=20), max_size=8))
def test_merged_shards_say_what_all_scores_together_say(shards: list[list[float]]) -> None:
    merged = Moments()
    for shard in shards:
        merged = merged.merge(Moments.of(shard))
    together = Moments.of(score for shard in shards for score in shard)
    assert merged.n == together.n
    assert merged.mean == pytest.approx(together.mean, rel=1e-9, abs=1e-9)
    assert merged.m2 == pytest.approx(together.m2, rel=1e-9, abs=1e-3)


@given(SCORES)
def test_moments_come_back_from_what_a_database_aggregates(scores: list[float]) -> None:
    moments = Moments.of(scores)
    again = Moments.from_aggregates(moments.n, moments.mean, moments.std)
    assert again.std == pytest.approx(moments.std, rel=1e-12)
    assert (again.n, again.mean) == (moments.n, moments.mean)


def test_moments_of_no_scores_come_back_from_nulls() -> None:
    assert Moments.from_aggregates(0, None, None) == Moments()
    assert Moments.from_aggregates(1, 0.5, None) == Moments(1, 0.5, 0.0)


@pytest.mark.parametrize(("n", "mean"), [(-1, 0.0), (3, None)])
def test_impossible_aggregates_are_refused(n: int, mean: float | None) -> None:
    with pytest.raises(ValueError, match="no aggregates"):
        Moments.from_aggregates(n, mean, None)


@pytest.mark.parametrize("kind", ["pass_fail", "number"])
def test_without_scores_everything_is_null(kind: Any) -> None:
    summary = summarize(kind, [])
    assert (summary.n, summary.mean, summary.std, summary.ci_low, summary.ci_high) == (0, None, None, None, None)


def test_one_number_has_a_mean_and_no_interval() -> None:
    summary = summarize("number", [0.0])
    assert (summary.n, summary.mean, summary.std, summary.ci_low, summary.ci_high) == (1, 0.0, None, None, None)


def test_one_verdict_has_a_wilson_interval() -> None:
    summary = summarize("pass_fail", [0.0])
    assert (summary.n, summary.mean, summary.std, summary.ci_low) == (1, 0.0, None, 0.0)
    assert summary.ci_high == pytest.approx(statsmodels_wilson(0, 1)[1])


def test_zero_is_never_negative() -> None:
    for summary in (summarize("number", [-0.0, -0.0]), summarize("number", [-1.0, -2.0, 0.0], maximum=-0.0)):
        for value in (summary.mean, summary.ci_low, summary.ci_high):
            assert value is not None
            assert not (value == 0 and math.copysign(1, value) < 0)


def test_an_interval_is_clipped_to_the_bounds_of_its_metric() -> None:
    summary = summarize("number", [0.5, 0.25, 1.0, 0.75], minimum=0.0, maximum=1.0)
    assert summary.ci_low == pytest.approx(0.11143493580986985)
    assert summary.ci_high == 1.0
    assert summarize("number", [1.0, 200.0], minimum=0.0).ci_low == 0.0


@settings(max_examples=50)
@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=30), min_size=1, max_size=8))
def test_proportions_are_exact_after_merging(shards: list[list[float]]) -> None:
    merged = Moments()
    for shard in shards:
        merged = merged.merge(Moments.of(shard))
    scores = [score for shard in shards for score in shard]
    assert summarize_moments("pass_fail", merged) == summarize_proportion(int(sum(scores)), len(scores))
    if scores:
        assert summarize_moments("pass_fail", merged).mean == sum(scores) / len(scores)
    if len(scores) > 1:
        assert summarize_moments("pass_fail", merged).std == pytest.approx(float(np.std(scores, ddof=1)), abs=1e-12)


def test_a_mean_needs_two_scores_for_an_interval() -> None:
    assert interval_of_mean(1, 0.5, None) is None
    assert interval_of_proportion(0, 0) is None


def test_paired_difference_is_that_of_the_published_example() -> None:
    assert interval_of_paired_difference(36, 12, 2, 0) == pytest.approx((0.0569, 0.3404), abs=5e-5)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 40), st.integers(0, 40))
def test_paired_difference_stays_in_range_around_the_difference(
    both: int, fixes: int, regressions: int, neither: int
) -> None:
    interval = interval_of_paired_difference(both, fixes, regressions, neither)
    n = both + fixes + regressions + neither
    if n == 0:
        assert interval is None
        return
    assert interval is not None
    low, high = interval
    assert -1 <= low <= (fixes - regressions) / n <= high <= 1
    assert high > low
    swapped = interval_of_paired_difference(both, regressions, fixes, neither)
    assert swapped == pytest.approx((-high, -low), abs=1e-12)


def test_paired_difference_refuses_a_negative_count() -> None:
    with pytest.raises(ValueError, match="negative"):
        interval_of_paired_difference(1, -1, 0, 0)
