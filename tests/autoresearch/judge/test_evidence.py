"""Evidence by hand, and the error rates that it promises."""

import itertools

import numpy as np
import pytest

from autoresearch.judge.evidence import BETS, e_process, scaled


def test_the_mixture_by_hand():
    by_hand = np.mean([(1 + b) * (1 - b / 2) for b in BETS])
    np.testing.assert_allclose(e_process([1.0, -0.5])[-1], by_hand)
    np.testing.assert_allclose(e_process([0.0, 0.0]), 1.0)
    assert e_process([]).shape == (0,)


def test_a_fair_coin_earns_nothing_on_average_and_rarely_looks_like_proof():
    paths = np.array([e_process(flips) for flips in itertools.product((-1.0, 1.0), repeat=12)])
    np.testing.assert_allclose(paths[:, -1].mean(), 1.0)  # over all outcomes there are
    for limit in (5, 20, 60):
        assert (paths.max(1) >= limit).mean() <= 1 / limit


def test_a_real_gain_is_proved():
    rng = np.random.default_rng(0)
    gains = rng.normal(0.11, 0.3, (50, 200)).clip(-1, 1)
    assert np.mean([e_process(row)[-1] >= 60 for row in gains]) > 0.7


def test_long_sequences_stay_finite():
    assert np.isfinite(e_process(np.ones(900))).all()
    assert e_process(-np.ones(5000))[-1] < 1e-9


@pytest.mark.parametrize("bad", [[1.1], [np.nan], [[0.0]]])
def test_what_cannot_be_bet_on_is_refused(bad):
    with pytest.raises(ValueError, match=r"bets|1-D"):
        e_process(bad)


def test_a_wrong_range_is_told_where_it_would_invent_evidence():
    np.testing.assert_allclose(scaled([-1.0, 0.5, 3.0], 2.0), [-0.5, 0.25, 1.0])
    with pytest.raises(ValueError, match="beyond the stated range of 2"):
        scaled([-2.5], 2.0)
