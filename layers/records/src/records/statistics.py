"""Means, standard deviations and 95 % confidence intervals of scores.

A proportion (pass/fail) gets the Wilson score interval: Wilson, "Probable inference, the law of succession, and
statistical inference", JASA 22 (1927); unlike the textbook interval it never leaves [0, 1] and has a width when every
record passed. A mean of numbers gets Student's t interval. Where there is nothing to say, the answer is ``None``: no
mean of no scores, no standard deviation and no t interval of one score. Zero is 0.0, never -0.0 and never ``None``.

Everything here is plain double arithmetic: importing scipy or mpmath would cost a cold start more than the work.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

Z_975 = 1.959963984540054
"""The 0.975 quantile of the standard normal distribution: 95 % lie within plus and minus this."""

_SERIES_FROM_DF = 300


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations: all that an interval needs, and mergeable.

    Parameters
    ----------
    n
        Number of scores.
    mean
        Their mean; 0.0 when there are none.
    m2
        Sum of the squared deviations from the mean, 0 or more.
    """

    n: int = 0
    mean: float = 0.0
    m2: float = 0.0

    @classmethod
    def of(cls, scores: Iterable[float]) -> Self:
        """Compute the moments of scores: exact sums around the first score, so that equal scores have no deviation."""
        values = list(scores)
        if not values:
            return cls()
        first = values[0]
        n = len(values)
        mean = first + math.fsum(value - first for value in values) / n
        # What rounding the mean left over is taken out again: Chan, Golub, LeVeque, "Algorithms for computing the
        # sample variance", The American Statistician 37 (1983), equation 1.7.
        residue = math.fsum(value - mean for value in values)
        m2 = math.fsum((value - mean) ** 2 for value in values) - residue * residue / n
        return cls(n, mean, max(m2, 0.0))

    @classmethod
    def from_aggregates(cls, n: int, mean: float | None, std: float | None) -> Self:
        """Take over what a database computed: ``count``, ``avg`` and ``stddev_samp``.

        Parameters
        ----------
        n
            Number of scores.
        mean
            ``None`` only when `n` is 0.
        std
            Sample standard deviation; ``None`` when `n` is less than 2.

        Raises
        ------
        ValueError
            `n` is negative, or scores without a mean.
        """
        if n < 0 or (n > 0 and mean is None):
            message = f"{n} scores with the mean {mean} are no aggregates"
            raise ValueError(message)
        if n == 0 or mean is None:
            return cls()
        return cls(n, mean, 0.0 if std is None else std * std * (n - 1))

    def merge(self, other: Self) -> Self:
        """Return the moments of both sets of scores together (Chan, Golub, LeVeque, equation 2.1)."""
        if self.n == 0:
            return other
        if other.n == 0:
            return self
        n = self.n + other.n
        delta = other.mean - self.mean
        return type(self)(
            n, self.mean + delta * (other.n / n), self.m2 + other.m2 + delta * delta * (self.n * (other.n / n))
        )

    @property
    def std(self) -> float | None:
        """Sample standard deviation (divisor n - 1); ``None`` for fewer than two scores."""
        return None if self.n < 2 else math.sqrt(self.m2 / (self.n - 1))


@dataclass(frozen=True, slots=True)
class Summary:
    """What a report says about the scores of a metric.

    Parameters
    ----------
    n
        Number of scores.
    mean
        ``None`` when there are none.
    std
        Sample standard deviation, ``None`` for fewer than two scores.
    ci_low, ci_high
        95 % confidence interval of the mean, both ``None`` where there is none.
    """

    n: int
    mean: float | None
    std: float | None
    ci_low: float | None
    ci_high: float | None


def summarize(
    kind: Literal["pass_fail", "number"],
    scores: Iterable[float],
    *,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Summary:
    """Summarize scores; see `summarize_moments`."""
    return summarize_moments(kind, Moments.of(scores), minimum=minimum, maximum=maximum)


def summarize_moments(
    kind: Literal["pass_fail", "number"],
    moments: Moments,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Summary:
    """Summarize scores of which only the moments are known.

    Parameters
    ----------
    kind
        ``pass_fail``: every score was 0 or 1, the interval is Wilson's; ``number``: the interval is Student's.
    moments
        Of the scores.
    minimum, maximum
        Bounds that no score of this metric can leave; a Student interval is clipped to them.

    Raises
    ------
    ValueError
        The mean of pass/fail scores is not a proportion.
    """
    if moments.n == 0:
        return Summary(0, None, None, None, None)
    if kind == "pass_fail":
        # The count of successes is exact again after rounding, whatever the way the moments came about.
        return summarize_proportion(round(moments.mean * moments.n), moments.n)
    interval = interval_of_mean(moments.n, moments.mean, moments.std, minimum=minimum, maximum=maximum)
    low, high = (None, None) if interval is None else interval
    return Summary(moments.n, _zero(moments.mean), moments.std, low, high)


def summarize_proportion(successes: int, n: int) -> Summary:
    """Summarize pass/fail scores of which the number is known, and how many are 1.

    Raises
    ------
    ValueError
        Not ``0 <= successes <= n``.
    """
    interval = interval_of_proportion(successes, n)
    if interval is None:
        return Summary(0, None, None, None, None)
    std = None if n < 2 else math.sqrt(successes * (n - successes) / n / (n - 1))
    return Summary(n, successes / n, std, *interval)


def interval_of_proportion(successes: int, n: int) -> tuple[float, float] | None:
    """Return the 95 % Wilson score interval of a proportion, ``None`` without trials.

    Raises
    ------
    ValueError
        Not ``0 <= successes <= n``.
    """
    if not 0 <= successes <= n:
        message = f"{successes} of {n} is no proportion"
        raise ValueError(message)
    if n == 0:
        return None
    z2 = Z_975 * Z_975
    center = (successes + z2 / 2) / (n + z2)
    half = Z_975 / (n + z2) * math.sqrt(successes * (n - successes) / n + z2 / 4)
    # At the ends the bound is exactly 0 or 1; computed, it may miss by an ulp.
    low = 0.0 if successes == 0 else max(center - half, 0.0)
    high = 1.0 if successes == n else min(center + half, 1.0)
    return low, high


def interval_of_mean(
    n: int, mean: float, std: float | None, *, minimum: float | None = None, maximum: float | None = None
) -> tuple[float, float] | None:
    """Return the 95 % Student t interval of a mean, ``None`` for fewer than two scores.

    Parameters
    ----------
    n
        Number of scores.
    mean
        Their mean.
    std
        Their sample standard deviation.
    minimum, maximum
        Bounds to which the interval is clipped, ``None`` for none.
    """
    if n < 2 or std is None:
        return None
    half = t_quantile_975(n - 1) * std / math.sqrt(n)
    low, high = mean - half, mean + half
    if minimum is not None:
        low, high = max(low, minimum), max(high, minimum)
    if maximum is not None:
        low, high = min(low, maximum), min(high, maximum)
    return _zero(low), _zero(high)


def interval_of_paired_difference(both: int, fixes: int, regressions: int, neither: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the difference of two proportions on the same records, ``None`` without records.

    The hybrid score interval for paired data (method 10 of Newcombe, "Improved confidence intervals for the difference
    between binomial proportions based on paired data", Statistics in Medicine 17 (1998)): it never leaves [-1, 1], and
    has a width when nothing changed. For numbers, summarize the differences of the pairs instead.

    Parameters
    ----------
    both, neither
        Records that passed, or failed, in both runs.
    fixes
        Records that passed in the candidate only.
    regressions
        Records that passed in the baseline only.

    Returns
    -------
    tuple of float
        Of the candidate's proportion minus the baseline's, which is ``(fixes - regressions) / n``.

    Raises
    ------
    ValueError
        A count is negative.
    """
    if min(both, fixes, regressions, neither) < 0:
        message = "a count of records is negative"
        raise ValueError(message)
    n = both + fixes + regressions + neither
    candidate = interval_of_proportion(both + fixes, n)
    baseline = interval_of_proportion(both + regressions, n)
    if candidate is None or baseline is None:
        return None
    correlation = 0.0
    margins = (both + fixes) * (regressions + neither) * (both + regressions) * (fixes + neither)
    if margins:
        association = both * neither - fixes * regressions
        # The correction for continuity shrinks a positive association only.
        correlation = (association if association < 0 else max(association - n / 2, 0.0)) / math.sqrt(margins)
    p1, p2 = (both + fixes) / n, (both + regressions) / n
    difference = (fixes - regressions) / n

    def reach(toward: float, opposite: float) -> float:
        return math.sqrt(max(toward * toward - 2 * correlation * toward * opposite + opposite * opposite, 0.0))

    low = difference - reach(p1 - candidate[0], baseline[1] - p2)
    high = difference + reach(candidate[1] - p1, p2 - baseline[0])
    return _zero(max(low, -1.0)), _zero(min(high, 1.0))


@functools.lru_cache(maxsize=4096)
def t_quantile_975(df: int) -> float:
    """Return the 0.975 quantile of Student's t distribution, to a relative error below 1e-12.

    For many degrees of freedom by the expansion around the normal quantile (Abramowitz and Stegun, "Handbook of
    Mathematical Functions", 26.7.5), else by Newton's method on the finite sum that is exact for whole degrees of
    freedom (26.7.3 and 26.7.4), all of whose terms are positive.

    Parameters
    ----------
    df
        Degrees of freedom, at least 1.

    Raises
    ------
    ValueError
        `df` is less than 1.
    """
    if df < 1:
        message = f"{df} degrees of freedom; there must be at least 1"
        raise ValueError(message)
    if df == 1:
        return math.tan(math.pi * 0.475)
    t = _expand_around_normal(df)
    if df >= _SERIES_FROM_DF:
        return t
    log_norm = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
    for _ in range(50):
        density = math.exp(log_norm - (df + 1) / 2 * math.log1p(t * t / df))
        step = (_central_probability(t, df) - 0.95) / (2 * density)
        t -= step
        if abs(step) <= 1e-15 * t:
            break
    return t


def _expand_around_normal(df: int) -> float:
    z = Z_975
    z2 = z * z
    g1 = z * (z2 + 1) / 4
    g2 = z * ((5 * z2 + 16) * z2 + 3) / 96
    g3 = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384
    g4 = z * ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160
    return z + (g1 + (g2 + (g3 + g4 / df) / df) / df) / df


def _central_probability(t: float, df: int) -> float:
    """Probability that a t variable with `df` degrees of freedom lies within plus and minus `t`."""
    theta = math.atan2(t, math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    term = total = 1.0
    if df % 2:
        for k in range(3, df - 1, 2):
            term *= cos2 * (k - 1) / k
            total += term
        tail = math.sin(theta) * math.cos(theta) * total if df > 1 else 0.0
        return 2 / math.pi * (theta + tail)
    for k in range(2, df - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    return math.sin(theta) * total


def _zero(number: float) -> float:
    # Adding 0.0 turns -0.0 into 0.0 and leaves every other number alone.
    return number + 0.0
