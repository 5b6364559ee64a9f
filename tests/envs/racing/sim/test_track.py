"""Geometry that holds for every track, in both directions."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.racing.sim.track import (
    GRID_CELL,
    GRID_HALF,
    HALF_WIDTH,
    KERB_WIDTH,
    PLAYFIELD,
    TrackError,
    build_track,
    carracing_points,
)

SEEDS = range(50)
CAR_REACH = math.hypot(60, 130) * 0.02 + 0.02
"""From the hull's origin to its farthest corner, and the gap at which Box2D sees a touch."""


@cache
def made(seed: int, direction: str):
    return build_track(carracing_points(seed), direction=direction, seed=seed)


@pytest.fixture(
    params=[(s, d) for s in SEEDS for d in ("ccw", "cw")], ids=lambda p: f"{p[0]}{p[1]}"
)
def track(request):
    return made(*request.param)


def test_the_number_of_tiles_is_carracings():
    assert [len(carracing_points(seed)) for seed in range(8)] == [
        *(319, 275, 335, 271, 275, 329, 284, 319)
    ]


def test_known_points_and_kerbs():
    track = made(0, "ccw")
    assert np.allclose(track.points[0, 1:], (220.38537775, -52.16356239))
    assert [len(made(seed, "ccw").kerbs) for seed in range(4)] == [75, 55, 85, 47]


def test_tiles_are_convex_and_join(track):
    edge = np.roll(track.tiles, -1, 1) - track.tiles
    following = np.roll(edge, -1, 1)
    cross = edge[..., 0] * following[..., 1] - edge[..., 1] * following[..., 0]
    assert ((cross > -1e-9).all(1) | (cross < 1e-9).all(1)).all()
    # Tile i ends at point i and begins at point i-1, in driving order.
    end = track.points[:, 1:]
    for side in (0, 1):
        ends = {tuple(np.round(corner, 6)) for tile in track.tiles for corner in tile}
        across = np.column_stack([np.cos(track.points[:, 0]), np.sin(track.points[:, 0])])
        edge_points = end + (2 * side - 1) * track.half_width * across
        assert {tuple(p) for p in np.round(edge_points, 6)} <= ends
    middle = track.tiles.mean(1)
    assert np.allclose(middle, (end + np.roll(end, 1, 0)) / 2, atol=1e-9)


def test_tile_positions_rise_once_around(track):
    gap = (np.roll(track.tile_s, -1) - track.tile_s) % track.length
    assert (gap > 1).all() and (gap < 6).all()
    assert gap.sum() == pytest.approx(track.length)
    # Tile 1 lies ahead of the start, tile 0 behind it.
    assert track.tile_s[1] < 4
    assert track.length - track.tile_s[0] < 4


def test_the_centreline_is_closed_smooth_and_turns_once(track):
    x, y, tx, ty, curvature, heading = track.centreline.T
    step = track.length / len(track.centreline)
    assert np.allclose(np.hypot(tx, ty), 1, atol=1e-12)
    assert np.allclose(np.column_stack([np.cos(heading), np.sin(heading)]), np.c_[tx, ty])
    chords = np.hypot(np.roll(x, -1) - x, np.roll(y, -1) - y)
    assert np.allclose(chords, step, rtol=2e-3)
    closing_angle = math.remainder(heading[0] - heading[-1], 2 * math.pi)
    around = heading[-1] - heading[0] + closing_angle
    sign = 1 if track.direction == "ccw" else -1
    assert around == pytest.approx(sign * 2 * math.pi, abs=1e-9)
    jumps = np.abs(np.roll(curvature, -1) - curvature)
    assert jumps.max() < 0.03, "curvature jumps"
    # Curvature is the heading's rate, by differences over two steps.
    rate = (np.roll(np.unwrap(heading), -1) - np.roll(heading, 1))[1:-1] / (2 * step)
    assert np.abs(rate - curvature[1:-1]).max() < 0.01


def test_the_centreline_stays_in_the_middle_of_the_road(track):
    distance = np.hypot(
        track.points[:, None, 1] - track.centreline[None, :, 0],
        track.points[:, None, 2] - track.centreline[None, :, 1],
    ).min(1)
    assert distance.max() < 0.15 * track.half_width


@pytest.mark.parametrize("seed", SEEDS)
def test_the_other_direction_has_the_same_scenery(seed):
    one, other = made(seed, "ccw"), made(seed, "cw")
    n = len(one)
    assert other.length == pytest.approx(one.length)

    def scenery(track):
        return {
            tuple(np.round(tile, 9).ravel()): (shade, order)
            for tile, shade, order in zip(track.tiles, track.shade, track.paint_order, strict=True)
        }

    assert scenery(one) == scenery(other)
    assert np.array_equal(one.kerbs, other.kerbs)
    assert np.array_equal(one.kerb_white, other.kerb_white)
    assert np.array_equal(one.tiles[one.kerb_tile], other.tiles[other.kerb_tile])
    # Same start line, facing the other way, first tile ahead the one behind.
    assert np.array_equal(one.points[0, 1:], other.points[0, 1:])
    assert other.points[0, 0] - one.points[0, 0] == pytest.approx(math.pi)
    assert np.array_equal(other.tiles[1], one.tiles[0])
    assert np.array_equal(other.tiles[0], one.tiles[1])
    assert np.array_equal(other.points[1, 1:], one.points[n - 1, 1:])


def test_a_car_at_a_point_faces_the_next(track):
    ahead = np.roll(track.points, -1, 0)[:, 1:] - track.points[:, 1:]
    facing = np.column_stack([-np.sin(track.points[:, 0]), np.cos(track.points[:, 0])])
    cosine = (ahead * facing).sum(1) / np.linalg.norm(ahead, axis=1)
    # Except at the seam, where CarRacing's loop need not meet exactly.
    assert (cosine[1:-1] > 0.97).all()
    assert (cosine > 0.8).all()


def test_kerbs_are_stones_along_the_edge_of_their_tile(track):
    assert len(track.kerbs) == len(track.kerb_white) == len(track.kerb_tile)
    inner = track.kerbs[:, [0, 3]]
    corners = track.tiles[track.kerb_tile]
    apart = np.linalg.norm(inner[:, :, None] - corners[:, None], axis=-1)
    assert (apart.min(2) < 1e-9).all(), "a stone begins at a corner of its tile"
    width = np.linalg.norm(track.kerbs[:, [1, 2]] - inner, axis=-1)
    assert np.allclose(width, KERB_WIDTH)
    # Outside of the tile: no outer corner is nearer to its middle than the inner ones.
    middle = corners.mean(1)[:, None]
    outer = track.kerbs[:, [1, 2]]
    assert (np.linalg.norm(outer - middle, axis=-1) > np.linalg.norm(inner - middle, axis=-1)).all()
    # Stones lie inside bends, where the centreline curves towards them.
    side = np.sign(_lateral(track, track.kerbs.mean(1)))
    position = (track.tile_s[track.kerb_tile] / track.length * len(track.centreline)).astype(int)
    bend = np.array(
        [
            track.centreline[(index + np.arange(-6, 7)) % len(track.centreline), 4].mean()
            for index in position
        ]
    )
    assert (side == np.sign(bend)).mean() > 0.95


def _lateral(track, points):
    """Signed distance of points from the centreline, positive to the left."""
    xy = track.centreline[:, :2]
    nearest = ((points[:, None] - xy) ** 2).sum(-1).argmin(1)
    offset, tangent = points - xy[nearest], track.centreline[nearest, 2:4]
    return tangent[:, 0] * offset[:, 1] - tangent[:, 1] * offset[:, 0]


def distance_to_quads(x, y, quads):
    """Distance from a point to convex quads, 0 inside."""
    p = np.array([x, y])
    a, b = quads, np.roll(quads, -1, 1)
    edge = b - a
    along = ((p - a) * edge).sum(-1) / np.maximum((edge**2).sum(-1), 1e-12)
    nearest = a + np.clip(along, 0, 1)[..., None] * edge
    distance = np.linalg.norm(p - nearest, axis=-1).min(1)
    cross = edge[..., 0] * (p - a)[..., 1] - edge[..., 1] * (p - a)[..., 0]
    inside = (cross >= 0).all(1) | (cross <= 0).all(1)
    return np.where(inside, 0.0, distance)


@given(
    st.integers(0, 9),
    st.sampled_from(["ccw", "cw"]),
    st.integers(0, 10_000),
    st.floats(-12, 12),
    st.floats(-12, 12),
)
def test_the_grid_knows_every_tile_that_a_car_can_reach(seed, direction, place, dx, dy):
    track = made(seed, direction)
    x, y = track.points[place % len(track), 1:] + (dx, dy)
    cell = math.floor(y / GRID_CELL + GRID_HALF) * 2 * GRID_HALF
    cell += math.floor(x / GRID_CELL + GRID_HALF)
    listed = track.grid_tiles[track.grid_start[cell] : track.grid_start[cell + 1]]
    reached = np.flatnonzero(distance_to_quads(x, y, track.tiles) <= CAR_REACH)
    assert set(reached) <= set(listed.tolist())
    assert (np.diff(listed) > 0).all(), "tiles of a cell are in ascending order"


def test_the_grid_covers_the_playfield():
    assert GRID_HALF * GRID_CELL > PLAYFIELD


@pytest.mark.parametrize("direction", ["ccw", "cw"])
@pytest.mark.parametrize("half_width", [4.0, HALF_WIDTH, 9.0])
def test_the_width_is_an_option(direction, half_width):
    track = build_track(carracing_points(3), half_width=half_width, direction=direction)
    left, right = track.tiles[:, 0], track.tiles[:, 1]
    assert np.allclose(np.linalg.norm(left - right, axis=1), 2 * half_width)
    assert track.length == pytest.approx(made(3, direction).length)


def test_bad_loops_are_refused():
    points = carracing_points(0)
    with pytest.raises(TrackError, match="8 to 1024 points, not 5"):
        build_track(points[:5])
    with pytest.raises(TrackError, match="beyond the playfield"):
        build_track(points * (1, 2, 2))
    with pytest.raises(TrackError, match="sideways"):
        build_track(points, direction="sideways")
