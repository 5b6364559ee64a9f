"""Prefiltered palette textures: a track painted once, so that a frame is only look-ups.

A texel is a uint16 code. Codes below `TILE_CODE` are fixed colours: six pure materials and, for
every pair of them, fifteen blends; they appear wherever the area of a texel's footprint holds two
materials. Codes from `TILE_CODE` on name the road tile under the texel, so that a car that touches
a tile repaints it by writing one entry of its own look-up table.

Antialiasing is done here, in advance: each texel is the box average over `WINDOW` x `WINDOW` fine
samples, about the footprint of one observation pixel. A pyramid of coarser levels serves the zoom
of CarRacing's first second.

A level is stored as vertical strips, `STRIP` texels wide, one after the other, each from top to
bottom. A frame looks at a turned rectangle of about 200 x 150 texels. In strips it touches about 30
pages of memory; stored row by row it would touch one page for every row of texels.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import int32

from envs.racing.sim.kernel import kernel
from envs.racing.sim.track import GRASS_SIZE, PLAYFIELD, Track

GRASS, LIGHT_GRASS, ROAD, WHITE, RED, VOID = range(6)
MATERIALS = 6
BLENDS = 16
"""A pair of materials blends in sixteenths; both ends are the pure codes."""
TILE_CODE = MATERIALS + MATERIALS * (MATERIALS - 1) // 2 * (BLENDS - 1)

MATERIAL_RGB = np.array(
    [
        (102, 204, 102),
        (102, 230, 102),
        (102, 102, 102),
        (255, 255, 255),
        (255, 0, 0),
        (0, 0, 0),
    ],
    np.float64,
)
SHADE_STEP = 2.55
"""An unvisited tile of shade k is this much times k brighter than the road colour."""

DENSITY = 3.0
"""Texels per unit of the finest level."""
FINE = 2
"""Fine samples per texel and axis, used to count coverage."""
WINDOW = 4
"""Fine samples per axis in a texel's footprint."""
LEVELS = 5
MARGIN = 3.0
"""Units of texture around the track; beyond it frames are grass by formula."""
BLOCK = 16
STRIP_BITS = 4
STRIP = 1 << STRIP_BITS
"""Texels across a strip. Two rows of a strip share a cache line."""
LINE = 32
"""Texels in a cache line; levels begin at multiples of it."""
GRASS_BINS = 128
"""Bins of the grass pattern per axis where ground is computed by formula; a power of two."""
VOID_BINS = GRASS_BINS * GRASS_BINS
PERIOD = round(2 * GRASS_SIZE * DENSITY)
"""Texels after which the grass pattern of the finest level repeats; every texture begins with one
period of it (PERIOD x PERIOD), for what lies beyond the track's surroundings, and then with one
texel of every fixed code, for ground that is computed by formula."""


def pair_code(a: int, b: int, part: int) -> int:
    """Code of a texel with `part` of BLENDS sixteenths of material b, the rest material a."""
    return int(_pair_code(a, b, part))


@kernel(inline="always")
def _pair_code(a, b, part):
    if part <= 0:
        return a
    if part >= BLENDS:
        return b
    if a > b:
        a, b = b, a
        part = BLENDS - part
    pair = a * (2 * MATERIALS - a - 1) // 2 + (b - a - 1)
    return MATERIALS + pair * (BLENDS - 1) + part - 1


_GRASS_CODES = np.array([pair_code(GRASS, LIGHT_GRASS, part) for part in range(BLENDS + 1)])
"""By sixteenths of light grass. A table, because the CPU would often predict branches wrong."""


def fixed_palette() -> np.ndarray:
    """(TILE_CODE, 3) float64 RGB of the fixed codes."""
    rgb = np.zeros((TILE_CODE, 3))
    for a in range(MATERIALS):
        rgb[a] = MATERIAL_RGB[a]
        for b in range(a + 1, MATERIALS):
            for part in range(1, BLENDS):
                mix = part / BLENDS
                rgb[pair_code(a, b, part)] = MATERIAL_RGB[a] * (1 - mix) + MATERIAL_RGB[b] * mix
    return rgb


@kernel(inline="always")
def light_share(position, footprint):
    """Share of [position - footprint/2, position + footprint/2] on the even grass cells."""
    period = 2.0 * GRASS_SIZE
    low = (position - 0.5 * footprint) / period
    high = (position + 0.5 * footprint) / period
    whole_low, whole_high = np.floor(low), np.floor(high)
    # The integral of the square wave that is 1 on the first half of each period.
    area_low = whole_low * 0.5 + min(low - whole_low, 0.5)
    area_high = whole_high * 0.5 + min(high - whole_high, 0.5)
    return (area_high - area_low) / (high - low)


@kernel(counted=False)
def light_shares(shares, footprint):
    """`light_share` over one period of the grass, sampled at the middles of GRASS_BINS bins.

    shares: (GRASS_BINS + 1,) float64, written unless it already holds these values; the last
        entry is the footprint of the others.
    """
    if shares[GRASS_BINS] == footprint:
        return
    shares[GRASS_BINS] = footprint
    for i in range(GRASS_BINS):
        shares[i] = light_share((i + 0.5) * 2.0 * GRASS_SIZE / GRASS_BINS, footprint)


@kernel(inline="always")
def grass_bins(x, y):
    """Where a point lies in the grass pattern, both axes in GRASS_BINS bins; VOID_BINS beyond."""
    u, v = x / (2.0 * GRASS_SIZE), y / (2.0 * GRASS_SIZE)
    i = int32((u - np.floor(u)) * GRASS_BINS) & (GRASS_BINS - 1)
    j = int32((v - np.floor(v)) * GRASS_BINS) & (GRASS_BINS - 1)
    void = abs(x) > PLAYFIELD or abs(y) > PLAYFIELD
    return VOID_BINS if void else i * GRASS_BINS + j


@kernel(inline="always")
def grass_code(bins, share_x, share_y):
    """Code of the ground outside of the texture, for the bins of `grass_bins`.

    share_x, share_y: `light_shares` of the footprint across both axes, (GRASS_BINS,) float64.
    """
    if bins == VOID_BINS:
        return VOID
    share = share_x[bins // GRASS_BINS] * share_y[bins % GRASS_BINS]
    return _GRASS_CODES[int(share * BLENDS + 0.5)]


@kernel
def _fill_quad(fine, side, quad, x0, y0, step, code):
    """Fill a quad in a block of fine samples, scanline by scanline, by the even-odd rule."""
    crossings = np.empty(4)
    y_low = min(min(quad[0, 1], quad[1, 1]), min(quad[2, 1], quad[3, 1]))
    y_high = max(max(quad[0, 1], quad[1, 1]), max(quad[2, 1], quad[3, 1]))
    first = max(0, int(np.ceil((y_low - y0) / step)))
    last = min(side - 1, int(np.floor((y_high - y0) / step)))
    for j in range(first, last + 1):
        y = y0 + j * step
        n = 0
        for corner in range(4):
            ax, ay = quad[corner, 0], quad[corner, 1]
            bx, by = quad[(corner + 1) & 3, 0], quad[(corner + 1) & 3, 1]
            if (ay <= y) != (by <= y):
                crossings[n] = ax + (y - ay) * (bx - ax) / (by - ay)
                n += 1
        if n == 4:
            crossings.sort()
        elif n == 2 and crossings[0] > crossings[1]:
            crossings[0], crossings[1] = crossings[1], crossings[0]
        for crossing in range(0, n, 2):
            left = max(0, int(np.ceil((crossings[crossing] - x0) / step)))
            right = min(side - 1, int(np.floor((crossings[crossing + 1] - x0) / step)))
            for i in range(left, right + 1):
                fine[j, i] = code


@kernel
def _paint_level(quads, codes, origin_x, origin_y, density, pattern, texture):
    """Paint polygons (in order) over grass. texture: (H, W) uint16, written."""
    height, width = texture.shape
    texel = 1.0 / density
    # Grass first: copies of the pattern if its period is a whole number of texels, else a formula.
    foot = WINDOW * texel / FINE
    if density == DENSITY:
        first_x, first_y = round(origin_x * density), round(origin_y * density)
        for j in range(height):
            row = pattern[(first_y + j) % PERIOD]
            at = first_x % PERIOD
            i = 0
            while i < width:
                run = min(PERIOD - at, width - i)
                texture[j, i : i + run] = row[at : at + run]
                i += run
                at = 0
    else:
        across = np.empty(width)
        for i in range(width):
            across[i] = light_share(origin_x + (i + 0.5) * texel, foot)
        for j in range(height):
            along = light_share(origin_y + (j + 0.5) * texel, foot)
            for i in range(width):
                share = int(across[i] * along * BLENDS + 0.5)
                texture[j, i] = _pair_code(GRASS, LIGHT_GRASS, share)

    # Which polygons reach which block, in painting order.
    rows, columns = (height + BLOCK - 1) // BLOCK, (width + BLOCK - 1) // BLOCK
    size = BLOCK * texel
    count = np.zeros(rows * columns + 1, np.int32)
    ranges = np.empty((len(quads), 4), np.int32)
    for q in range(len(quads)):
        low_x, high_x, low_y, high_y = 1e9, -1e9, 1e9, -1e9
        for corner in range(4):
            low_x, high_x = min(low_x, quads[q, corner, 0]), max(high_x, quads[q, corner, 0])
            low_y, high_y = min(low_y, quads[q, corner, 1]), max(high_y, quads[q, corner, 1])
        ranges[q, 0] = max(0, int((low_x - foot - origin_x) / size))
        ranges[q, 1] = min(columns - 1, int((high_x + foot - origin_x) / size))
        ranges[q, 2] = max(0, int((low_y - foot - origin_y) / size))
        ranges[q, 3] = min(rows - 1, int((high_y + foot - origin_y) / size))
        for r in range(ranges[q, 2], ranges[q, 3] + 1):
            for c in range(ranges[q, 0], ranges[q, 1] + 1):
                count[r * columns + c + 1] += 1
    start = np.cumsum(count)
    cursor = start.copy()
    members = np.empty(start[-1], np.int32)
    for q in range(len(quads)):
        for r in range(ranges[q, 2], ranges[q, 3] + 1):
            for c in range(ranges[q, 0], ranges[q, 1] + 1):
                members[cursor[r * columns + c]] = q
                cursor[r * columns + c] += 1

    side = BLOCK * FINE + WINDOW
    fine = np.empty((side, side), np.uint16)
    light_x, light_y = np.empty(side, np.bool_), np.empty(side, np.bool_)
    step = texel / FINE
    lead = (WINDOW - FINE) * 0.5 - 0.5  # fine samples before a block's first texel
    tally = np.zeros(MATERIALS, np.int32)
    for r in range(rows):
        for c in range(columns):
            block = r * columns + c
            if start[block] == start[block + 1]:
                continue
            x0 = origin_x + c * size - lead * step
            y0 = origin_y + r * size - lead * step
            for i in range(side):
                light_x[i] = np.floor((x0 + i * step) / GRASS_SIZE) % 2 == 0
                light_y[i] = np.floor((y0 + i * step) / GRASS_SIZE) % 2 == 0
            for j in range(side):
                for i in range(side):
                    fine[j, i] = LIGHT_GRASS if light_x[i] and light_y[j] else GRASS
            for m in range(start[block], start[block + 1]):
                _fill_quad(fine, side, quads[members[m]], x0, y0, step, codes[members[m]])
            for j in range(min(BLOCK, height - r * BLOCK)):
                for i in range(min(BLOCK, width - c * BLOCK)):
                    y, x = j * FINE, i * FINE
                    centre = fine[y + WINDOW // 2, x + WINDOW // 2]
                    kind = min(centre, TILE_CODE)
                    whole = True
                    for sample in range(WINDOW * WINDOW):
                        if min(fine[y + sample // WINDOW, x + sample % WINDOW], TILE_CODE) != kind:
                            whole = False
                            break
                    if whole:
                        texture[r * BLOCK + j, c * BLOCK + i] = centre
                        continue
                    tally[:] = 0
                    for sample in range(WINDOW * WINDOW):
                        code = fine[y + sample // WINDOW, x + sample % WINDOW]
                        tally[ROAD if code >= TILE_CODE else code] += 1
                    # The two most common materials blend; a third one is left out.
                    top, second = -1, -1
                    for material in range(MATERIALS):
                        if top < 0 or tally[material] > tally[top]:
                            top, second = material, top
                        elif second < 0 or tally[material] > tally[second]:
                            second = material
                    part = tally[second] * BLENDS / (tally[top] + tally[second])
                    code = _pair_code(top, second, int(part + 0.5))
                    texture[r * BLOCK + j, c * BLOCK + i] = code


@cache
def _grass_pattern() -> np.ndarray:
    middles = (np.arange(PERIOD) + 0.5) * 2.0 * GRASS_SIZE / PERIOD
    shares = np.array([light_share(at, WINDOW / FINE / DENSITY) for at in middles])
    parts = np.floor(np.outer(shares, shares) * BLENDS + 0.5).astype(int)
    return _GRASS_CODES.astype(np.uint16)[parts]


@kernel
def _into_strips(rows, out):
    """Copy (H, W) texels into strips; the padding of the last strip is never read."""
    height, width = rows.shape
    for first in range(0, width, STRIP):
        run = min(STRIP, width - first)
        for j in range(height):
            at = first * height + j * STRIP
            out[at : at + run] = rows[j, first : first + run]
            out[at + run : at + STRIP] = 0


def texture_shapes(track: Track) -> list[tuple[int, int]]:
    """(height, width) of every level of the track's pyramid."""
    low, high = _bounds(track)
    shapes = []
    for level in range(LEVELS):
        width, height = np.ceil((high - low) * DENSITY / 2**level).astype(int)
        shapes.append((int(height), int(width)))
    return shapes


def _level_size(height: int, width: int) -> int:
    """Texels that a level takes in memory."""
    return _whole_lines(-(-width // STRIP) * STRIP * height)


def _whole_lines(texels: int) -> int:
    return -(-texels // LINE) * LINE


def texture_size(track: Track) -> int:
    """Texels of a track's whole texture in memory: pattern, fixed codes and pyramid."""
    fixed = _whole_lines(PERIOD * PERIOD + TILE_CODE)
    return fixed + sum(_level_size(*shape) for shape in texture_shapes(track))


def _bounds(track: Track) -> tuple[np.ndarray, np.ndarray]:
    corners = track.tiles.reshape(-1, 2)
    if len(track.kerbs):
        corners = np.concatenate([corners, track.kerbs.reshape(-1, 2)])
    # The origin lies on the texel grid of the grass pattern.
    return np.floor((corners.min(0) - MARGIN) * DENSITY) / DENSITY, corners.max(0) + MARGIN


def paint(track: Track, out: np.ndarray) -> np.ndarray:
    """Paint the pyramid of a track.

    Args:
        track: what to paint; tiles and kerbs in the order in which CarRacing draws them.
        out: (capacity,) uint16, written level after level, each in strips.

    Returns:
        (LEVELS, 6) float64 rows: offset in `out`, height, width, origin x, origin y, texels per
        unit.

    Raises:
        ValueError: `out` is too small.
    """
    sequence = np.full((len(track), 2), -1, np.int64)
    kerb_of_tile = np.full(len(track), -1)
    kerb_of_tile[track.kerb_tile] = np.arange(len(track.kerbs))
    painted = np.argsort(track.paint_order, kind="stable")
    sequence[:, 0] = painted
    sequence[:, 1] = kerb_of_tile[painted]
    quads, codes = [], []
    for tile, kerb in sequence:
        quads.append(track.tiles[tile])
        codes.append(TILE_CODE + tile)
        if kerb >= 0:
            quads.append(track.kerbs[kerb])
            codes.append(WHITE if track.kerb_white[kerb] else RED)
    quads, codes = np.stack(quads), np.array(codes, np.uint16)

    low, _ = _bounds(track)
    table = np.empty((LEVELS, 6))
    pattern = PERIOD * PERIOD
    out[:pattern].reshape(PERIOD, PERIOD)[:] = _grass_pattern()
    out[pattern : pattern + TILE_CODE] = np.arange(TILE_CODE)
    offset = _whole_lines(pattern + TILE_CODE)
    shapes = texture_shapes(track)
    rows = np.empty(shapes[0][0] * shapes[0][1], np.uint16)
    for level, (height, width) in enumerate(shapes):
        end = offset + _level_size(height, width)
        if end > len(out):
            raise ValueError(f"a texture of {end} texels does not fit into {len(out)}")
        scale = DENSITY / 2**level
        texture = rows[: height * width].reshape(height, width)
        _paint_level(quads, codes, low[0], low[1], scale, _grass_pattern(), texture)
        _into_strips(texture, out[offset:end])
        table[level] = offset, height, width, low[0], low[1], scale
        offset = end
    return table
