"""Frames: the pixels of CarRacing-v3 by table look-up.

A frame is sampled from the track's prefiltered texture through the inverse of the camera's affine
map, a row of texel addresses at a time, so that the compiler vectorises both the addresses and the
look-ups. The car that the camera follows always has the same place in the picture and is blended
from small coverage tables; other cars, and the zoom of CarRacing's first second, take the general
path with supersampling. Indicator bars are rectangles with fractional coverage.

The score text of CarRacing is left out: it shows the policy its own return.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from llvmlite import ir
from numba import int32, int64, types, uint32
from numba.extending import intrinsic

from envs.racing.dynamics import (
    DT,
    HULL,
    WHEEL_HALF_WIDTH,
    WHEEL_RADIUS,
    WHEEL_XY,
    origin_x,
    origin_y,
)
from envs.racing.kernel import kernel
from envs.racing.texture import (
    LEVELS,
    MATERIAL_RGB,
    PERIOD,
    ROAD,
    SHADE_STEP,
    TILE_CODE,
    fixed_palette,
    grass_code,
    light_shares,
)
from envs.racing.track import MAX_TILES, PLAYFIELD

WINDOW_WIDTH, WINDOW_HEIGHT = 1000.0, 800.0
ZOOM = 16.2
"""Window pixels per unit; the first second of CarRacing blends from START_ZOOM."""
START_ZOOM = 0.6
HUD_ROWS = 12 / 96
"""Share of the picture's height that the indicators take."""

HULL_RGB = (204, 0, 0)
STRIPE_RGB = (77, 77, 77)
BAR_RGB = (
    (255, 255, 255),
    (0, 0, 255),
    (0, 0, 255),
    (51, 0, 255),
    (51, 0, 255),
    (0, 255, 0),
    (255, 0, 0),
)
LUMINANCE = np.array([0.299, 0.587, 0.114])
DARKEN = 2
"""What CarRacing's shrinking takes from every channel that is not black."""

OUTLINE = 0.5 / ZOOM
"""Units by which polygons grow, since CarRacing's rasteriser fills their outline too."""

STEER_STEPS = 33
MAX_STEER = 0.46
PHASE_STEPS = 32
BOX_ROWS, BOX_COLUMNS = 12, 6
"""Size in pixels of the box around the followed car; enough at the finest camera."""

CAR_SIDE, CAR_END = 1.7, 2.7
"""Units within which a car lies, front wheels turned, to its sides and ends."""

GRASS_BINS = 128
"""Bins of the grass period where ground is computed by formula."""

Camera = namedtuple(
    "Camera",
    "size rows channels stack across along centre_row centre_column zoom_in indicators",
)
"""across, along: units per pixel at full zoom; rows: picture rows above the indicators."""

Look = namedtuple(
    "Look",
    "codes tile_value road_value bars hull stripe box_top box_left hull_cover "
    "tyre_cover stripe_cover",
)
"""Colours and tables of a camera: packed values of the fixed codes and of tile shades, channel
values of bars, hull and stripe, and the followed car's coverage."""


def make_camera(*, size: int, grey: bool, stack: int, indicators: bool, zoom_in: bool) -> Camera:
    """The camera of CarRacing-v3 at a resolution of size x size."""
    across, along = WINDOW_WIDTH / size / ZOOM, WINDOW_HEIGHT / size / ZOOM
    rows = size - round(HUD_ROWS * size) if indicators else size
    return Camera(
        size=size,
        rows=rows,
        channels=1 if grey else 3,
        stack=stack,
        across=across,
        along=along,
        centre_row=0.75 * size,
        centre_column=0.5 * size,
        zoom_in=zoom_in,
        indicators=indicators,
    )


def _channels(rgb, grey: bool) -> np.ndarray:
    """Colour values per channel; luminance as one channel."""
    rgb = np.asarray(rgb, np.float64)
    return (rgb @ LUMINANCE)[..., None] if grey else rgb


def _packed(rgb: np.ndarray, grey: bool) -> np.ndarray:
    """Colours as they come out of the reference's shrinking, packed into uint32 values."""
    shrunk = np.where(rgb > 0, np.maximum(np.floor(rgb) - DARKEN, 0), 0)
    if grey:
        return np.round(shrunk @ LUMINANCE).astype(np.uint32)
    c = shrunk.astype(np.uint32)
    return c[..., 0] | (c[..., 1] << 8) | (c[..., 2] << 16)


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


@kernel
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


@kernel
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


@kernel
def _wheel_part(x, y, k, steer, low, high):
    """0 outside wheel k, 1 on its tyre, 2 on its stripe; (x, y) in the hull's frame."""
    dx, dy = x - WHEEL_XY[k, 0], y - WHEEL_XY[k, 1]
    if k < 2:
        sin, cos = math.sin(steer), math.cos(steer)
        dx, dy = cos * dx + sin * dy, cos * dy - sin * dx
    if abs(dx) > WHEEL_HALF_WIDTH + OUTLINE or abs(dy) > WHEEL_RADIUS + OUTLINE:
        return 0
    return 2 if low <= dy <= high else 1


@kernel
def _cover_tables(across, along, top, left, centre_row, centre_column, samples):
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
            for k in range(4):
                for a in range(STEER_STEPS):
                    steer = (2.0 * a / (STEER_STEPS - 1) - 1.0) * MAX_STEER if k < 2 else 0.0
                    tyres = 0
                    hits[:] = 0
                    for i in range(samples * samples):
                        x = (left + c + (i % samples + 0.5) / samples - centre_column) * across
                        y = (centre_row - top - r - (i // samples + 0.5) / samples) * along
                        if _wheel_part(x, y, k, steer, 1.0, -1.0) == 0 or _in_hull(x, y):
                            continue
                        tyres += 1
                        for p in range(PHASE_STEPS):
                            hits[p] += _wheel_part(x, y, k, steer, lows[p], highs[p]) == 2
                    tyre[k, a, r, c] = int(tyres * share + 0.5)
                    for p in range(PHASE_STEPS):
                        stripe[k, a, p, r, c] = int(hits[p] * share + 0.5)
    return hull, tyre, stripe


def make_look(camera: Camera) -> Look:
    """Tables of a camera."""
    grey = camera.channels == 1
    tile_rgb = MATERIAL_RGB[ROAD] + SHADE_STEP * np.arange(3)[:, None]
    top = min(int(camera.centre_row - _HULL_HIGH[1] / camera.along), camera.rows - BOX_ROWS)
    left = int(camera.centre_column) - BOX_COLUMNS // 2
    cover = _cover_tables(
        camera.across, camera.along, top, left, camera.centre_row, camera.centre_column, 8
    )
    tile_value = _packed(np.floor(tile_rgb), grey)
    return Look(
        codes=_packed(fixed_palette(), grey),
        tile_value=tile_value,
        road_value=tile_value[0],
        bars=_channels(np.maximum(np.array(BAR_RGB) - DARKEN, 0), grey),
        hull=_channels(np.maximum(np.array(HULL_RGB) - DARKEN, 0), grey),
        stripe=_channels(np.array(STRIPE_RGB) - DARKEN, grey),
        box_top=top,
        box_left=left,
        hull_cover=cover[0],
        tyre_cover=cover[1],
        stripe_cover=cover[2],
    )


@kernel
def fresh_lut(lut, shade, look):
    """Colours of a track that nobody has driven on. lut: (TILE_CODE + MAX_TILES,) uint32."""
    lut[:TILE_CODE] = look.codes
    for i in range(len(shade)):
        lut[TILE_CODE + i] = look.tile_value[shade[i]]


@intrinsic
def _store_word(_context, address, value):
    def store(_context, builder, _signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        word = (
            builder.trunc(arguments[1], ir.IntType(32))
            if (arguments[1].type.width > 32)
            else arguments[1]
        )
        builder.store(word, pointer, align=1)

    return types.void(types.int64, value), store


@kernel(inline="always")
def _span(start, delta, limit, low, high):
    """Columns c in [low, high) for which 0 <= start + c * delta < limit."""
    end = high
    if delta > 0:
        if start < 0:
            low = max(low, (delta - 1 - start) // delta)
        high = min(high, (limit - start + delta - 1) // delta)
    elif delta < 0:
        if start >= limit:
            low = max(low, (start - limit) // -delta + 1)
        high = min(high, start // -delta + 1)
    elif start < 0 or start >= limit:
        high = low
    low = min(low, end)
    return low, max(low, high)


@kernel
def _ground(track, lut, camera, zoom, x, y, angle, frame, line):
    """Sample the ground into a frame; line: (size,) uint32 scratch for texel addresses."""
    ratio = ZOOM / zoom
    level = 0
    while level + 1 < LEVELS and ratio * 96.0 / camera.size >= 1.5 * 2**level:
        level += 1
    table = track.levels[level]
    offset, height, width = int32(table[0]), int64(table[1]), int64(table[2])
    scale = table[5]
    across, along = camera.across * ratio, camera.along * ratio
    sin, cos = math.sin(angle), math.cos(angle)
    one = 65536.0
    du, dv = int64(round(cos * across * scale * one)), int64(round(sin * across * scale * one))
    size = camera.size
    reach = abs(x) if abs(x) > abs(y) else abs(y)
    far = math.hypot(size * across, size * along)
    formula = level > 0 or reach + far > PLAYFIELD
    shares = np.empty((2, GRASS_BINS if formula else 0))
    light_shares(shares[0], across)
    light_shares(shares[1], along)
    w = int32(width)
    # Aligns the grass pattern with the texture, and keeps addresses positive.
    pattern_x = int64(math.floor(table[3] * scale * one)) + (int64(PERIOD) << 16) * 64
    pattern_y = int64(math.floor(table[4] * scale * one)) + (int64(PERIOD) << 16) * 64
    for r in range(camera.rows):
        py = (camera.centre_row - (r + 0.5)) * along
        px = (0.5 - camera.centre_column) * across
        wx, wy = x + cos * px - sin * py, y + sin * px + cos * py
        u0 = int64(math.floor((wx - table[3]) * scale * one))
        v0 = int64(math.floor((wy - table[4]) * scale * one))
        low, high = _span(u0, du, width << 16, 0, size)
        low, high = _span(v0, dv, height << 16, low, high)
        # Addresses first, then look-ups: each pass vectorises only on its own. Addresses beyond
        # the texture are nonsense here, and replaced below.
        su, sv, tu, tv = int32(u0), int32(v0), int32(du), int32(dv)
        for c in range(size):
            u, v = int32(su + int32(c) * tu), int32(sv + int32(c) * tv)
            line[c] = uint32(offset + (v >> int32(16)) * w + (u >> int32(16)))
        if high - low < size:
            gu, gv = uint32(u0 + pattern_x), uint32(v0 + pattern_y)
            hu, hv = uint32(du & 0xFFFFFFFF), uint32(dv & 0xFFFFFFFF)
            if formula:
                for c in range(size):
                    if c < low or c >= high:
                        gx, gy = wx + cos * across * c, wy + sin * across * c
                        line[c] = PERIOD * PERIOD + grass_code(gx, gy, shares[0], shares[1])
            else:
                for c in range(low):
                    u, v = uint32(gu + uint32(c) * hu), uint32(gv + uint32(c) * hv)
                    v = (v >> uint32(16)) % uint32(PERIOD) * uint32(PERIOD)
                    line[c] = v + (u >> uint32(16)) % uint32(PERIOD)
                for c in range(high, size):
                    u, v = uint32(gu + uint32(c) * hu), uint32(gv + uint32(c) * hv)
                    v = (v >> uint32(16)) % uint32(PERIOD) * uint32(PERIOD)
                    line[c] = v + (u >> uint32(16)) % uint32(PERIOD)
        # A packed colour is stored over the next pixel's first byte too, which comes after it.
        if camera.channels == 3:
            at = frame.ctypes.data + r * size * 3
            for c in range(size - 1):
                _store_word(at + 3 * c, lut[track.texture[line[c]]])
            last = lut[track.texture[line[size - 1]]]
            tail = r * size * 3 + 3 * size - 3
            frame[tail] = last & uint32(255)
            frame[tail + 1] = (last >> uint32(8)) & uint32(255)
            frame[tail + 2] = (last >> uint32(16)) & uint32(255)
        else:
            for c in range(size):
                frame[r * size + c] = lut[track.texture[line[c]]]


@kernel
def _followed_car(frame, camera, look, steer, wheels):
    """Blend the car at the picture's fixed place from its tables."""
    a = int(round((steer / MAX_STEER + 1.0) * 0.5 * (STEER_STEPS - 1)))
    a = min(max(a, 0), STEER_STEPS - 1)
    middle = STEER_STEPS // 2
    turn = PHASE_STEPS / (2 * math.pi)
    p0 = int(math.floor(wheels[0].phase * turn + 0.5)) % PHASE_STEPS
    p1 = int(math.floor(wheels[1].phase * turn + 0.5)) % PHASE_STEPS
    p2 = int(math.floor(wheels[2].phase * turn + 0.5)) % PHASE_STEPS
    p3 = int(math.floor(wheels[3].phase * turn + 0.5)) % PHASE_STEPS
    tyre, stripe = look.tyre_cover, look.stripe_cover
    for r in range(BOX_ROWS):
        for c in range(BOX_COLUMNS):
            hull = float(look.hull_cover[r, c])
            dark = (
                float(tyre[0, a, r, c])
                + float(tyre[1, a, r, c])
                + float(tyre[2, middle, r, c])
                + float(tyre[3, middle, r, c])
            )
            if hull + dark == 0.0:
                continue
            light = (
                float(stripe[0, a, p0, r, c])
                + float(stripe[1, a, p1, r, c])
                + float(stripe[2, middle, p2, r, c])
                + float(stripe[3, middle, p3, r, c])
            )
            rest = max(255.0 - hull - dark, 0.0)
            at = ((look.box_top + r) * camera.size + look.box_left + c) * camera.channels
            for k in range(camera.channels):
                value = frame[at + k] * rest + look.hull[k] * hull + look.stripe[k] * light
                # Black tyres are darkened too wherever the pixel is not all black.
                value = value / 255.0 - DARKEN * (dark - light) / 255.0
                frame[at + k] = int(max(value + 0.5, 0.0))


@kernel
def _any_car(frame, camera, look, zoom, right, up, angle, steer, wheels, hull_values):
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
    low = np.empty(4)
    high = np.empty(4)
    for k in range(4):
        low[k], high[k] = _stripe(wheels[k].phase)
    for r in range(top, bottom + 1):
        for c in range(left, last + 1):
            hull, dark, light = 0, 0, 0
            # Most of the box is beside a turned car; a pixel farther away than its own diagonal is.
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
                for k in range(4):
                    part = _wheel_part(x, y, k, steer, low[k], high[k])
                    if part:
                        dark += 1
                        light += part == 2
                        break
            if hull + dark == 0:
                continue
            whole = float(samples * samples)
            at = (r * camera.size + c) * camera.channels
            for k in range(camera.channels):
                value = frame[at + k] * (whole - hull - dark)
                value += hull_values[k] * hull + look.stripe[k] * light - DARKEN * (dark - light)
                frame[at + k] = int(max(value / whole + 0.5, 0.0))


@kernel
def _bar(frame, camera, values, left, right, top, bottom):
    """Add a rectangle of the 1000 x 800 window to the black indicator rows."""
    if left > right:
        left, right = right, left
    if top > bottom:
        top, bottom = bottom, top
    # The reference fills the outline's pixels as well.
    scale_x, scale_y = camera.size / WINDOW_WIDTH, camera.size / WINDOW_HEIGHT
    x0, x1 = math.floor(left) * scale_x, (math.floor(right) + 1) * scale_x
    y0, y1 = math.floor(top) * scale_y, (math.floor(bottom) + 1) * scale_y
    for r in range(max(int(y0), camera.rows), min(int(math.ceil(y1)), camera.size)):
        high = min(y1, r + 1.0) - max(y0, float(r))
        for c in range(max(int(x0), 0), min(int(math.ceil(x1)), camera.size)):
            cover = high * (min(x1, c + 1.0) - max(x0, float(c)))
            at = (r * camera.size + c) * camera.channels
            for k in range(camera.channels):
                frame[at + k] = int(min(frame[at + k] + cover * values[k], 255.0) + 0.5)


@kernel
def _indicators(frame, camera, look, car, wheels):
    first = camera.rows * camera.size * camera.channels
    frame[first:] = 0
    cell, base, unit = WINDOW_WIDTH / 40, WINDOW_HEIGHT * 39 / 40, WINDOW_HEIGHT / 40
    if car.speed > 1e-4:
        _bar(frame, camera, look.bars[0], 5 * cell, 6 * cell, base - unit * 0.02 * car.speed, base)
    for k in range(4):
        omega = wheels[k].omega
        if abs(omega) > 1e-4:
            top = base - unit * 0.01 * omega
            _bar(frame, camera, look.bars[1 + k], (7 + k) * cell, (8 + k) * cell, top, base)
    top, bottom = WINDOW_HEIGHT * 36 / 40, WINDOW_HEIGHT * 38 / 40
    if abs(car.steer) > 1e-4:
        right = (20 - 10.0 * car.steer) * cell
        _bar(frame, camera, look.bars[5], 20 * cell, right, top, bottom)
    if abs(car.yaw_rate) > 1e-4:
        right = (30 - 0.8 * car.yaw_rate) * cell
        _bar(frame, camera, look.bars[6], 30 * cell, right, top, bottom)


@kernel
def zoom_at(camera, tick):
    """Window pixels per unit after `tick` ticks since the reset."""
    t = (tick + 1) * DT  # the reset itself makes one step
    if not camera.zoom_in or t >= 1.0:
        return ZOOM
    return START_ZOOM * (1.0 - t) + ZOOM * t


@kernel
def draw(world_cars, world_wheels, agent, track, lut, look, camera, rivals, frame, line):
    """Draw what one agent sees.

    Args:
        world_cars: (agents,) CAR; world_wheels: (agents, 4) WHEEL.
        lut: (TILE_CODE + MAX_TILES,) uint32, the agent's colours.
        rivals: (agents, channels) float64 hull colours of other cars.
        frame: (size * size * channels,) uint8, written.
        line: (size,) uint32 scratch.
    """
    car = world_cars[agent]
    x, y = origin_x(car), origin_y(car)
    zoom = zoom_at(camera, car.tick)
    _ground(track, lut, camera, zoom, x, y, car.angle, frame, line)
    sin, cos = math.sin(car.angle), math.cos(car.angle)
    for other in range(len(world_cars)):
        if other != agent:
            it = world_cars[other]
            dx, dy = origin_x(it) - x, origin_y(it) - y
            right, up = cos * dx + sin * dy, cos * dy - sin * dx
            if abs(right) < 60 and abs(up) < 60:
                turned = it.angle - car.angle
                wheels = world_wheels[other]
                colour = rivals[other]
                _any_car(frame, camera, look, zoom, right, up, turned, it.steer, wheels, colour)
    if zoom == ZOOM:
        _followed_car(frame, camera, look, car.steer, world_wheels[agent])
    else:
        wheels = world_wheels[agent]
        _any_car(frame, camera, look, zoom, 0.0, 0.0, 0.0, car.steer, wheels, look.hull)
    if camera.indicators:
        _indicators(frame, camera, look, car, world_wheels[agent])


LUT_SIZE = TILE_CODE + MAX_TILES
