"""The sampler: pure, uniform over steps, whole batches however they are divided."""

import numpy as np
import pytest
from scipy import stats

from common.errors import UserError
from replay import DataSet, WindowSampler
from replay.sampler import corner_strata
from replay.schema import EPISODE_DTYPE
from tests.replay.counters import check_rows, write

T = 8


def episodes(lengths: list[int]) -> np.ndarray:
    table = np.zeros(len(lengths), EPISODE_DTYPE)
    table["length"] = lengths
    table["start"] = np.cumsum([0, *lengths[:-1]])
    return table


def drawn(sampler: WindowSampler, updates: int) -> np.ndarray:
    return np.concatenate([sampler.indices(update) for update in range(updates)])


def test_a_batch_depends_on_seed_and_update_only():
    data = episodes([300, 200])
    sampler = WindowSampler(data, T, 16, seed=3)
    alone = WindowSampler(data, T, 16, seed=3).indices(7)
    backwards = [sampler.indices(update) for update in (9, 8, 7)]
    np.testing.assert_array_equal(backwards[-1], alone)
    assert not np.array_equal(alone, sampler.indices(8))
    assert not np.array_equal(alone, WindowSampler(data, T, 16, seed=4).indices(7))
    np.random.seed(0)
    np.testing.assert_array_equal(alone, sampler.indices(7))


def test_batches_stay_what_they_were():
    """Resuming a run with another version of this code or of numpy must not change its data."""
    sampler = WindowSampler(episodes([300, 200]), T, 8, seed=3)
    assert sampler.indices(7).tolist() == [88, 320, 63, 227, 183, 249, 65, 206]
    strata = np.repeat([0, 1, 2, 1], 125)
    sampler = WindowSampler(episodes([300, 200]), T, 8, seed=3, strata=strata)
    assert sampler.indices(7).tolist() == [322, 147, 124, 248, 117, 134, 2, 29]


@pytest.mark.parametrize("world", [1, 2, 4])
def test_ranks_divide_the_batch_of_one_process(world):
    sampler = WindowSampler(episodes([300, 200]), T, 16, seed=0)
    for update in (0, 5):
        parts = [sampler.for_rank(rank, world).indices(update) for rank in range(world)]
        assert {part.shape for part in parts} == {(16 // world,)}
        np.testing.assert_array_equal(np.concatenate(parts), sampler.indices(update))


@pytest.mark.parametrize(("rank", "world"), [(0, 3), (2, 2), (-1, 2)])
def test_a_batch_that_cannot_be_divided_is_refused(rank, world):
    with pytest.raises(UserError, match="a batch of 16 cannot be split"):
        WindowSampler(episodes([100]), T, 16, seed=0).for_rank(rank, world)


@pytest.mark.parametrize("lengths", [[60], [1, T - 1, T, T + 1, 1, 2 * T, 18], [1] * 60])
def test_first_rows_are_uniform_whatever_the_episodes(lengths):
    sampler = WindowSampler(episodes(lengths), T, 64, seed=1)
    counts = np.bincount(drawn(sampler, 200))
    assert len(counts) == 60 - T + 1
    assert stats.chisquare(counts).pvalue > 0.01


def test_every_row_is_covered_equally_often_but_for_the_ends_of_the_data():
    sampler = WindowSampler(episodes([5] * 20), T, 64, seed=2)
    rows = drawn(sampler, 300)[:, None] + np.arange(T)
    counts = np.bincount(rows.ravel(), minlength=100)
    inner = counts[T - 1 : 100 - T + 1]
    expected = 300 * 64 * T / (100 - T + 1)
    np.testing.assert_allclose(inner, expected, rtol=0.1)
    # The last steps of episodes, where rewards and ends are, among them.
    np.testing.assert_allclose(inner.reshape(-1)[2::5].mean(), expected, rtol=0.03)


def test_windows_of_drawn_rows_are_aligned(tmp_path):
    lengths = [1, T - 1, T, T + 1, 1, 2 * T + 3, 1]
    write(tmp_path, lengths, max_rows=10)
    data = DataSet(tmp_path, "D", "train")
    assert len(data.shards) > 2
    sampler = WindowSampler(data.episodes, T, 16, seed=0)
    for update in range(10):
        batch = data.windows(sampler.indices(update), T)
        check_rows(batch, dict(enumerate(lengths)))


def test_one_window_only():
    sampler = WindowSampler(episodes([3, T - 3]), T, 4, seed=0)
    assert sampler.indices(0).tolist() == [0] * 4


def test_strata_are_drawn_equally_often_and_the_natural_shares_reported():
    rng = np.random.default_rng(0)
    corner_angle = np.where(np.arange(4000) % 100 < 90, 0.05, rng.choice([-0.5, 0.9], 4000))
    strata = corner_strata(corner_angle, [0.2, 0.7])
    assert np.bincount(strata).tolist()[0] == 3600
    sampler = WindowSampler(episodes([1000] * 4), T, 64, seed=0, strata=strata)
    starts = drawn(sampler, 100)
    highest = np.array([strata[start : start + T].max() for start in starts])
    counts = np.bincount(highest, minlength=3)
    assert stats.chisquare(counts).pvalue > 0.01
    everywhere = np.array([strata[start : start + T].max() for start in range(4000 - T + 1)])
    natural = np.bincount(everywhere) / len(everywhere)
    np.testing.assert_allclose(sampler.shares["natural"], natural)
    np.testing.assert_allclose(sampler.shares["sampled"], 1 / 3)
    assert natural[0] > 0.8
    # Within a stratum every first row is equally likely.
    first = np.bincount(starts[highest == 1], minlength=4000)[np.flatnonzero(everywhere == 1)]
    assert stats.chisquare(first).pvalue > 0.01


def test_strata_that_do_not_occur_are_left_out():
    strata = corner_strata(np.full(100, -2.0), [0.2, 0.7])
    sampler = WindowSampler(episodes([100]), T, 32, seed=0, strata=strata)
    assert sampler.shares["sampled"].tolist() == [0, 0, 1]
    assert sampler.indices(0).max() <= 100 - T


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="8 rows, but the whole data set has only 7"):
        WindowSampler(episodes([4, 3]), T, 4, seed=0)
    with pytest.raises(UserError, match="at least 1, not 8 and 0"):
        WindowSampler(episodes([40]), T, 0, seed=0)
    for strata in (np.zeros(39, np.int64), np.zeros(40), np.full(40, -1)):
        with pytest.raises(UserError, match=r"strata are \(40,\) whole numbers"):
            WindowSampler(episodes([40]), T, 4, seed=0, strata=strata)
    with pytest.raises(UserError, match="edges of strata grow"):
        corner_strata(np.zeros(3), [0.7, 0.2])
