"""Means with intervals, and tests for paired comparisons, based on scipy.

There must be one value per independent unit (a track, a training seed). If repeated measurements of
one unit are pooled, every interval here is too narrow. NaN and infinities are refused, because the
caller must decide what a missing measurement means.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import expit

Alternative = Literal["two-sided", "greater", "less"]

EXACT_LIMIT = 20
MONTE_CARLO_FLIPS = 100_000
BATCH = 1 << 14
"""Number of flips that are summed at once; it limits the memory."""


@dataclass(frozen=True)
class Estimate:
    """A point estimate with a 95% interval (or another confidence, if requested).

    Attributes:
        mean: the statistic, usually the mean.
        low, high: the interval; None if there are too few values.
        n: number of values.
        values: the two values themselves if there are exactly two, and so no interval.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """`{"mean", "low", "high", "n"}`, the form of every record in this project.

        `values` is added as a list if it is not empty.
        """
        plain = {"mean": self.mean, "low": self.low, "high": self.high, "n": self.n}
        return plain | ({"values": list(self.values)} if self.values else {})

    def __str__(self) -> str:
        if self.values:
            return f"{' and '.join(f'{value:.4g}' for value in self.values)} (n={self.n})"
        if self.low is None or self.high is None:
            return f"{self.mean:.4g} (n={self.n})"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}] (n={self.n})"


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `values` (1-D, n >= 1) with Student's t interval, from two values on.

    It ignores the range of the quantity, and it is very wide for two values. The ledgers of
    campaigns hold it; results for people use `bounded_interval`.
    """
    x = _checked(values)
    _check_confidence(confidence)
    mean = float(x.mean())
    if x.size == 1:
        return Estimate(mean, None, None, 1)
    half = float(stats.t.ppf((1 + confidence) / 2, x.size - 1) * x.std(ddof=1) / math.sqrt(x.size))
    return Estimate(mean, mean - half, mean + half, x.size)


def bounded_interval(
    values: ArrayLike,
    low: float | None = None,
    high: float | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Mean of `values` (1-D, n >= 1) with an interval inside the quantity's range.

    It is Student's t interval on a transformed scale without ends, transformed back (delta method).
    For a range with two ends the scale is the logit of the mean (for -1 to 1 this is Fisher's z).
    For one end it is the logarithm of the distance to that end. Without ends it is the mean itself.
    If all values lie on one end of a range with two, the interval is Wilson's for no successes in n
    trials. Two values have no interval; they are in `Estimate.values`.

    Args:
        low, high: ends of the range; None for an open end.

    Raises:
        ValueError: values that are not finite or not in the range, or a range without width.
    """
    x = _checked(values)
    _check_confidence(confidence)
    if low is not None and high is not None and low >= high:
        raise ValueError(f"a range from {low:g} to {high:g} has no width")
    outside = x[
        ((x < low) if low is not None else False) | ((x > high) if high is not None else False)
    ]
    if outside.size:
        raise ValueError(f"{outside[0]:g} is outside of the range {_range(low, high)}")
    mean = float(x.mean())
    if x.size <= 2:
        return Estimate(mean, None, None, x.size, tuple(x.tolist()) if x.size == 2 else ())
    deviation = float(x.std(ddof=1))
    return Estimate(mean, *_limits(mean, deviation, x.size, low, high, confidence), x.size)


def _limits(
    mean: float, deviation: float, n: int, low: float | None, high: float | None, confidence: float
) -> tuple[float, float]:
    """Limits of `bounded_interval` from mean and standard deviation."""
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * deviation / math.sqrt(n)
    below = math.inf if low is None else mean - low
    above = math.inf if high is None else high - mean
    if min(below, above) <= 0 and math.isfinite(below + above):
        edge = proportion_interval(0, n, confidence).high * (high - low)
        return (low, low + edge) if below <= 0 else (high - edge, high)
    if half == 0 or min(below, above) <= 0:
        return mean, mean
    if math.isinf(below) and math.isinf(above):
        return mean - half, mean + half
    if math.isinf(above):
        step = half / below
        return low + below * math.exp(-step), low + below * math.exp(step)
    if math.isinf(below):
        step = half / above
        return high - above * math.exp(step), high - above * math.exp(-step)
    # The logit's slope at the mean is width / (below * above).
    width = high - low
    centre, step = math.log(below / above), half * width / (below * above)
    return low + width * float(expit(centre - step)), low + width * float(expit(centre + step))


def _range(low: float | None, high: float | None) -> str:
    first = "(-inf" if low is None else f"[{low:g}"
    return f"{first}, inf)" if high is None else f"{first}, {high:g}]"


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """`statistic` of `values` (1-D, n >= 1) with the BCa bootstrap interval (Efron 1987).

    `statistic(sample, axis=...)` reduces an array along an axis, as numpy's functions do. If all
    values are equal, the interval has no width. If the corrections of BCa are not defined (a median
    among many equal values), it is the percentile interval.
    """
    x = _checked(values)
    _check_confidence(confidence)
    point = float(statistic(x, axis=-1))
    if x.size <= 2:
        return Estimate(point, None, None, x.size, tuple(x.tolist()) if x.size == 2 else ())
    if np.all(x == x[0]):
        return Estimate(point, point, point, x.size)

    def interval(method: str) -> Any:
        return stats.bootstrap(
            (x,),
            statistic,
            n_resamples=resamples,
            confidence_level=confidence,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # BCa of a degenerate sample
        limits = interval("BCa")
    if not np.isfinite([limits.low, limits.high]).all():
        limits = interval("percentile")
    return Estimate(point, float(limits.low), float(limits.high), x.size)


def proportion_interval(successes: int, n: int, confidence: float = 0.95) -> Estimate:
    """Share `successes / n` with Wilson's score interval (Wilson 1927), n >= 1."""
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"need 0 <= successes <= n and n >= 1, got {successes} of {n}")
    _check_confidence(confidence)
    interval = stats.binomtest(int(successes), int(n)).proportion_ci(confidence, method="wilson")
    return Estimate(successes / n, float(interval.low), float(interval.high), int(n))


def sign_flip_test(
    differences: ArrayLike, alternative: Alternative = "two-sided", *, seed: int = 0
) -> float:
    """p-value of Fisher's paired randomisation test: are `differences` (1-D) centred on zero?

    `greater` asks whether they are positive. Under the null every sign is a coin flip: up to
    n = 20 all 2**n flips are counted (exact; the smallest possible p is 2**-n one-sided), above
    that 100,000 seeded ones, with the observed one included so that p is never zero (Phipson and
    Smyth 2010).
    """
    d = _checked(differences)
    if alternative not in ("two-sided", "greater", "less"):
        raise ValueError(f"alternative must be two-sided, greater or less, got {alternative!r}")
    exact = d.size <= EXACT_LIMIT
    scale = float(np.abs(d).sum()) or 1.0
    if d.size == 1:
        d = np.append(d, 0.0)  # scipy needs two values; a zero changes no sum
    result = stats.permutation_test(
        (d,),
        # Rounded, because equal sums from another order of additions differ in their last bits.
        lambda x, axis: np.round(x.sum(axis=axis) / scale, 12),
        permutation_type="samples",
        alternative=alternative,
        vectorized=True,
        n_resamples=np.inf if exact else MONTE_CARLO_FLIPS,
        batch=BATCH,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `a - b`, unit by unit (1-D, equal lengths), with Student's t interval."""
    first, second = _checked(a), _checked(b)
    if first.size != second.size:
        raise ValueError(f"paired values must match: {first.size} against {second.size}")
    return mean_interval(first - second, confidence)


def _checked(values: ArrayLike | Sequence[float]) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"need a 1-D array of at least one value, got shape {x.shape}")
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise ValueError(f"value {bad[0]} of {x.size} is {x[bad[0]]}: not a finite number")
    return x


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence}")
