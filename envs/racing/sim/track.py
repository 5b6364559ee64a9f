"""Track geometry: generators, tiles, kerbs, the smoothed centreline and the contact grid.

A `Track` is immutable data, always driven towards increasing tile index. `carracing_points` walks
the very loop that Gymnasium's CarRacing-v3 makes from a seed; `build_track` turns any closed loop
of points into tiles, kerbs and a centreline. Lengths are CarRacing world units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d

from envs.racing.sim.kernel import kernel

SCALE = 6.0
TRACK_RADIUS = 900 / SCALE
PLAYFIELD = 2000 / SCALE
DETAIL_STEP = 21 / SCALE
TURN_RATE = 0.31
HALF_WIDTH = 40 / SCALE
KERB_WIDTH = 8 / SCALE
KERB_MIN_COUNT = 4
GRASS_SIZE = PLAYFIELD / 20.0
CHECKPOINTS = 12
MAX_POINTS = 2500

LOOKAHEAD = 6 * DETAIL_STEP
"""Units of centreline over which `corner_angle` is measured: six CarRacing tiles."""

MAX_TILES = 1024
MAX_SAMPLES = 4096
SAMPLE_STEP = 1.0
"""Nominal spacing of centreline samples in units; the true one divides the length evenly."""

GRID_CELL = 8.0
GRID_HALF = 44
"""The contact grid has (2 * GRID_HALF)^2 cells of GRID_CELL units: it covers +-352 units, more
than the playfield."""
GRID_REACH = 3.0
"""Units by which a tile's bounding box is grown in the grid: more than a car's farthest corner."""

GENERATORS = ("carracing", "procedural")
DIRECTIONS = ("ccw", "cw")


class TrackError(ValueError):
    """A loop of points that cannot become a track."""


@dataclass(frozen=True)
class Track:
    """One closed track.

    Attributes:
        points: (N, 3) float64, heading beta (rad), x, y of the raw loop, in driving order. A car at
            point i faces (-sin beta, cos beta).
        tiles: (N, 4, 2) float64 corners of tile i, which joins points i and i-1.
        shade: (N,) uint8, 0..2, the grey shade of an unvisited tile.
        paint_order: (N,) int32, tile indices in the order in which they are painted.
        kerbs: (K, 4, 2) float64 corners of kerb stones; kerb_tile (K,) int32 the tile each belongs
            to; kerb_white (K,) bool (else red).
        half_width: half the road's width.
        length: arc length of the smoothed centreline.
        centreline: (M, 6) float64 columns x, y, tangent x, tangent y, curvature (1/unit, positive
            to the left), heading of the tangent (rad, unwrapped), evenly spaced from s=0, which is
            the foot of point 0.
        tile_s: (N,) float64, arc position of the middle of each tile.
        grid_start: (cells + 1,) int32 and grid_tiles: (...) int32, the contact grid in CSR form.
        seed, direction, generator: where the track came from.
    """

    points: np.ndarray
    tiles: np.ndarray
    shade: np.ndarray
    paint_order: np.ndarray
    kerbs: np.ndarray
    kerb_tile: np.ndarray
    kerb_white: np.ndarray
    half_width: float
    length: float
    centreline: np.ndarray
    tile_s: np.ndarray
    grid_start: np.ndarray
    grid_tiles: np.ndarray
    seed: int
    direction: str
    generator: str

    def __len__(self) -> int:
        return len(self.tiles)


@kernel
def _walk(checkpoints, out):
    """CarRacing-v3's walk from checkpoint to checkpoint; returns the number of points written."""
    x, y, beta = 1.5 * TRACK_RADIUS, 0.0, 0.0
    dest = 0
    laps = 0
    visited_other_side = False
    n = 0
    while True:
        alpha = math.atan2(y, x)
        if visited_other_side and alpha > 0:
            laps += 1
            visited_other_side = False
        if alpha < 0:
            visited_other_side = True
            alpha += 2 * math.pi
        while True:
            failed = True
            while True:
                target = checkpoints[dest % CHECKPOINTS]
                if alpha <= target[0]:
                    failed = False
                    break
                dest += 1
                if dest % CHECKPOINTS == 0:
                    break
            if not failed:
                break
            alpha -= 2 * math.pi
        r1x, r1y = math.cos(beta), math.sin(beta)
        proj = r1x * (target[1] - x) + r1y * (target[2] - y)
        while beta - alpha > 1.5 * math.pi:
            beta -= 2 * math.pi
        while beta - alpha < -1.5 * math.pi:
            beta += 2 * math.pi
        previous = beta
        proj *= SCALE
        if proj > 0.3:
            beta -= min(TURN_RATE, abs(0.001 * proj))
        if proj < -0.3:
            beta += min(TURN_RATE, abs(0.001 * proj))
        # The step uses the perpendicular of the heading before this turn.
        x += -r1y * DETAIL_STEP
        y += r1x * DETAIL_STEP
        out[n, 0] = alpha
        out[n, 1] = previous * 0.5 + beta * 0.5
        out[n, 2] = x
        out[n, 3] = y
        n += 1
        if laps > 4 or n == MAX_POINTS:
            return n


def _carracing_attempt(rng: np.random.Generator) -> np.ndarray | None:
    checkpoints = np.empty((CHECKPOINTS, 3))
    for c in range(CHECKPOINTS):
        # Both draws are made for every checkpoint, used or not, as the reference does.
        alpha = 2 * math.pi * c / CHECKPOINTS + rng.uniform(0, 2 * math.pi / CHECKPOINTS)
        radius = rng.uniform(TRACK_RADIUS / 3, TRACK_RADIUS)
        if c == 0:
            alpha, radius = 0.0, 1.5 * TRACK_RADIUS
        if c == CHECKPOINTS - 1:
            alpha, radius = 2 * math.pi * c / CHECKPOINTS, 1.5 * TRACK_RADIUS
        checkpoints[c] = alpha, radius * math.cos(alpha), radius * math.sin(alpha)
    start_alpha = 2 * math.pi * -0.5 / CHECKPOINTS

    walk = np.empty((MAX_POINTS, 4))
    walk = walk[: _walk(checkpoints, walk)]
    crossings = np.flatnonzero((walk[1:, 0] > start_alpha) & (walk[:-1, 0] <= start_alpha)) + 1
    if len(crossings) < 2:
        return None
    loop = walk[crossings[-2] : crossings[-1] - 1]
    # The reference multiplies component by component here; it is not a projection.
    jump = np.array([math.cos(loop[0, 1]), math.sin(loop[0, 1])]) * (loop[0, 2:] - loop[-1, 2:])
    if math.hypot(jump[0], jump[1]) > DETAIL_STEP:
        return None
    return loop[:, 1:].copy()


def carracing_points(seed: int) -> np.ndarray:
    """The loop of CarRacing-v3 after `reset(seed=seed)`.

    Returns:
        (N, 3) float64: beta (rad), x, y. Equal to the reference's `env.track[:, 1:]` up to the
        last bits of the platform's sine and cosine.
    """
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    while True:
        points = _carracing_attempt(rng)
        if points is not None:
            return points


@kernel
def _kerbs_along(beta):
    """(N,) bool, the tiles with a kerb: four bends in a row that are sharp and to the same side."""
    n = len(beta)
    kerb = np.zeros(n, np.bool_)
    for i in range(n):
        sharp, side = True, 0.0
        for back in range(KERB_MIN_COUNT):
            bend = beta[(i - back) % n] - beta[(i - back - 1) % n]
            sharp = sharp and abs(bend) > TURN_RATE * 0.2
            side += np.sign(bend)
        kerb[i] = sharp and abs(side) == KERB_MIN_COUNT
    for i in range(n):  # in place and ascending, as the reference spreads them
        for back in range(KERB_MIN_COUNT):
            kerb[(i - back) % n] = kerb[(i - back) % n] or kerb[i]
    return kerb


def _quads(beta, x, y, inner, outer):
    """Quads between the offsets `inner` and `outer` of points i and i-1; (N, 4, 2)."""
    here = np.stack([x, y], -1)
    across = np.stack([np.cos(beta), np.sin(beta)], -1)
    back, back_across = np.roll(here, 1, 0), np.roll(across, 1, 0)
    corners = (here, across, inner), (here, across, outer), (back, back_across, outer)
    return np.stack([p + d * a for p, a, d in (*corners, (back, back_across, inner))], 1)


def _centreline(points: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Smooth the raw loop and sample it evenly.

    A Gaussian of one tile over the points removes the generator's steps in heading (and the seam
    where its loop was glued), a periodic cubic spline makes curvature continuous.

    Returns:
        centreline (M, 6), arc positions of the raw points (N,), length.
    """
    xy = gaussian_filter1d(points[:, 1:3], 1.0, axis=0, mode="wrap")
    closed = np.vstack([xy, xy[:1]])
    chord = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
    spline = CubicSpline(chord, closed, bc_type="periodic")
    # Arc length over the spline parameter by fine trapezoids, then its inverse by interpolation.
    u = np.linspace(0.0, chord[-1], 8 * len(points) + 1)
    speed = np.linalg.norm(spline(u, 1), axis=1)
    arc = np.concatenate([[0.0], np.cumsum((speed[1:] + speed[:-1]) / 2 * np.diff(u))])
    length = float(arc[-1])
    m = round(length / SAMPLE_STEP)
    if m > MAX_SAMPLES:
        raise TrackError(f"a track of {length:.0f} units is longer than {MAX_SAMPLES} units")
    at = np.interp(np.arange(m) * length / m, arc, u)
    position, first, second = spline(at), spline(at, 1), spline(at, 2)
    norm = np.linalg.norm(first, axis=1)
    tangent = first / norm[:, None]
    curvature = (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) / norm**3
    heading = np.unwrap(np.arctan2(tangent[:, 1], tangent[:, 0]))
    samples = np.column_stack([position, tangent, curvature, heading])
    return samples, np.interp(chord[:-1], u, arc), length


def _contact_grid(tiles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    side = 2 * GRID_HALF
    low = np.floor((tiles.min(1) - GRID_REACH) / GRID_CELL).astype(int) + GRID_HALF
    high = np.floor((tiles.max(1) + GRID_REACH) / GRID_CELL).astype(int) + GRID_HALF
    if low.min() < 0 or high.max() >= side:
        raise TrackError("a track reaches beyond the playfield")
    wide, tall = (high - low + 1).T
    owner = np.repeat(np.arange(len(tiles)), wide * tall)
    # Position of every entry within its tile's block of cells.
    at = np.arange(len(owner)) - np.repeat(np.cumsum(wide * tall) - wide * tall, wide * tall)
    row, column = low[owner, 1] + at // wide[owner], low[owner, 0] + at % wide[owner]
    cell = row * side + column
    order = np.argsort(cell, kind="stable")  # ascending tile index within a cell
    start = np.zeros(side * side + 1, np.int32)
    np.cumsum(np.bincount(cell, minlength=side * side), out=start[1:])
    return start, owner[order].astype(np.int32)


def build_track(
    points: np.ndarray,
    *,
    half_width: float = HALF_WIDTH,
    direction: str = "ccw",
    seed: int = -1,
    generator: str = "carracing",
) -> Track:
    """Make a track from a closed loop of points.

    Args:
        points: (N, 3) beta (rad), x, y, about DETAIL_STEP apart, counter-clockwise as generated.
        half_width: half of the road's width in units.
        direction: "ccw" drives the loop as generated, "cw" the other way from the same start line.
            The scenery (tiles, shades, kerbs) stays where it was.

    Raises:
        TrackError: too many points, or a loop that leaves the playfield.
    """
    n = len(points)
    if not 8 <= n <= MAX_TILES:
        raise TrackError(f"a track needs 8 to {MAX_TILES} points, not {n}")
    beta, x, y = points.T
    tiles = _quads(beta, x, y, -half_width, half_width)
    kerb = np.flatnonzero(_kerbs_along(np.ascontiguousarray(beta)))
    side = np.sign(np.roll(beta, 1) - beta)[:, None]
    stones = _quads(beta, x, y, side * half_width, side * (half_width + KERB_WIDTH))[kerb]
    order = np.arange(n)
    shade = (order % 3).astype(np.uint8)
    kerb_tile = kerb.copy()
    if direction == "cw":
        # Driven backwards: point k is old point -k, and the tile that ends there old tile 1-k.
        points = np.column_stack([beta + math.pi, x, y])[-order % n]
        tiles = tiles[(1 - order) % n]
        shade = shade[(1 - order) % n]
        kerb_tile = (1 - kerb) % n
        order = (1 - order) % n
    elif direction != "ccw":
        raise TrackError(f"direction is 'ccw' or 'cw', not {direction!r}")
    centreline, point_s, length = _centreline(points)
    grid_start, grid_tiles = _contact_grid(tiles)
    gap = (point_s - np.roll(point_s, 1)) % length
    return Track(
        points=np.ascontiguousarray(points),
        tiles=np.ascontiguousarray(tiles),
        shade=shade,
        paint_order=order.astype(np.int32),
        kerbs=stones,
        kerb_tile=kerb_tile.astype(np.int32),
        kerb_white=kerb % 2 == 0,
        half_width=float(half_width),
        length=length,
        centreline=centreline,
        tile_s=(point_s - gap / 2) % length,
        grid_start=grid_start,
        grid_tiles=grid_tiles,
        seed=seed,
        direction=direction,
        generator=generator,
    )
