"""Frames: the pixels of CarRacing-v3 by table look-up.

A frame is sampled from the track's prefiltered texture through the inverse of the camera's affine
map. For each row of pixels, `sample` computes a row of texel addresses and then looks them up. The
car that the camera follows is always at the same place in the picture, and is blended from small
coverage tables. Other cars, and the zoom of CarRacing's first second, are supersampled. Indicator
bars are rectangles with fractional coverage.

CarRacing's score text is left out, because it would show the policy its own return.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np
from numba import int64

from envs.racing.pixels.camera import (
    DARKEN,
    WINDOW_HEIGHT,
    WINDOW_WIDTH,
    ZOOM,
    Camera,
    zoom_at,
)
from envs.racing.pixels.sample import edge_addresses, inner_addresses, look_up_grey, look_up_rgb
from envs.racing.pixels.sprites import (
    BOX_COLUMNS,
    BOX_ROWS,
    HULL_RGB,
    HULL_TOP,
    STRIPE_RGB,
    cover_tables,
    draw_any_car,
    draw_followed_car,
)
from envs.racing.pixels.texture import (
    LEVELS,
    MATERIAL_RGB,
    PERIOD,
    ROAD,
    SHADE_STEP,
    TILE_CODE,
    fixed_palette,
    grass_bins,
    grass_code,
    light_shares,
)
from envs.racing.sim.dynamics import origin_x, origin_y
from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import MAX_TILES, PLAYFIELD

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
FAR = 1 << 30
"""Coordinates in 65536ths of a texel up to which a row's arithmetic fits 32 bits."""

Look = namedtuple(
    "Look",
    "codes tile_value road_value bars hull stripe box_top box_left hull_cover "
    "tyre_cover stripe_cover",
)
"""Colours and tables of a camera: packed values of the fixed codes and of tile shades, channel
values of bars, hull and stripe, and the followed car's coverage."""


def _channels(rgb, grey: bool) -> np.ndarray:
    """Colour values per channel; luminance as one channel."""
    rgb = np.asarray(rgb, np.float64)
    return (rgb @ LUMINANCE)[..., None] if grey else rgb


def _packed(rgb: np.ndarray, grey: bool) -> np.ndarray:
    """Colours after the reference's shrinking, packed into uint32 values."""
    shrunk = np.where(rgb > 0, np.maximum(np.floor(rgb) - DARKEN, 0), 0)
    if grey:
        return np.round(shrunk @ LUMINANCE).astype(np.uint32)
    c = shrunk.astype(np.uint32)
    return c[..., 0] | (c[..., 1] << 8) | (c[..., 2] << 16)


def make_look(camera: Camera) -> Look:
    """Tables of a camera."""
    grey = camera.channels == 1
    tile_rgb = MATERIAL_RGB[ROAD] + SHADE_STEP * np.arange(3)[:, None]
    top = min(int(camera.centre_row - HULL_TOP / camera.along), camera.rows - BOX_ROWS)
    left = int(camera.centre_column) - BOX_COLUMNS // 2
    cover = cover_tables(
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


@kernel(inline="always")
def _inside(start, delta, size, texels):
    """Whether start + c * delta lies in [0, texels) for all 0 <= c < size."""
    end = start + (size - 1) * delta
    return min(start, end) >= 0 and max(start, end) < texels


@kernel(counted=False)
def _formula_addresses(line, first, last, x, y, dx, dy, shares):
    """Addresses of the fixed codes of columns from `first` to before `last`, by formula.

    x, y, dx, dy: the row's first point in units, and the step per pixel.
    """
    # The divisions have a separate loop, which LLVM can vectorise.
    for c in range(first, last):
        line[c] = grass_bins(x + dx * c, y + dy * c)
    for c in range(first, last):
        line[c] = PERIOD * PERIOD + grass_code(line[c], shares[0], shares[1])


@kernel(inline="always", counted=False)
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


@kernel(counted=False)
def _ground(picture, lut, camera, zoom, x, y, angle, frame, line, shares):
    """Sample the ground into a frame; line and shares are scratch memory, see `draw`."""
    ratio = ZOOM / zoom
    level = 0
    while level + 1 < LEVELS and ratio * 96.0 / camera.size >= 1.5 * 2**level:
        level += 1
    table = picture.levels[level]
    offset, height, width = int64(table[0]), int64(table[1]), int64(table[2])
    scale = table[5]
    across, along = camera.across * ratio, camera.along * ratio
    sin, cos = math.sin(angle), math.cos(angle)
    one = 65536.0
    du, dv = int64(round(cos * across * scale * one)), int64(round(sin * across * scale * one))
    size = camera.size
    reach = abs(x) if abs(x) > abs(y) else abs(y)
    far = math.hypot(size * across, size * along)
    formula = level > 0 or reach + far > PLAYFIELD
    if formula:
        light_shares(shares[0], across)
        light_shares(shares[1], along)
    # Aligns the grass pattern with the texture, and keeps addresses positive.
    pattern_x = int64(math.floor(table[3] * scale * one)) + (int64(PERIOD) << 16) * 64
    pattern_y = int64(math.floor(table[4] * scale * one)) + (int64(PERIOD) << 16) * 64
    lines, texels, colours = line.ctypes.data, picture.texture.ctypes.data, lut.ctypes.data
    for r in range(camera.rows):
        py = (camera.centre_row - (r + 0.5)) * along
        px = (0.5 - camera.centre_column) * across
        wx, wy = x + cos * px - sin * py, y + sin * px + cos * py
        u = int64(math.floor((wx - table[3]) * scale * one))
        v = int64(math.floor((wy - table[4]) * scale * one))
        if _inside(u, du, size, width << 16) and _inside(v, dv, size, height << 16):
            inner_addresses(lines, size, u, v, du, dv, height, offset)
        elif formula:
            inner_addresses(lines, size, u, v, du, dv, height, offset)
            first, last = _span(u, du, width << 16, 0, size)
            first, last = _span(v, dv, height << 16, first, last)
            dx, dy = cos * across, sin * across
            _formula_addresses(line, 0, first, wx, wy, dx, dy, shares)
            _formula_addresses(line, last, size, wx, wy, dx, dy, shares)
        else:
            # If 32 bits are too few for the coordinates, the texture is out of sight.
            beyond = max(abs(u), abs(v)) >= FAR
            at_u, at_v = (-FAR, -FAR) if beyond else (u, v)
            edge_addresses(
                lines,
                size,
                at_u,
                at_v,
                du,
                dv,
                height,
                width,
                offset,
                u - at_u + pattern_x,
                v - at_v + pattern_y,
            )
        out = frame.ctypes.data + r * size * camera.channels
        if camera.channels == 3:
            look_up_rgb(lines, size, texels, colours, out)
        else:
            look_up_grey(lines, size, texels, colours, out)


@kernel(counted=False)
def _bar(frame, camera, values, left, right, top, bottom):
    """Add a rectangle of the 1000 x 800 window to the black indicator rows."""
    if left > right:
        left, right = right, left
    if top > bottom:
        top, bottom = bottom, top
    # The reference also fills the pixels of the outline.
    scale_x, scale_y = camera.size / WINDOW_WIDTH, camera.size / WINDOW_HEIGHT
    x0, x1 = math.floor(left) * scale_x, (math.floor(right) + 1) * scale_x
    y0, y1 = math.floor(top) * scale_y, (math.floor(bottom) + 1) * scale_y
    for r in range(max(int(y0), camera.rows), min(int(math.ceil(y1)), camera.size)):
        high = min(y1, r + 1.0) - max(y0, float(r))
        for c in range(max(int(x0), 0), min(int(math.ceil(x1)), camera.size)):
            cover = high * (min(x1, c + 1.0) - max(x0, float(c)))
            at = (r * camera.size + c) * camera.channels
            for channel in range(camera.channels):
                if values[channel] > 0.0:
                    value = frame[at + channel] + cover * values[channel]
                    frame[at + channel] = int(min(value, 255.0) + 0.5)


@kernel(counted=False)
def _indicators(frame, camera, look, car, wheels):
    first = camera.rows * camera.size * camera.channels
    frame[first:] = 0
    cell, base, unit = WINDOW_WIDTH / 40, WINDOW_HEIGHT * 39 / 40, WINDOW_HEIGHT / 40
    if car.speed > 1e-4:
        _bar(frame, camera, look.bars[0], 5 * cell, 6 * cell, base - unit * 0.02 * car.speed, base)
    for wheel in range(4):
        omega = wheels[wheel].omega
        if abs(omega) > 1e-4:
            top = base - unit * 0.01 * omega
            left, right = (7 + wheel) * cell, (8 + wheel) * cell
            _bar(frame, camera, look.bars[1 + wheel], left, right, top, base)
    top, bottom = WINDOW_HEIGHT * 36 / 40, WINDOW_HEIGHT * 38 / 40
    if abs(car.steer) > 1e-4:
        right = (20 - 10.0 * car.steer) * cell
        _bar(frame, camera, look.bars[5], 20 * cell, right, top, bottom)
    if abs(car.yaw_rate) > 1e-4:
        right = (30 - 0.8 * car.yaw_rate) * cell
        _bar(frame, camera, look.bars[6], 30 * cell, right, top, bottom)


@kernel(counted=False)
def draw(world_cars, world_wheels, agent, picture, lut, look, camera, rivals, frame, line, shares):
    """Draw what one agent sees.

    Args:
        world_cars: (agents,) car records; world_wheels: (agents, 4) WHEEL.
        picture: `Picture` of the world's track.
        lut: (TILE_CODE + MAX_TILES,) uint32, the agent's colours.
        rivals: (agents, channels) float64 hull colours of other cars.
        frame: (size * size * channels,) uint8, written.
        line: (size,) uint32 scratch for texel addresses.
        shares: (2, GRASS_BINS + 1) float64, zero at first: `light_shares` of both axes.
    """
    car = world_cars[agent]
    x, y = origin_x(car), origin_y(car)
    zoom = zoom_at(camera, car.tick)
    _ground(picture, lut, camera, zoom, x, y, car.angle, frame, line, shares)
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
                draw_any_car(frame, camera, look, zoom, right, up, turned, it.steer, wheels, colour)
    if zoom == ZOOM:
        draw_followed_car(frame, camera, look, car.steer, world_wheels[agent])
    else:
        wheels = world_wheels[agent]
        draw_any_car(frame, camera, look, zoom, 0.0, 0.0, 0.0, car.steer, wheels, look.hull)
    if camera.indicators:
        _indicators(frame, camera, look, car, world_wheels[agent])


LUT_SIZE = TILE_CODE + MAX_TILES
