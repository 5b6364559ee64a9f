"""Means that say how sure they are, and tests for paired comparisons. scipy underneath.

Values are one number per independent unit (a track, a training seed); pooling repeated
measurements of one unit makes every interval here too narrow. NaN and infinities are refused: a
missing measurement is the caller's to explain, not to average away.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Alternative = Literal["two-sided", "greater", "less"]

EXACT_LIMIT = 20
MONTE_CARLO_FLIPS = 100_000


@dataclass(frozen=True)
class Estimate:
    """A point estimate with a confidence interval; `low` and `high` are None for one value.

    `mean` holds the statistic that was asked for, which is the mean unless the caller said else.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    def to_dict(self) -> dict[str, float | int | None]:
        """`{"mean", "low", "high", "n"}`, the form of every record in this project."""
        return asdict(self)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.4g} (n={self.n})"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}] (n={self.n})"


def mean_interval(values: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `values` (1-D, n >= 1) with Student's t interval."""
    x = _checked(values)
    _check_confidence(confidence)
    mean = float(x.mean())
    if x.size == 1:
        return Estimate(mean, None, None, 1)
    half = float(stats.t.ppf((1 + confidence) / 2, x.size - 1) * x.std(ddof=1) / math.sqrt(x.size))
    return Estimate(mean, mean - half, mean + half, x.size)


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[..., Any] = np.mean,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """`statistic` of `values` (1-D, n >= 1) with the BCa bootstrap interval (Efron 1987).

    `statistic(sample, axis=...)` reduces an array along an axis, as numpy's functions do. Where
    resampling cannot move the statistic (all values equal), the interval has no width. Where BCa's
    corrections are not defined (a median among many equal values), it is the percentile interval.
    """
    x = _checked(values)
    _check_confidence(confidence)
    point = float(statistic(x, axis=-1))
    if x.size == 1:
        return Estimate(point, None, None, 1)
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
        found = interval("BCa")
    if not np.isfinite([found.low, found.high]).all():
        found = interval("percentile")
    return Estimate(point, float(found.low), float(found.high), x.size)


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
    observed = float(d.sum())
    exact = d.size <= EXACT_LIMIT
    sums = _all_flipped_sums(d) if exact else _random_flipped_sums(d, seed)
    # Equal sums reached in another order of additions differ in their last bits: still ties.
    slack = 1e-12 * float(np.abs(d).sum())
    if alternative == "two-sided":
        extreme = np.abs(sums) >= abs(observed) - slack
    elif alternative == "greater":
        extreme = sums >= observed - slack
    else:
        extreme = sums <= observed + slack
    count = int(extreme.sum())
    return count / sums.size if exact else (count + 1) / (sums.size + 1)


def paired_difference(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Estimate:
    """Mean of `a - b`, unit by unit (1-D, equal lengths), with Student's t interval."""
    first, second = _checked(a), _checked(b)
    if first.size != second.size:
        raise ValueError(f"paired values must match: {first.size} against {second.size}")
    return mean_interval(first - second, confidence)


def _all_flipped_sums(d: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.zeros(1)
    for value in d:
        sums = np.concatenate([sums + value, sums - value])
    return sums


def _random_flipped_sums(d: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    sums = np.zeros(MONTE_CARLO_FLIPS)
    for value in d:  # one value at a time keeps the memory at one row
        sums += np.where(rng.integers(0, 2, size=sums.size, dtype=np.uint8), value, -value)
    return sums


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
