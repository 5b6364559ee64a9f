"""Progress: arc length along the smoothed centreline that cannot be gained by cheating.

The foot of the car on the centreline is followed continuously from tick to tick, so crossing the
infield never jumps it ahead. What the foot gains is credited with four rules:

* on the road (and a quarter of its width beyond its edge) it counts in full, but in a bend never
  at a higher rate than at the road's inner edge, so cutting further in gains nothing more;
* from there it fades to nothing at one road half-width off the edge; backward motion always counts;
* the foot may lag behind a car that crosses a bend's centre, and catches up near the road: no more
  counts than the car moves along the road itself;
* a car that comes back onto the road elsewhere has its foot moved there, without credit if that is
  ahead and with the full loss if it is behind.

The sum of `progress_delta` over an episode is its progress times the track's length.
"""

from __future__ import annotations

import math

from envs.racing.sim.dynamics import DT
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import LOOKAHEAD

FULL_CREDIT = 1.5
NO_CREDIT = 2.0
"""Lateral offsets, in half-widths, up to which arc length counts in full and not at all."""
ASTRAY = 30.0
"""Units between the foot and the touched tile beyond which the car is on another part."""
MIN_STRETCH = 0.2
"""Lower bound of 1 - curvature x offset, which vanishes at a bend's centre."""
CATCH_UP = 1.1
"""Most arc length that counts in a tick, as a multiple of the car's own motion along the road;
above 1 since curvature varies within a tick."""
CATCH_UP_SLACK = 0.02
"""Units on top of that: turning moves the hull's origin about the centre of mass."""
PASSED = 6.0
"""Units by which a tile's middle lies behind the car when no wheel can touch it any more."""
MAX_STEP = 4.0
"""Units by which a foot may move in a tick: twice what the fastest car drives."""


@kernel(inline="always", counted=False)
def wrap(distance, length):
    """The representative of an arc distance in [-length/2, length/2)."""
    return distance - length * math.floor(distance / length + 0.5)


@kernel(counted=False)
def sample(centreline, count, length, s):
    """Position, tangent and curvature at arc position s (cubic Hermite between samples)."""
    step = length / count
    at = s / step
    j = int(math.floor(at))
    t = at - j
    if j < 0 or j >= count:  # a whole division costs more than the rest of this function
        j %= count
    following = j + 1 if j + 1 < count else 0
    a, b = centreline[j], centreline[following]
    t2, t3 = t * t, t * t * t
    h1, h2 = 3 * t2 - 2 * t3, t3 - 2 * t2 + t
    h3 = t3 - t2
    x = a[0] + h1 * (b[0] - a[0]) + step * (h2 * a[2] + h3 * b[2])
    y = a[1] + h1 * (b[1] - a[1]) + step * (h2 * a[3] + h3 * b[3])
    tx, ty = a[2] + t * (b[2] - a[2]), a[3] + t * (b[3] - a[3])
    norm = math.sqrt(tx * tx + ty * ty)
    return x, y, tx / norm, ty / norm, a[4] + t * (b[4] - a[4])


@kernel(inline="always", counted=False)
def _sample_heading(track, j):
    laps = 0
    if j >= track.samples:
        laps = j // track.samples
        j -= laps * track.samples
    return track.centreline[j, 5] + track.lap_turn * laps


@kernel(counted=False)
def heading(track, s):
    """Unwrapped heading of the centreline at s >= 0 (linear between samples)."""
    at = s * track.samples / track.length
    j = int(math.floor(at))
    t = at - j
    a, b = _sample_heading(track, j), _sample_heading(track, j + 1)
    return a + t * (b - a)


@kernel(counted=False)
def corner_angle(track, s):
    """Signed heading change of the centreline over the next LOOKAHEAD units."""
    return heading(track, s + LOOKAHEAD) - heading(track, s)


@kernel(counted=False)
def foot(centreline, count, length, s, x, y):
    """Follow the foot of (x, y) from its last arc position by Newton's method.

    Returns:
        (unwrapped s, lateral offset, positive to the left, curvature and tangent at s).
    """
    start = s
    lateral, curvature, tx, ty = 0.0, 0.0, 0.0, 0.0
    for _ in range(6):
        cx, cy, tx, ty, curvature = sample(centreline, count, length, s)
        ahead = (x - cx) * tx + (y - cy) * ty
        lateral = (y - cy) * tx - (x - cx) * ty
        if abs(ahead) < 1e-7:
            return s, lateral, curvature, tx, ty
        s += ahead / max(1.0 - curvature * lateral, MIN_STRETCH)
        if s - start > MAX_STEP:
            s = start + MAX_STEP
        elif start - s > MAX_STEP:
            s = start - MAX_STEP
    _, _, tx, ty, _ = sample(centreline, count, length, s)
    return s, lateral, curvature, tx, ty


@kernel(counted=False)
def credit(gain, along, lateral, curvature, half_width):
    """Arc length that counts, of `gain` units that the foot moved (see the module).

    along: units that the car moved in the direction of the road.
    """
    if gain <= 0:
        return gain
    edge = min(max(lateral, -half_width), half_width)
    at_edge = max(1.0 - curvature * edge, MIN_STRETCH)
    gain *= min(max(1.0 - curvature * lateral, 0.0) / at_edge, 1.0)
    gain = min(gain, CATCH_UP * max(along, 0.0) / at_edge + CATCH_UP_SLACK)
    beyond = (NO_CREDIT - abs(lateral) / half_width) / (NO_CREDIT - FULL_CREDIT)
    return gain * min(max(beyond, 0.0), 1.0)


@kernel(counted=False)
def update(car, track, x, y, touched):
    """Advance a car's foot and credited arc length after it moved to (x, y).

    touched: a tile that a wheel touches, or -1.
    """
    s, lateral, curvature, tx, ty = foot(track.centreline, track.samples, track.length, car.s, x, y)
    along = DT * (car.vx * tx + car.vy * ty)
    gain = credit(s - car.s, along, lateral, curvature, track.half_width)
    if touched >= 0 and abs(lateral) > 2 * track.half_width:
        there = track.tile_s[touched]
        if abs(wrap(there - s, track.length)) > ASTRAY:
            # The new neighbourhood's foot, found from the tile's own arc position.
            s, lateral, curvature, _, _ = foot(
                track.centreline, track.samples, track.length, there, x, y
            )
            gain = min(wrap(s - car.s, track.length), 0.0)
    car.s = s - track.length * math.floor(s / track.length)
    car.lateral = lateral
    car.curvature = curvature
    car.arc += gain
    car.arc_delta += gain


@kernel(counted=False)
def pass_tiles(car, track, visited):
    """Count the tiles of the first lap that the car has left behind, and those it never touched."""
    while car.tiles_passed < track.count:
        tile = car.first_tile + car.tiles_passed
        if tile >= track.count:
            tile -= track.count
        if wrap(car.s - track.tile_s[tile], track.length) <= PASSED:
            break
        car.tiles_missed += visited[tile] == 0
        car.tiles_passed += 1
