"""Cars in a frame: coverage tables for the followed car, supersampling for any other.

The car that the camera follows is always at the same place and heads up. Only its front wheels and
the stripes on its turning wheels change. So its coverage of every pixel is computed once per
camera, in tables over steering angles and wheel phases.
"""

from __future__ import annotations

import math

import numpy as np
from numba import int64

from envs.racing.pixels.camera import DARKEN, ZOOM
from envs.racing.sim.dynamics import HULL, WHEEL_HALF_WIDTH, WHEEL_RADIUS, WHEEL_XY
from envs.racing.sim.kernel import kernel

HULL_RGB = (204, 0, 0)
STRIPE_RGB = (77, 77, 77)
OUTLINE = 0.5 / ZOOM
"""Units by which polygons grow, because CarRacing's rasteriser also fills their outline."""

STEER_STEPS = 33
MAX_STEER = 0.46
PHASE_STEPS = 32
BOX_ROWS, BOX_COLUMNS = 12, 6
"""Size in pixels of the box around the followed car; enough at the finest camera."""

CAR_SIDE, CAR_END = 1.7, 2.7
"""Largest extent of a car with turned wheels, to its sides and to its ends, in units."""


def _planes(polygon: np.ndarray, grow: float) -> np.ndarray:
    edge = np.roll(polygon, -1, 0) - polygon
    normal = np.stack([edge[:, 1], -edge[:, 0]], 1)
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    x, y = polygon.T
    if (x * np.roll(y, -1) - np.roll(x, -1) * y).sum() < 0:
        normal = -normal
    return np.column_stack([normal, (normal * polygon).sum(1) + grow])


_HULL_PLANES = np.concatenate([_planes(polygon, OUTLINE) for polygon in HULL])
_HULL_STARTS = np.cumsum([0, *(len(polygon) for polygon in HULL)])
_HULL_LOW = np.concatenate(HULL).min(0) - OUTLINE
_HULL_HIGH = np.concatenate(HULL).max(0) + OUTLINE
HULL_TOP = float(_HULL_HIGH[1])
"""How far the hull's nose lies ahead of its origin, in units."""


@kernel(counted=False)
def _in_hull(x, y):
    if x < _HULL_LOW[0] or x > _HULL_HIGH[0] or y < _HULL_LOW[1] or y > _HULL_HIGH[1]:
        return False
    for p in range(len(_HULL_STARTS) - 1):
        inside = True
        for e in range(_HULL_STARTS[p], _HULL_STARTS[p + 1]):
            if _HULL_PLANES[e, 0] * x + _HULL_PLANES[e, 1] * y > _HULL_PLANES[e, 2]:
                inside = False
                break
        if inside:
            return True
    return False


@kernel(counted=False)
def _stripe(phase):
    """The grey stripe on a turning wheel: its ends along the wheel in units, or an empty range."""
    s1, s2 = math.sin(phase), math.sin(phase + 1.2)
    c1, c2 = math.cos(phase), math.cos(phase + 1.2)
    if s1 > 0 and s2 > 0:
        return 1.0, -1.0
    if s1 > 0:
        c1 = 1.0 if c1 > 0 else -1.0
    if s2 > 0:
        c2 = 1.0 if c2 > 0 else -1.0
    low, high = min(c1, c2) * WHEEL_RADIUS, max(c1, c2) * WHEEL_RADIUS
    return low - OUTLINE, high + OUTLINE


@kernel(counted=False)
def _wheel_part(x, y, wheel, steer_sin, steer_cos, low, high):
    """0 outside the wheel, 1 on its tyre, 2 on its stripe; (x, y) in the hull's frame."""
    dx, dy = x - WHEEL_XY[wheel, 0], y - WHEEL_XY[wheel, 1]
    if wheel < 2:
        dx, dy = steer_cos * dx + steer_sin * dy, steer_cos * dy - steer_sin * dx
    if abs(dx) > WHEEL_HALF_WIDTH + OUTLINE or abs(dy) > WHEEL_RADIUS + OUTLINE:
        return 0
    return 2 if low <= dy <= high else 1


@kernel
def cover_tables(across, along, top, left, centre_row, centre_column, samples):
    """Coverage of the followed car's box in 255ths: hull, tyres and stripes."""
    hull = np.zeros((BOX_ROWS, BOX_COLUMNS), np.uint8)
    tyre = np.zeros((4, STEER_STEPS, BOX_ROWS, BOX_COLUMNS), np.uint8)
    stripe = np.zeros((4, STEER_STEPS, PHASE_STEPS, BOX_ROWS, BOX_COLUMNS), np.uint8)
    share = 255.0 / (samples * samples)
    hits = np.zeros(PHASE_STEPS)
    lows, highs = np.empty(PHASE_STEPS), np.empty(PHASE_STEPS)
    for p in range(PHASE_STEPS):
        lows[p], highs[p] = _stripe(2 * math.pi * p / PHASE_STEPS)
    for r in range(BOX_ROWS):
        for c in range(BOX_COLUMNS):
            count = 0
            for i in range(samples * samples):
                x = (left + c + (i % samples + 0.5) / samples - centre_column) * across
                y = (centre_row - top - r - (i // samples + 0.5) / samples) * along
                count += _in_hull(x, y)
            hull[r, c] = int(count * share + 0.5)
            for wheel in range(4):
                for a in range(STEER_STEPS):
                    steer = (2.0 * a / (STEER_STEPS - 1) - 1.0) * MAX_STEER if wheel < 2 else 0.0
                    steering = math.sin(steer), math.cos(steer)
                    tyres = 0
                    hits[:] = 0
                    for i in range(samples * samples):
                        x = (left + c + (i % samples + 0.5) / samples - centre_column) * across
                        y = (centre_row - top - r - (i // samples + 0.5) / samples) * along
                        if _wheel_part(x, y, wheel, *steering, 1.0, -1.0) == 0 or _in_hull(x, y):
                            continue
                        tyres += 1
                        for p in range(PHASE_STEPS):
                            hits[p] += _wheel_part(x, y, wheel, *steering, lows[p], highs[p]) == 2
                    tyre[wheel, a, r, c] = int(tyres * share + 0.5)
                    for p in range(PHASE_STEPS):
                        stripe[wheel, a, p, r, c] = int(hits[p] * share + 0.5)
    return hull, tyre, stripe


@kernel(counted=False)
def draw_followed_car(frame, camera, look, steer, wheels):
    """Blend the car at the picture's fixed place from its tables."""
    a = int(round((steer / MAX_STEER + 1.0) * 0.5 * (STEER_STEPS - 1)))
    a = min(max(a, 0), STEER_STEPS - 1)
    middle = STEER_STEPS // 2
    steps_per_rad = PHASE_STEPS / (2 * math.pi)
    p0 = int(math.floor(wheels[0].phase * steps_per_rad + 0.5)) % PHASE_STEPS
    p1 = int(math.floor(wheels[1].phase * steps_per_rad + 0.5)) % PHASE_STEPS
    p2 = int(math.floor(wheels[2].phase * steps_per_rad + 0.5)) % PHASE_STEPS
    p3 = int(math.floor(wheels[3].phase * steps_per_rad + 0.5)) % PHASE_STEPS
    tyre, stripe = look.tyre_cover, look.stripe_cover
    for r in range(BOX_ROWS):
        for c in range(BOX_COLUMNS):
            cover = int64(look.hull_cover[r, c])
            tyres = int64(tyre[0, a, r, c]) + tyre[1, a, r, c]
            tyres += int64(tyre[2, middle, r, c]) + tyre[3, middle, r, c]
            if cover + tyres == 0:
                continue
            stripes = int64(stripe[0, a, p0, r, c]) + stripe[1, a, p1, r, c]
            stripes += int64(stripe[2, middle, p2, r, c]) + stripe[3, middle, p3, r, c]
            hull, light = float(cover), float(stripes)
            rest = float(max(255 - cover - tyres, 0))
            # Black tyres are darkened too wherever the pixel is not all black.
            darker = DARKEN * float(tyres - stripes) / 255.0
            at = ((look.box_top + r) * camera.size + look.box_left + c) * camera.channels
            for channel in range(camera.channels):
                value = (
                    frame[at + channel] * rest
                    + look.hull[channel] * hull
                    + look.stripe[channel] * light
                )
                frame[at + channel] = int(max(value / 255.0 - darker + 0.5, 0.0))


@kernel(counted=False)
def draw_any_car(frame, camera, look, zoom, right, up, angle, steer, wheels, hull_values):
    """Draw a car anywhere: (right, up) units from the camera's car, turned by angle against it."""
    samples = 3
    ratio = ZOOM / zoom
    across, along = camera.across * ratio, camera.along * ratio
    reach = CAR_SIDE + CAR_END
    left = max(0, int(math.floor((right - reach) / across + camera.centre_column)))
    last = min(camera.size - 1, int((right + reach) / across + camera.centre_column))
    top = max(0, int(math.floor(camera.centre_row - (up + reach) / along)))
    bottom = min(camera.rows - 1, int(camera.centre_row - (up - reach) / along))
    sin, cos = math.sin(angle), math.cos(angle)
    steering = math.sin(steer), math.cos(steer)
    low_0, high_0 = _stripe(wheels[0].phase)
    low_1, high_1 = _stripe(wheels[1].phase)
    low_2, high_2 = _stripe(wheels[2].phase)
    low_3, high_3 = _stripe(wheels[3].phase)
    low, high = (low_0, low_1, low_2, low_3), (high_0, high_1, high_2, high_3)
    for r in range(top, bottom + 1):
        for c in range(left, last + 1):
            hull, dark, light = 0, 0, 0
            # Most of the box is beside a turned car: skip pixels that are clearly outside of it.
            dx = (c + 0.5 - camera.centre_column) * across - right
            dy = (camera.centre_row - r - 0.5) * along - up
            x, y = cos * dx + sin * dy, cos * dy - sin * dx
            if abs(x) > CAR_SIDE + across or abs(y) > CAR_END + along:
                continue
            for i in range(samples * samples):
                dx = (c + (i % samples + 0.5) / samples - camera.centre_column) * across - right
                dy = (camera.centre_row - r - (i // samples + 0.5) / samples) * along - up
                x, y = cos * dx + sin * dy, cos * dy - sin * dx
                if _in_hull(x, y):
                    hull += 1
                    continue
                for wheel in range(4):
                    part = _wheel_part(x, y, wheel, *steering, low[wheel], high[wheel])
                    if part:
                        dark += 1
                        light += part == 2
                        break
            if hull + dark == 0:
                continue
            whole = float(samples * samples)
            at = (r * camera.size + c) * camera.channels
            for channel in range(camera.channels):
                value = frame[at + channel] * (whole - hull - dark)
                value += (
                    hull_values[channel] * hull
                    + look.stripe[channel] * light
                    - DARKEN * (dark - light)
                )
                frame[at + channel] = int(max(value / whole + 0.5, 0.0))
