"""Against values worked out by hand and against independent routes through scipy."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from common import statistics
from common.statistics import Estimate

# Per-track scores with a long lower tail, as driving has.
SCORES = np.array([0.91, 0.95, 0.97, 0.42, 0.99, 0.88, 0.93, 0.96, 0.15, 0.94])


def test_mean_interval_by_hand():
    # 1..5: mean 3, s = sqrt(2.5), t(0.975, 4) = 2.776445 -> half width 1.963243
    estimate = statistics.mean_interval([1, 2, 3, 4, 5])
    assert estimate.mean == 3 and estimate.n == 5
    assert estimate.low == pytest.approx(3 - 1.963243, abs=1e-6)
    assert estimate.high == pytest.approx(3 + 1.963243, abs=1e-6)


def test_mean_interval_is_the_inversion_of_the_t_test():
    estimate = statistics.mean_interval(SCORES, confidence=0.9)
    for edge in (estimate.low, estimate.high):
        assert stats.ttest_1samp(SCORES, edge).pvalue == pytest.approx(0.1, abs=1e-9)


def test_one_value_has_no_interval():
    assert statistics.mean_interval([2.5]) == Estimate(2.5, None, None, 1)
    assert statistics.bootstrap_interval([2.5]) == Estimate(2.5, None, None, 1)
    assert str(Estimate(2.5, None, None, 1)) == "2.5 (n=1)"


def test_two_values_are_shown_and_have_no_interval():
    for function in (statistics.bounded_interval, statistics.bootstrap_interval):
        estimate = function([0.5, 1.0])
        assert estimate == Estimate(0.75, None, None, 2, (0.5, 1.0))
        assert estimate.to_dict()["values"] == [0.5, 1.0]
        assert str(estimate) == "0.5 and 1 (n=2)"


def test_without_a_range_an_interval_is_students():
    bounded = statistics.bounded_interval(SCORES)
    assert bounded == statistics.mean_interval(SCORES)


def test_between_minus_one_and_one_an_interval_is_fishers_z():
    values = np.array([0.7, 0.9, 0.95, 0.99])
    estimate = statistics.bounded_interval(values, -1, 1)
    mean = values.mean()
    half = (
        stats.t.ppf(0.975, 3) * values.std(ddof=1) / 2 / (1 - mean**2)
    )  # d artanh = dr / (1 - r^2)
    z = np.arctanh(mean)
    assert (estimate.low, estimate.high) == pytest.approx((np.tanh(z - half), np.tanh(z + half)))


@given(
    st.lists(st.floats(0, 1, allow_subnormal=False), min_size=3, max_size=30),
    st.sampled_from([(0.0, 1.0), (None, 1.0), (0.0, None), (-1.0, 1.0), (-1.0, None)]),
)
def test_intervals_stay_in_their_range_around_the_mean(values, ends):
    low, high = ends
    estimate = statistics.bounded_interval(values, low, high)
    assert estimate.low <= estimate.mean + 1e-12 and estimate.mean - 1e-12 <= estimate.high
    assert low is None or estimate.low >= low
    assert high is None or estimate.high <= high


def test_a_bounded_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = {ends: 0 for ends in ((0, 1), (-1, 1), (None, 1))}
    for _ in range(1000):
        sample = rng.beta(8, 2, size=10)
        for ends in covered:
            estimate = statistics.bounded_interval(sample, *ends)
            covered[ends] += estimate.low <= 0.8 <= estimate.high
    for count in covered.values():
        assert 930 <= count <= 975


def test_values_at_one_end_are_not_certainty():
    # Wilson by hand for 0 of 10, as above.
    zeros = statistics.bounded_interval([0.0] * 10, 0, 1)
    assert (zeros.mean, zeros.low) == (0, 0) and zeros.high == pytest.approx(0.277533, abs=1e-6)
    ones = statistics.bounded_interval([1.0] * 10, -1, 1)
    assert ones.high == 1 and ones.low == pytest.approx(1 - 2 * 0.277533, abs=1e-6)
    assert statistics.bounded_interval([0.3] * 4, 0, 1) == Estimate(0.3, 0.3, 0.3, 4)


def test_values_outside_of_the_range_are_refused():
    with pytest.raises(ValueError, match=r"1.2 is outside of the range \[0, 1\]"):
        statistics.bounded_interval([0.5, 1.2], 0, 1)
    with pytest.raises(ValueError, match=r"-1 is outside of the range \[0, inf\)"):
        statistics.bounded_interval([-1.0, 1.2], 0)
    with pytest.raises(ValueError, match="has no width"):
        statistics.bounded_interval([0.5, 1.2], 1, 1)


def test_estimate_is_what_records_hold():
    estimate = statistics.mean_interval([1.0, 3.0, 4.0])
    record = estimate.to_dict()
    assert list(record) == ["mean", "low", "high", "n"]
    assert all(type(value) in (int, float) for value in record.values())
    assert str(Estimate(0.91234, 0.8, 1.0, 20)) == "0.9123 [0.8, 1] (n=20)"


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),  # Wilson by hand: centre 0.716740, half width 0.226578
        (0, 10, 0.0, 0.277533),  # z^2 / (n + z^2)
        (10, 10, 0.722467, 1.0),
    ],
)
def test_wilson_interval(successes, n, low, high):
    estimate = statistics.proportion_interval(successes, n)
    assert estimate.mean == successes / n and estimate.n == n
    assert estimate.low == pytest.approx(low, abs=1e-6)
    assert estimate.high == pytest.approx(high, abs=1e-6)


@pytest.mark.parametrize(("successes", "n"), [(-1, 5), (6, 5), (0, 0)])
def test_impossible_proportions_are_refused(successes, n):
    with pytest.raises(ValueError, match="successes"):
        statistics.proportion_interval(successes, n)


def test_bootstrap_leans_towards_the_long_tail_and_repeats():
    estimate = statistics.bootstrap_interval(SCORES)
    assert estimate.mean == pytest.approx(SCORES.mean())
    assert estimate.mean - estimate.low > 1.3 * (estimate.high - estimate.mean)
    assert estimate.high < statistics.mean_interval(SCORES).high
    assert statistics.bootstrap_interval(SCORES) == estimate
    assert statistics.bootstrap_interval(SCORES, seed=1) != estimate


def test_bootstrap_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        sample = rng.exponential(size=40)
        estimate = statistics.bootstrap_interval(sample, resamples=400, seed=trial)
        covered += estimate.low <= 1.0 <= estimate.high
    # 0.95 nominal; skewed samples of 40 cover a little less
    assert 0.88 <= covered / 200 <= 0.99


def test_bootstrap_of_another_statistic():
    estimate = statistics.bootstrap_interval(SCORES, np.median)
    assert estimate.mean == np.median(SCORES)
    assert estimate.low < estimate.mean <= estimate.high


def test_bootstrap_of_equal_values_has_no_width():
    assert statistics.bootstrap_interval([1.0] * 5) == Estimate(1.0, 1.0, 1.0, 5)


def test_sign_flip_by_hand():
    # All five positive: 1 of 32 sign patterns is as large, 2 as extreme.
    assert statistics.sign_flip_test([1, 2, 3, 4, 5], "greater") == 1 / 32
    assert statistics.sign_flip_test([1, 2, 3, 4, 5]) == 2 / 32
    assert statistics.sign_flip_test([1, 2, 3, 4, 5], "less") == 1.0
    # {-1, 2}: sums 1, 3, -3, -1; at least 1: two of four.
    assert statistics.sign_flip_test([-1, 2], "greater") == 2 / 4
    assert statistics.sign_flip_test([0.0, 0.0]) == 1.0
    assert statistics.sign_flip_test([2.0], "greater") == 1 / 2
    assert statistics.sign_flip_test([2.0]) == 1.0


def test_ties_count_although_sums_round_differently():
    # 0.1 + 0.2 - 0.3 is not -0.1 - 0.2 + 0.3 to the last bit; both are zero.
    assert statistics.sign_flip_test([0.1, 0.2, -0.3], "greater") == 5 / 8


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=8))
def test_exact_sign_flip_counts_every_flip(differences):
    d = np.array(differences, float)
    flips = np.array(list(product((1, -1), repeat=d.size))) @ d
    sides = {"greater": flips >= d.sum(), "less": flips <= d.sum(),
             "two-sided": np.abs(flips) >= abs(d.sum())}  # fmt: skip
    for alternative, extreme in sides.items():
        assert statistics.sign_flip_test(d, alternative) == extreme.mean()


def test_monte_carlo_agrees_with_the_exact_distribution():
    rng = np.random.default_rng(3)
    d = rng.integers(-4, 8, size=30)
    # Exact by dynamic programming over integer sums.
    counts = {0: 1}
    for value in map(int, d):
        flipped: dict[int, int] = {}
        for total, ways in counts.items():
            for signed in (total + value, total - value):
                flipped[signed] = flipped.get(signed, 0) + ways
        counts = flipped
    exact = sum(ways for total, ways in counts.items() if total >= d.sum()) / 2**30
    estimated = statistics.sign_flip_test(d, "greater")
    spread = math.sqrt(exact * (1 - exact) / statistics.MONTE_CARLO_FLIPS)
    assert abs(estimated - exact) < 5 * spread
    assert statistics.sign_flip_test(d, "greater") == estimated
    assert statistics.sign_flip_test(np.ones(40), "greater") == 1 / 100_001  # never zero


def test_paired_difference():
    a, b = SCORES, SCORES - np.linspace(0.0, 0.1, 10)
    assert statistics.paired_difference(a, b) == statistics.mean_interval(a - b)
    # Pairing removes the spread between tracks.
    estimate = statistics.paired_difference(a, b)
    assert estimate.high - estimate.low < 0.06
    with pytest.raises(ValueError, match="10 against 9"):
        statistics.paired_difference(a, b[:-1])


@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf, 1.0], [], [[1.0], [2.0]], 3.0])
@pytest.mark.parametrize(
    "function",
    [
        statistics.mean_interval,
        statistics.bounded_interval,
        statistics.bootstrap_interval,
        statistics.sign_flip_test,
    ],
)
def test_unusable_values_are_refused(function, bad):
    with pytest.raises(ValueError, match=r"not a finite number|at least one value"):
        function(bad)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="larger"):
        statistics.sign_flip_test([1.0], "larger")
    with pytest.raises(ValueError, match="95"):
        statistics.mean_interval([1.0, 2.0], confidence=95)
