"""Pictures for people: the same world as in the observations, drawn for quality instead of speed.

The car heads up, as in the policy's camera, but the view is wider, antialiased and has the same
scale in both directions. No policy sees these pictures, so colours and details differ. The
positions of road, kerbs, grass squares and cars are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from envs.racing.sim.dynamics import COM_Y, HULL, WHEEL_HALF_WIDTH, WHEEL_RADIUS, WHEEL_XY
from envs.racing.sim.track import GRASS_SIZE, PLAYFIELD, Track

UNITS_ACROSS = 58.0
"""World units across the picture's smaller side, unless a zoom is given."""
CAR_HEIGHT = 0.28
"""Height of the followed car above the lower edge, as a share of the picture's height."""

GRASS_RGB, LIGHT_GRASS_RGB, VERGE_RGB = (94, 163, 84), (103, 176, 90), (108, 150, 80)
VOID_RGB = (44, 56, 50)
ROAD_RGB, DRIVEN_RGB, SHADE_STEP = (96, 97, 102), (88, 89, 95), 3
EDGE_RGB = (226, 226, 222)
KERB_RED_RGB, KERB_WHITE_RGB = (206, 52, 48), (240, 240, 236)
LINE_WHITE_RGB, LINE_BLACK_RGB = (236, 236, 232), (40, 40, 44)
TYRE_RGB, TREAD_RGB, MARK_RGB, ARM_RGB = (26, 26, 30), (50, 50, 56), (104, 104, 110), (38, 38, 42)
COCKPIT_RGB, HELMET_RGB = (24, 24, 28), (250, 206, 60)
CAR_RGB = (
    (212, 24, 28),
    (36, 104, 216),
    (244, 196, 32),
    (52, 176, 132),
    (236, 120, 32),
    (146, 78, 204),
    (236, 236, 240),
    (52, 56, 66),
    (228, 104, 168),
    (96, 196, 232),
    (150, 198, 60),
    (124, 80, 52),
    (20, 128, 128),
    (176, 152, 220),
    (250, 228, 150),
    (120, 24, 60),
)
"""Body colours by agent; the first is CarRacing's red."""
MAP_ROAD_RGB, MAP_RIM_RGB, MAP_BACKGROUND_RGB = (62, 66, 76), (128, 134, 148), (20, 22, 27)

_SHIFT = 4
_FINE = 1 << _SHIFT
"""cv2 takes coordinates as integers, here in sixteenths of a pixel."""
_CAR_SAMPLES, _CAR_REACH = 4, 4.0
_SHADOW = np.array([0.35, -0.45])
"""Direction of shadows, in world units; it does not turn with the camera."""
_EDGE_WIDTH, _VERGE_WIDTH = 0.38, 0.9
_LINE_ROWS, _LINE_SQUARES, _LINE_SQUARE = 2, 16, 0.85
_GRAIN = ((0.10, 1.0), (0.35, 1.3), (2.0, 1.6))
"""Noise of the grass: size in units and relative strength."""

_NOSE = np.array([(-0.09, 2.4), (0.09, 2.4), (0.13, 0.5), (-0.13, 0.5)])
_COCKPIT = np.array(
    [(-0.26, 0.55), (0.26, 0.55), (0.42, -0.05), (0.36, -0.55), (-0.36, -0.55), (-0.42, -0.05)]
)
_HELMET, _HELMET_RADIUS = np.array([(0.0, -0.15)]), 0.30
_ENGINE = np.array([(-0.22, -0.65), (0.22, -0.65), (0.12, -1.75), (-0.12, -1.75)])
_FLAP = np.array([(-1.0, -2.15), (1.0, -2.15), (1.0, -2.0), (-1.0, -2.0)])

Screen = Callable[[np.ndarray], np.ndarray]
"""Maps (..., 2) world units to (..., 2) int32 sixteenths of a pixel, whole at pixel centres."""


def render_view(
    track: Track,
    cars: np.ndarray,
    wheels: np.ndarray,
    *,
    agent: int = 0,
    width: int = 600,
    height: int = 600,
    zoom: float | None = None,
    painted: np.ndarray | None = None,
) -> np.ndarray:
    """Draw one world from behind one of its cars, heading up.

    Args:
        track: the track.
        cars: (agents,) CAR records; wheels: (agents, 4) WHEEL records.
        agent: number of the car that the camera follows.
        width, height: size of the picture in pixels.
        zoom: pixels per unit; by default the smaller side shows UNITS_ACROSS units.
        painted: (tiles or more,) truth values: whether the followed car has touched a tile. Touched
            tiles are drawn a little darker.

    Returns:
        (height, width, 3) uint8 RGB.
    """
    zoom = zoom or min(width, height) / UNITS_ACROSS
    car = cars[agent]
    place = car_position(car)
    centre = np.array([0.5 * width, (1 - CAR_HEIGHT) * height])
    sin, cos = math.sin(car["angle"]), math.cos(car["angle"])
    to_screen = zoom * np.array([[cos, sin], [sin, -cos]])
    reach = math.hypot(max(centre[0], width - centre[0]), max(centre[1], height - centre[1])) / zoom

    def screen(points: np.ndarray) -> np.ndarray:
        return np.rint(((points - place) @ to_screen.T + centre - 0.5) * _FINE).astype(np.int32)

    picture = _ground(place, to_screen, centre, (width, height), zoom, reach)
    if np.abs(place).max() + reach > PLAYFIELD:
        picture = _with_void(picture, screen)
    _draw_road(picture, track, screen, place, reach, zoom, painted)
    order = [*(other for other in range(len(cars)) if other != agent), agent]
    for other in order:
        offset = car_position(cars[other]) - place
        if np.hypot(*offset) < reach + _CAR_REACH:
            rgb = CAR_RGB[other % len(CAR_RGB)]
            pixel = offset @ to_screen.T + centre
            _draw_car(picture, pixel, zoom, cars[other], wheels[other], rgb, float(car["angle"]))
    return picture


def render_map(
    track: Track,
    cars: np.ndarray,
    size: tuple[int, int] | int,
    *,
    agent: int = 0,
    background: Sequence[int] = MAP_BACKGROUND_RGB,
) -> np.ndarray:
    """Draw the whole circuit, north up, with the start line and every car as a dot.

    Args:
        track: the track.
        cars: (agents,) CAR records.
        size: (width, height) in pixels, or one number for both.
        agent: number of the car whose dot has a bright rim.
        background: RGB colour around the road.

    Returns:
        (height, width, 3) uint8 RGB.
    """
    import cv2  # here, because training does not need it

    width, height = (size, size) if isinstance(size, int) else size
    line = track.centreline[:, :2]
    low, high = line.min(0), line.max(0)
    scale = ((np.array([width, height]) - 18) / (high - low)).min()

    def screen(points: np.ndarray) -> np.ndarray:
        at = (points - (low + high) / 2) * (scale, -scale) + (width / 2 - 0.5, height / 2 - 0.5)
        return np.rint(at * _FINE).astype(np.int32)

    picture = np.full((height, width, 3), background, np.uint8)
    road = screen(line[::2])
    cv2.polylines(picture, [road], True, MAP_RIM_RGB, 5, cv2.LINE_AA, _SHIFT)
    cv2.polylines(picture, [road], True, MAP_ROAD_RGB, 3, cv2.LINE_AA, _SHIFT)
    x, y, ahead_x, ahead_y = track.centreline[0, :4]
    start = screen((x, y) + np.array([(-ahead_y, ahead_x), (ahead_y, -ahead_x)]) * 5.0 / scale)
    cv2.polylines(picture, [start], False, LINE_WHITE_RGB, 2, cv2.LINE_AA, _SHIFT)
    order = [*(other for other in range(len(cars)) if other != agent), agent]
    for other in order:
        at = _point(screen(car_position(cars[other])[None]))
        if other == agent:
            cv2.circle(picture, at, 6 * _FINE, (250, 250, 250), -1, cv2.LINE_AA, _SHIFT)
        rgb = CAR_RGB[other % len(CAR_RGB)]
        cv2.circle(picture, at, round(4.4 * _FINE), rgb, -1, cv2.LINE_AA, _SHIFT)
    return picture


def car_position(car: np.void) -> np.ndarray:
    """(2,) float64 world position of the hull's origin of a CAR record."""
    sin, cos = math.sin(car["angle"]), math.cos(car["angle"])
    return np.array([car["com_x"] + sin * COM_Y, car["com_y"] - cos * COM_Y])


@lru_cache(maxsize=4)
def _grass(density: float, side: float) -> tuple[np.ndarray, float]:
    """A square of grass, `side` units wide: a whole number of periods of CarRacing's pattern.

    Returns:
        (pixels, pixels, 4) uint8 with a corner of the pattern at its origin, and its true density,
        which is close to `density` pixels per unit. The fourth channel is for speed: cv2 warps four
        channels in half the time of three.
    """
    import cv2

    period = round(2 * GRASS_SIZE * density)

    def blurred(image: np.ndarray, units: float) -> np.ndarray:
        margin = int(4 * units * density) + 1
        image = cv2.copyMakeBorder(image, margin, margin, margin, margin, cv2.BORDER_WRAP)
        return cv2.GaussianBlur(image, (0, 0), units * density)[margin:-margin, margin:-margin]

    rng = np.random.default_rng(7)
    light = np.zeros((period, period), np.float32)
    light[: period // 2, : period // 2] = 1.0
    noise = np.zeros((period, period), np.float32)
    for units, strength in _GRAIN:
        smooth = blurred(rng.standard_normal((period, period)).astype(np.float32), units)
        noise += strength * smooth / smooth.std()
    base, bright = np.float32(GRASS_RGB), np.float32(LIGHT_GRASS_RGB)
    tile = base + blurred(light, 0.06)[..., None] * (bright - base)
    tile += noise[..., None] * np.float32([1.6, 2.2, 1.4])
    count = round(side / (2 * GRASS_SIZE))
    rgba = cv2.cvtColor(np.clip(tile, 0, 255).astype(np.uint8), cv2.COLOR_RGB2RGBA)
    return np.tile(rgba, (count, count, 1)), period / (2 * GRASS_SIZE)


def _ground(place, to_screen, centre, size, zoom, reach) -> np.ndarray:
    import cv2

    period = 2 * GRASS_SIZE
    texture, density = _grass(min(zoom, 12.0), math.ceil(2 * reach / period + 1) * period)
    # World position of the texture's first corner, outside of the visible part.
    corner = np.floor((place - reach) / period) * period
    shift = (corner + 0.5 / density - place) @ to_screen.T + centre - 0.5
    affine = np.column_stack([to_screen / density, shift])
    rgba = cv2.warpAffine(texture, affine, size, flags=cv2.INTER_LINEAR)
    return cv2.cvtColor(rgba, cv2.COLOR_RGBA2RGB)


def _with_void(picture: np.ndarray, screen: Screen) -> np.ndarray:
    """The picture with everything beyond the playfield dark."""
    import cv2

    field = screen(np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * PLAYFIELD)
    outside = np.full(picture.shape[:2], 255, np.uint8)
    cv2.fillPoly(outside, [field], 0, cv2.LINE_AA, _SHIFT)
    share = outside[..., None] / np.float32(255)
    return (picture * (1 - share) + np.float32(VOID_RGB) * share).astype(np.uint8)


def _draw_road(picture, track, screen, place, reach, zoom, painted) -> None:
    import cv2

    near = np.hypot(*(track.points[:, 1:] - place).T) < reach + 2 * track.half_width
    visible = np.flatnonzero(near)
    if not len(visible):
        return
    tiles = screen(track.tiles[visible])
    edges = []
    for run in np.split(tiles, np.flatnonzero(np.diff(visible) != 1) + 1):
        for here, back in ((0, 3), (1, 2)):
            edges.append(np.concatenate([run[:1, back], run[:, here]]))
    verge = max(1, round((2 * _VERGE_WIDTH + _EDGE_WIDTH) * zoom))
    cv2.polylines(picture, edges, False, VERGE_RGB, verge, cv2.LINE_AA, _SHIFT)
    # Filled without antialiasing, which would leave seams; the edge lines cover the jagged rim.
    shades = [tuple(c + SHADE_STEP * shade for c in ROAD_RGB) for shade in range(3)]
    for tile, quad in zip(visible, tiles, strict=True):
        visited = painted is not None and painted[tile]
        rgb = DRIVEN_RGB if visited else shades[track.shade[tile]]
        cv2.fillConvexPoly(picture, quad, rgb, cv2.LINE_8, _SHIFT)
    for stone in np.flatnonzero(near[track.kerb_tile]):
        rgb = KERB_WHITE_RGB if track.kerb_white[stone] else KERB_RED_RGB
        cv2.fillConvexPoly(picture, screen(track.kerbs[stone]), rgb, cv2.LINE_AA, _SHIFT)
    thickness = max(1, round(_EDGE_WIDTH * zoom))
    cv2.polylines(picture, edges, False, EDGE_RGB, thickness, cv2.LINE_AA, _SHIFT)
    if near[0]:
        _draw_start(picture, track, screen)


def _draw_start(picture: np.ndarray, track: Track, screen: Screen) -> None:
    import cv2

    beta, x, y = track.points[0]
    side = 2 * (track.half_width - _EDGE_WIDTH / 2) / _LINE_SQUARES
    across = side * np.array([math.cos(beta), math.sin(beta)])
    ahead = _LINE_SQUARE * np.array([-math.sin(beta), math.cos(beta)])
    square = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])
    for row in range(_LINE_ROWS):
        for column in range(_LINE_SQUARES):
            at = square + np.array([column - _LINE_SQUARES / 2, row - _LINE_ROWS / 2])
            quad = screen((x, y) + at[:, :1] * across + at[:, 1:] * ahead)
            rgb = LINE_BLACK_RGB if (row + column) % 2 else LINE_WHITE_RGB
            cv2.fillConvexPoly(picture, quad, rgb, cv2.LINE_AA, _SHIFT)


def _draw_car(picture, pixel, zoom, car, wheels, rgb, camera_angle) -> None:
    """Draw one car around `pixel`, on a supersampled copy of that part of the picture."""
    import cv2

    margin = math.ceil(_CAR_REACH * zoom)
    left, top = math.floor(pixel[0]) - margin, math.floor(pixel[1]) - margin
    x0, x1 = max(left, 0), min(left + 2 * margin + 1, picture.shape[1])
    y0, y1 = max(top, 0), min(top + 2 * margin + 1, picture.shape[0])
    if x0 >= x1 or y0 >= y1:
        return
    size = ((x1 - x0) * _CAR_SAMPLES, (y1 - y0) * _CAR_SAMPLES)
    patch = cv2.resize(picture[y0:y1, x0:x1], size, interpolation=cv2.INTER_NEAREST)
    scale = _CAR_SAMPLES * zoom
    origin = (pixel - (x0, y0)) * _CAR_SAMPLES - 0.5
    forward = scale * _rotation(float(car["angle"]) - camera_angle) * ((1,), (-1,))

    def place(points: np.ndarray, offset: np.ndarray | float = 0.0) -> np.ndarray:
        return np.rint((points @ forward.T + origin + offset) * _FINE).astype(np.int32)

    def fill(points: np.ndarray, colour: Sequence[int]) -> None:
        cv2.fillPoly(patch, [place(points)], colour, cv2.LINE_AA, _SHIFT)

    def on_wheel(wheel: int, box: np.ndarray) -> np.ndarray:
        return box @ _rotation(float(car["steer"]) if wheel < 2 else 0.0).T + WHEEL_XY[wheel]

    tyre = _box(0.0, WHEEL_HALF_WIDTH, WHEEL_RADIUS)
    sun = scale * (_rotation(-camera_angle) @ _SHADOW) * (1, -1)
    shade = np.zeros(patch.shape[:2], np.uint8)
    for polygon in (*HULL, *(on_wheel(wheel, tyre) for wheel in range(4))):
        cv2.fillPoly(shade, [place(polygon, sun)], 110, cv2.LINE_AA, _SHIFT)
    shade = cv2.bitwise_not(cv2.GaussianBlur(shade, (0, 0), 0.12 * scale))
    patch = cv2.multiply(patch, cv2.merge([shade] * 3), scale=1 / 255)

    for wheel in (0, 2):
        fill(_box(WHEEL_XY[wheel, 1], -WHEEL_XY[wheel, 0], 0.07), ARM_RGB)
    for wheel in range(4):
        fill(on_wheel(wheel, tyre), TYRE_RGB)
        fill(on_wheel(wheel, tyre * (0.55, 0.9)), TREAD_RGB)
        phase = float(wheels[wheel]["phase"])
        if math.sin(phase) > 0:  # a mark on the tread shows the wheel turning
            ends = WHEEL_RADIUS * math.cos(phase + 0.55), WHEEL_RADIUS * math.cos(phase - 0.55)
            mark = _box(sum(ends) / 2, 0.8 * WHEEL_HALF_WIDTH, abs(ends[1] - ends[0]) / 2)
            fill(on_wheel(wheel, mark), MARK_RGB)
    for polygon in (HULL[0], HULL[3]):
        fill(polygon, _mixed(rgb, 0, 0.25))
    for polygon in HULL[1:3]:
        fill(polygon, rgb)
    fill(_NOSE, _mixed(rgb, 255, 0.35))
    fill(_ENGINE, _mixed(rgb, 0, 0.35))
    fill(_FLAP, _mixed(rgb, 0, 0.5))
    fill(_COCKPIT, COCKPIT_RGB)
    radius = round(_HELMET_RADIUS * scale * _FINE)
    cv2.circle(patch, _point(place(_HELMET)), radius, HELMET_RGB, -1, cv2.LINE_AA, _SHIFT)
    picture[y0:y1, x0:x1] = cv2.resize(patch, (x1 - x0, y1 - y0), interpolation=cv2.INTER_AREA)


def _rotation(angle: float) -> np.ndarray:
    sin, cos = math.sin(angle), math.cos(angle)
    return np.array([[cos, -sin], [sin, cos]])


def _box(y: float, half_width: float, half_length: float) -> np.ndarray:
    """Corners of a box on the y axis."""
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)])
    return signs * (half_width, half_length) + (0.0, y)


def _mixed(rgb: Sequence[int], other: int, share: float) -> tuple[int, ...]:
    return tuple(round(value + (other - value) * share) for value in rgb)


def _point(pixels: np.ndarray) -> tuple[int, int]:
    return int(pixels[0, 0]), int(pixels[0, 1])
