"""Procedural tracks: a graded family from wide sweeping circuits to narrow ones with hairpins.

A track begins as a polygon around the origin whose corners vary more in distance the harder it is;
hairpin loops and chicanes are cut into its sides. Rounding every corner with an arc and blurring
the result gives bends with easing entries, as surveyed roads have. A draw that would be too sharp
to drive, too close to itself or too large is drawn again from the same generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.spatial import cKDTree

from envs.racing.sim.track import DETAIL_STEP, KERB_WIDTH, TrackError

EXTENT = 300.0
"""Nothing of the road, kerbs included, lies further out, in units along an axis."""
MIN_LENGTH, MAX_LENGTH = 700.0, 1400.0
GAP = 4.0
"""Least grass between the kerbs of parts of the road that do not follow each other."""
MIN_BEND = 1.6
"""Least radius of curvature in half-widths; no tile folds over itself, even on a widened road."""

STRAIGHT = 40.0
"""Least radius of the stretch on which cars start."""

FINE_STEP = 0.5
"""Spacing in units of the curve while it is rounded and blurred."""
MAX_TRIES = 300


@dataclass(frozen=True)
class _Family:
    """What a difficulty means; every length in units."""

    half_width: float
    corners: tuple[int, int]
    spread: float
    """Corner distances from the origin vary by this share of the mean, either way."""
    radius: tuple[float, float]
    """Bend radii that are aimed at; the sides of the polygon may allow less."""
    sweep: float
    """Least distance before a corner at which its bend begins, so that slight bends are long."""
    features: tuple[int, int]
    """Hairpin loops and chicanes cut into the sides."""
    hairpin: float
    """Radius for which they leave room; no arc is much tighter."""
    loops: float
    """Share of hairpin loops among them."""
    easing: float
    """Standard deviation of the blur that turns arcs into easing bends."""
    length: tuple[float, float]

    @property
    def clearance(self) -> float:
        """Least distance between centrelines of parts that do not follow each other."""
        return 2 * (self.half_width + KERB_WIDTH) + GAP


def _family(difficulty: float) -> _Family:
    def blend(easy: float, hard: float) -> float:
        return easy + (hard - easy) * difficulty

    def ratio(easy: float, hard: float) -> float:
        return easy * (hard / easy) ** difficulty

    half_width = blend(8.0, 5.0)
    return _Family(
        half_width=half_width,
        corners=(round(blend(6, 8)), round(blend(9, 12))),
        spread=blend(0.22, 0.45),
        radius=(ratio(42.0, half_width + 4.0), ratio(110.0, 30.0)),
        sweep=blend(60.0, 22.0),
        features=(int(blend(0, 2)), round(blend(0, 4))),
        hairpin=ratio(34.0, half_width + 4.0),
        loops=blend(0.0, 0.7),
        easing=blend(8.0, 3.0),
        length=(blend(850.0, 900.0), blend(1150.0, 1200.0)),
    )


def _base_polygon(rng: np.random.Generator, family: _Family) -> np.ndarray:
    """A star-shaped polygon, counter-clockwise, of unit mean radius."""
    n = int(rng.integers(family.corners[0], family.corners[1] + 1))
    angle = (np.arange(n) + rng.uniform(-0.28, 0.28, n)) * 2 * math.pi / n
    radius = 1 + rng.uniform(-family.spread, family.spread, n)
    polygon = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    polygon[:, 1] *= rng.uniform(0.6, 1.0)
    rotation = rng.uniform(0, 2 * math.pi)
    sin, cos = math.sin(rotation), math.cos(rotation)
    return polygon @ np.array([[cos, sin], [-sin, cos]])


def _cut(rng: np.random.Generator, polygon: np.ndarray, family: _Family) -> np.ndarray | None:
    """Replace the middle of a side by a hairpin loop or a chicane; None without room."""
    ends = np.roll(polygon, -1, 0)
    sides = np.linalg.norm(ends - polygon, axis=1)
    side = int(rng.choice(len(polygon), p=sides**4 / (sides**4).sum()))
    start, length = polygon[side], sides[side]
    along = (ends[side] - start) / length
    inwards = np.array([-along[1], along[0]])
    narrow = 2 * family.hairpin
    if rng.random() < family.loops:
        width = rng.uniform(1.05, 1.6) * max(narrow, family.clearance)
        depth = rng.uniform(1.2 * narrow, 1.2 * narrow + 60)
        lean = rng.uniform(-0.35, 0.35) * depth
        shape = [(-width / 2, 0.0), (lean - width / 2, depth), (lean + width / 2, depth)]
        shape.append((width / 2, 0.0))
    else:
        width = rng.uniform(2.2, 3.6) * narrow
        depth = rng.uniform(0.7, 1.4) * narrow * rng.choice([-1.0, 1.0])
        shape = [(-width / 2, 0.0), (0.0, depth), (width / 2, 0.0)]
    spare = length - width - 1.6 * narrow
    if spare < 0:
        return None
    at = (length + rng.uniform(-spare, spare)) / 2
    local = [(at + u, v) for u, v in shape]
    corners = [start + u * along + v * inwards for u, v in local]
    return np.insert(polygon, side + 1, corners, axis=0)


def _rounded(rng: np.random.Generator, polygon: np.ndarray, family: _Family) -> np.ndarray | None:
    """The polygon with an arc at every corner, as points FINE_STEP apart; None without room."""
    edge = np.roll(polygon, -1, 0) - polygon
    length = np.linalg.norm(edge, axis=1)
    out = edge / length[:, None]
    into = np.roll(out, 1, 0)
    corner_angle = np.arctan2(into[:, 0] * out[:, 1] - into[:, 1] * out[:, 0], (into * out).sum(1))
    if np.abs(corner_angle).max() > 2.75:
        return None
    tangent = np.tan(np.abs(corner_angle) / 2)
    low, high = family.radius
    radius = low * (high / low) ** rng.random(len(polygon))
    radius = np.maximum(radius, family.sweep / np.maximum(tangent, 1e-9))
    # Each side is shared by the tangents of its two corners.
    reach = radius * tangent
    room = length / np.maximum(reach + np.roll(reach, -1), 1e-9)
    reach *= np.minimum(np.minimum(room, np.roll(room, 1)), 1.0)
    if (reach < 0.999 * 0.92 * family.hairpin * tangent).any():
        return None
    pieces = []
    for i in range(len(polygon)):
        begin = polygon[i] - reach[i] * into[i]
        bend = abs(corner_angle[i])
        r = reach[i] / max(tangent[i], 1e-9)
        left = np.array([-into[i, 1], into[i, 0]]) * math.copysign(1.0, corner_angle[i])
        phi = np.arange(max(1, round(r * bend / FINE_STEP))) / max(1, round(r * bend / FINE_STEP))
        phi = phi[:, None] * bend
        pieces.append(begin + r * np.sin(phi) * into[i] + r * (1 - np.cos(phi)) * left)
        straight = length[i] - reach[i] - reach[(i + 1) % len(polygon)]
        m = max(1, round(straight / FINE_STEP))
        t = np.arange(m)[:, None] / m * straight
        pieces.append(polygon[i] + (reach[i] + t) * out[i])
    return np.concatenate(pieces)


def _resampled(curve: np.ndarray, step: float) -> tuple[np.ndarray, float]:
    """A closed curve at even spacing near `step`, and its length."""
    closed = np.vstack([curve, curve[:1]])
    arc = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(closed, axis=0), axis=1))])
    n = round(arc[-1] / step)
    at = np.arange(n) * arc[-1] / n
    return np.column_stack([np.interp(at, arc, closed[:, axis]) for axis in (0, 1)]), float(arc[-1])


def _turns(curve: np.ndarray) -> np.ndarray:
    """Change of direction at every point of a closed curve, in rad."""
    ahead = np.roll(curve, -1, 0) - curve
    behind = np.roll(ahead, 1, 0)
    cross = behind[:, 0] * ahead[:, 1] - behind[:, 1] * ahead[:, 0]
    return np.arctan2(cross, (behind * ahead).sum(1))


def _fits(points: np.ndarray, turns: np.ndarray, family: _Family) -> bool:
    """Whether an evenly spaced curve keeps every promise of the module."""
    step = float(np.linalg.norm(points[1] - points[0]))
    edge = EXTENT - family.half_width - KERB_WIDTH
    if np.abs(points).max() > edge or abs(turns.sum() - 2 * math.pi) > 0.1:
        return False
    if np.abs(turns).max() > step / (MIN_BEND * family.half_width):
        return False
    # A half circle whose ends are `clearance` apart is this long: nearer parts follow each other.
    following = math.ceil(math.pi / 2 * family.clearance / step)
    near = cKDTree(points).query_pairs(family.clearance, output_type="ndarray")
    apart = np.abs(near[:, 0] - near[:, 1])
    return bool((np.minimum(apart, len(points) - apart) <= following).all())


def _attempt(rng: np.random.Generator, family: _Family) -> np.ndarray | None:
    polygon = _base_polygon(rng, family)
    around = np.linalg.norm(np.roll(polygon, -1, 0) - polygon, axis=1).sum()
    polygon *= rng.uniform(*family.length) / around
    missing = int(rng.integers(family.features[0], family.features[1] + 1))
    for _ in range(4 * missing):
        longer = _cut(rng, polygon, family)
        if longer is not None:
            polygon, missing = longer, missing - 1
        if missing == 0:
            break
    curve = _rounded(rng, polygon, family)
    if curve is None:
        return None
    curve, _ = _resampled(curve, FINE_STEP)
    curve = gaussian_filter1d(curve, family.easing / FINE_STEP, axis=0, mode="wrap")
    curve -= (curve.max(0) + curve.min(0)) / 2
    points, length = _resampled(curve, DETAIL_STEP)
    if not MIN_LENGTH <= length <= MAX_LENGTH:
        return None
    turns = _turns(points)
    if not _fits(points, turns, family):
        return None
    return _from_start(points, turns)


def _from_start(points: np.ndarray, turns: np.ndarray) -> np.ndarray | None:
    """Begin in the middle of the straightest stretch, so that a starting grid fits behind in both
    directions; None without one."""
    half = 18
    window = 2 * half
    around = np.concatenate([np.abs(turns), np.abs(turns[:window])])
    bent = np.convolve(around, np.ones(window), "valid")[: len(points)]
    first = int(np.argmin(bent))
    if around[first : first + window].max() > DETAIL_STEP / STRAIGHT:
        return None
    points = np.roll(points, -(first + half), axis=0)
    tangent = np.roll(points, -1, 0) - np.roll(points, 1, 0)
    beta = np.unwrap(np.arctan2(-tangent[:, 0], tangent[:, 1]))
    return np.column_stack([beta, points])


def procedural_points(seed: int, difficulty: float) -> tuple[np.ndarray, float]:
    """The loop of a seed and difficulty.

    Args:
        seed: non-negative; the same seed at another difficulty is another track.
        difficulty: 0 (16 units wide, sweeping bends) to 1 (10 units wide, sharp bends, hairpins
            and chicanes).

    Returns:
        (N, 3) float64 beta (rad), x, y of points about DETAIL_STEP apart, counter-clockwise from a
        straight stretch, and half the road's width.

    Raises:
        ValueError: a difficulty outside [0, 1].
        TrackError: no attempt succeeded.
    """
    if not 0 <= difficulty <= 1:
        raise ValueError(f"difficulty is 0 to 1, not {difficulty}")
    family = _family(float(difficulty))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    for _ in range(MAX_TRIES):
        points = _attempt(rng, family)
        if points is not None:
            return points, family.half_width
    raise TrackError(f"seed {seed} at difficulty {difficulty} makes no track")
