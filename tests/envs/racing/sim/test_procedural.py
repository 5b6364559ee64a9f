"""The graded family of procedural tracks keeps its promises for every seed and difficulty."""

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.racing.sim.procedural import EXTENT, GAP, MAX_LENGTH, MIN_LENGTH, procedural_points
from envs.racing.sim.track import DETAIL_STEP, KERB_WIDTH, build_track

DIFFICULTIES = (0.0, 0.3, 0.5, 0.8, 1.0)


def turns(points):
    beta = points[:, 0]
    change = np.roll(beta, -1) - beta
    return np.arctan2(np.sin(change), np.cos(change))


@given(st.integers(0, 2**31 - 1), st.floats(0, 1))
def test_every_track_can_be_driven(seed, difficulty):
    points, half_width = procedural_points(seed, difficulty)
    assert points.dtype == np.float64 and points.shape[1] == 3
    assert half_width == pytest.approx(8 - 3 * difficulty)
    ahead = np.roll(points, -1, 0)[:, 1:] - points[:, 1:]
    steps = np.linalg.norm(ahead, axis=1)
    # Chords are a little shorter than arcs in tight bends.
    assert (steps > 0.97 * DETAIL_STEP).all() and (steps < 1.03 * DETAIL_STEP).all()
    facing = np.column_stack([-np.sin(points[:, 0]), np.cos(points[:, 0])])
    assert ((ahead * facing).sum(1) / steps > 0.95).all(), "beta is not the heading"
    assert turns(points).sum() == pytest.approx(2 * math.pi), "counter-clockwise, once"
    assert np.abs(np.diff(points[:, 0])).max() < 1, "beta jumps"

    for direction in ("ccw", "cw"):
        track = build_track(points, half_width=half_width, direction=direction)
        assert MIN_LENGTH * 0.97 < track.length < MAX_LENGTH
        edge = np.roll(track.tiles, -1, 1) - track.tiles
        following = np.roll(edge, -1, 1)
        cross = edge[..., 0] * following[..., 1] - edge[..., 1] * following[..., 0]
        assert (cross > 0).all() or (cross < 0).all(), "a tile folds over itself"
        assert np.abs(track.tiles).max() < EXTENT
        if len(track.kerbs):
            assert np.abs(track.kerbs).max() < EXTENT
        assert 1 / np.abs(track.centreline[:, 4]).max() > 1.15 * half_width
        start = np.arange(-50, 50) % len(track.centreline)
        assert np.abs(track.centreline[start, 4]).max() < 1 / 35, "the start is in a bend"


@given(st.integers(0, 2**31 - 1), st.floats(0, 1))
def test_parts_that_do_not_follow_each_other_stay_apart(seed, difficulty):
    points, half_width = procedural_points(seed, difficulty)
    xy = points[:, 1:]
    distance = np.linalg.norm(xy[:, None] - xy, axis=-1)
    apart = np.abs(np.arange(len(xy))[:, None] - np.arange(len(xy)))
    apart = np.minimum(apart, len(xy) - apart) * DETAIL_STEP
    clear = 2 * (half_width + KERB_WIDTH) + GAP
    # Along a half circle whose ends are that far apart, the road may be no nearer.
    assert distance[apart > math.pi / 2 * clear + DETAIL_STEP].min() > clear - 0.1


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_a_seed_is_a_track(difficulty):
    one, width = procedural_points(7, difficulty)
    again, same_width = procedural_points(7, difficulty)
    assert np.array_equal(one, again) and width == same_width
    other, _ = procedural_points(8, difficulty)
    assert one.shape != other.shape or not np.allclose(one, other)


def test_known_tracks():
    made = [procedural_points(seed, difficulty) for difficulty in (0, 0.5, 1) for seed in (0, 1)]
    assert [len(points) for points, _ in made] == [229, 260, 382, 281, 360, 371]


def test_difficulty_is_graded():
    sharpest, turned, width = [], [], []
    for difficulty in DIFFICULTIES:
        bends, totals = [], []
        for seed in range(30):
            points, half_width = procedural_points(seed, difficulty)
            bend = np.abs(turns(points))
            bends.append(bend.max() / DETAIL_STEP)
            totals.append(bend.sum() / (2 * math.pi))
        sharpest.append(float(np.median(bends)))
        turned.append(float(np.mean(totals)))
        width.append(half_width)
    assert np.all(np.diff(sharpest) > 0), sharpest
    assert np.all(np.diff(turned) > 0), turned
    assert np.all(np.diff(width) < 0)
    assert 1 / sharpest[0] > 40 and 1 / sharpest[-1] < 12, "from sweeping bends to hairpins"
    assert turned[0] < 1.6 and turned[-1] > 2.2


def test_hard_tracks_have_hairpins_and_easy_ones_have_not():
    def share(difficulty):
        hairpins = 0
        for seed in range(30):
            points, _ = procedural_points(seed, difficulty)
            around = np.concatenate([turns(points)] * 2)
            # Turning by 150 degrees or more within 45 units.
            turning = np.abs(np.convolve(around, np.ones(round(45 / DETAIL_STEP)), "valid"))
            hairpins += turning.max() > math.radians(150)
        return hairpins / 30

    assert share(0.0) == 0
    assert share(1.0) > 0.6


def test_kerbs_mark_the_bends_of_hard_tracks():
    def share(difficulty):
        tracks = [
            build_track(points, half_width=width)
            for points, width in (procedural_points(seed, difficulty) for seed in range(20))
        ]
        return np.mean([len(track.kerbs) / len(track) for track in tracks])

    assert share(0.0) < 0.1
    assert 0.2 < share(1.0) < 0.5


def test_it_is_quick():
    times = []
    for seed in range(40):
        begin = time.process_time()
        procedural_points(seed, 1.0)
        times.append(time.process_time() - begin)
    assert np.median(times) < 0.02


@pytest.mark.parametrize("difficulty", [-0.1, 1.1, float("nan")])
def test_a_bad_difficulty_is_refused(difficulty):
    with pytest.raises(ValueError, match="difficulty is 0 to 1"):
        procedural_points(0, difficulty)
