"""The picture of a video or of the game: the large view, and beside it a column of what the policy
sees, what it does, and how it is going."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from envs.racing.show.stage import CarStatus, World
from envs.racing.show.view import MAP_BACKGROUND_RGB, render_map

VIEW_WIDTH, WIDTH, HEIGHT = 944, 336, 720
"""Pixels of the large picture and of the column; side by side they make 1280 x 720."""

PANEL_RGB, CARD_RGB, LINE_RGB = MAP_BACKGROUND_RGB, (32, 35, 42), (52, 56, 66)
TEXT_RGB, QUIET_RGB = (240, 242, 246), (138, 144, 158)
STEER_RGB, GAS_RGB, BRAKE_RGB = (88, 164, 255), (80, 200, 120), (240, 88, 84)

MAP_SIZE = (164, 228)
"""Width and height of the map."""

_MARGIN = 24
_SIGHT = 288
_BAR_LEFT, _BAR_WIDTH, _BAR_HEIGHT = 68, 164, 10
_TRACKING = 0.8
"""Pixels between the capitals of a label."""


@dataclass(frozen=True)
class Gauge:
    """One number of the column: `value` in large type, `unit` small beside it."""

    label: str
    value: str
    unit: str = ""
    warn: bool = False


def compose(
    world: World,
    action: Sequence[float],
    *,
    caption: str,
    title: str = "POLICY INPUT",
    note: str = "",
) -> np.ndarray:
    """One whole picture: (720, 1280, 3) uint8 RGB.

    Args:
        world: what to show.
        action: the action that led here: steer [-1, 1], gas and brake [0, 1].
        caption: over the large view.
        title, note: over the pixels that the policy sees.
    """
    view = world.view(VIEW_WIDTH, HEIGHT)
    draw_badge(view, caption, 20, 20, 14)
    if world.status.ended:
        draw_badge(view, world.status.verdict, VIEW_WIDTH // 2, 110, 22, align="centre")
    overview = render_map(world.track, world.cars, MAP_SIZE)
    column = draw_column(
        world.frame, action, _gauges(world.status), overview, title=title, note=note
    )
    return np.hstack([view, column])


def _gauges(status: CarStatus) -> list[Gauge]:
    off = 100 * status.off_track_rate
    return [
        Gauge("SPEED", f"{status.speed:.1f}", "units/s"),
        Gauge("PROGRESS", f"{100 * status.progress:.1f}", "%"),
        Gauge("LAP TIME", f"{status.seconds:.2f}", "s"),
        Gauge("RETURN", f"{status.native_return:.1f}"),
        Gauge("OFF TRACK", f"{off:.1f}", "% of time", warn=status.off),
    ]


def put_text(
    picture: np.ndarray,
    text: str,
    x: int,
    y: int,
    size: int,
    rgb: Sequence[int] = TEXT_RGB,
    *,
    align: Literal["left", "centre", "right"] = "left",
    tracking: float = 0.0,
) -> int:
    """Write `text` into a picture with its baseline at y; returns the x where it ends.

    Digits all have the same width, so that running numbers stand still.

    Args:
        x: the left end, centre or right end of the text, by `align`.
        tracking: pixels added after every character.
    """
    length = text_width(text, size, tracking)
    pen = x - {"left": 0.0, "centre": length / 2, "right": length}[align]
    colour = np.asarray(rgb, np.float32)
    for character in text:
        whole, quarter = divmod(round(4 * pen), 4)
        cover, (dx, dy) = _glyph(character, size, quarter)
        left, top = whole + dx, y + dy
        x0, y0 = max(left, 0), max(top, 0)
        x1 = min(left + cover.shape[1], picture.shape[1])
        y1 = min(top + cover.shape[0], picture.shape[0])
        if x0 < x1 and y0 < y1:
            share = cover[y0 - top : y1 - top, x0 - left : x1 - left, None]
            area = picture[y0:y1, x0:x1]
            area[:] = area + (colour - area) * share + 0.5
        pen += _advance(character, size) + tracking
    return round(pen)


def text_width(text: str, size: int, tracking: float = 0.0) -> float:
    """Pixels that `put_text` takes."""
    return sum(_advance(character, size) + tracking for character in text)


@lru_cache(maxsize=16)
def _font(size: int):
    from PIL import ImageFont  # here, as training needs no pictures for people

    return ImageFont.load_default(size)  # Aileron, which comes inside Pillow


@lru_cache(maxsize=1024)
def _advance(character: str, size: int) -> float:
    if character.isdigit():
        return max(_font(size).getlength(digit) for digit in "0123456789")
    advance = _font(size).getlength(character)
    return max(advance, 0.34 * size) if character == " " else advance


@lru_cache(maxsize=4096)
def _glyph(character: str, size: int, quarter: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Coverage (H, W) float32 in 0..1 at `quarter` fourths of a pixel, and its place by the pen."""
    font = _font(size)
    start = quarter / 4 + (_advance(character, size) - font.getlength(character)) / 2
    mask, (dx, dy) = font.getmask2(character, mode="L", anchor="ls", start=(start % 1, 0))
    cover = np.array(mask, np.float32).reshape(mask.size[::-1]) / 255
    return cover, (dx + int(start), dy)


def fill_box(
    picture: np.ndarray, x: int, y: int, width: int, height: int, rgb, radius: int
) -> None:
    """Fill a rectangle with round corners, antialiased."""
    import cv2

    radius = min(radius, width // 2, height // 2)
    fine = 4
    cover = np.zeros((height * fine, width * fine), np.uint8)
    r = radius * fine
    w, h = width * fine, height * fine
    cv2.rectangle(cover, (r, 0), (w - r - 1, h - 1), 255, -1)
    cv2.rectangle(cover, (0, r), (w - 1, h - r - 1), 255, -1)
    for cx in (r, w - r - 1):
        for cy in (r, h - r - 1):
            cv2.circle(cover, (cx, cy), r, 255, -1)
    share = cv2.resize(cover, (width, height), interpolation=cv2.INTER_AREA)
    area = picture[y : y + height, x : x + width]
    area[:] = area + (np.float32(rgb) - area) * (share[..., None] / np.float32(255)) + 0.5


def draw_badge(
    picture: np.ndarray,
    text: str,
    x: int,
    y: int,
    size: int,
    *,
    align: Literal["left", "centre"] = "left",
) -> None:
    """Write on a dark translucent pill whose left end or centre is at x and whose top is at y."""
    width, height = round(text_width(text, size)) + 2 * size, 2 * size
    left = x if align == "left" else x - width // 2
    area = picture[y : y + height, left : left + width]
    solid = area.copy()
    fill_box(solid, 0, 0, area.shape[1], area.shape[0], PANEL_RGB, height // 2)
    area[:] = (area * np.float32(0.28) + solid * np.float32(0.72)).astype(np.uint8)
    put_text(picture, text, left + size, y + round(1.36 * size), size)


def draw_column(
    frame: np.ndarray,
    action: Sequence[float],
    gauges: Sequence[Gauge],
    overview: np.ndarray,
    *,
    title: str = "POLICY INPUT",
    note: str = "",
) -> np.ndarray:
    """Draw the column.

    Args:
        frame: (size, size) or (size, size, 3) uint8, the newest pixels that the policy sees.
        action: steer [-1, 1], gas and brake [0, 1].
        gauges: up to five.
        overview: (H, W, 3) uint8, the map; see `MAP_SIZE`.
        note: small type beside the title.

    Returns:
        (HEIGHT, WIDTH, 3) uint8 RGB.
    """
    picture = _background(title, note).copy()
    _sight(picture, frame)
    steer, gas, brake = (float(value) for value in action)
    _bar(picture, 373, 0.5, 0.5 + steer / 2, STEER_RGB, f"{steer:+.2f}")
    _bar(picture, 399, 0.0, gas, GAS_RGB, f"{gas:.2f}")
    _bar(picture, 425, 0.0, brake, BRAKE_RGB, f"{brake:.2f}")
    for row, gauge in enumerate(gauges):
        y = 478 + 47 * row
        put_text(picture, gauge.label, _MARGIN, y, 11, QUIET_RGB, tracking=_TRACKING)
        rgb = BRAKE_RGB if gauge.warn else TEXT_RGB
        end = put_text(picture, gauge.value, _MARGIN, y + 24, 23, rgb)
        put_text(picture, gauge.unit, end + 5, y + 24, 13, QUIET_RGB)
    top, left = HEIGHT - _MARGIN - MAP_SIZE[1], WIDTH - _MARGIN - MAP_SIZE[0]
    picture[top : top + MAP_SIZE[1], left : left + MAP_SIZE[0]] = overview
    return picture


@lru_cache(maxsize=8)
def _background(title: str, note: str) -> np.ndarray:
    picture = np.full((HEIGHT, WIDTH, 3), PANEL_RGB, np.uint8)
    put_text(picture, title, _MARGIN, 26, 11, QUIET_RGB, tracking=_TRACKING)
    put_text(picture, note, WIDTH - _MARGIN, 26, 12, QUIET_RGB, align="right")
    for name, y in (("Steer", 373), ("Gas", 399), ("Brake", 425)):
        put_text(picture, name, _MARGIN, y + 10, 13, QUIET_RGB)
        fill_box(picture, _BAR_LEFT, y, _BAR_WIDTH, _BAR_HEIGHT, CARD_RGB, 5)
    picture[452, _MARGIN:-_MARGIN] = LINE_RGB
    picture[350, _MARGIN:-_MARGIN] = LINE_RGB
    return picture


def _sight(picture: np.ndarray, frame: np.ndarray) -> None:
    scale = _SIGHT // len(frame)
    pixels = frame if frame.ndim == 3 else np.repeat(frame[..., None], 3, 2)
    pixels = pixels.repeat(scale, 0).repeat(scale, 1)
    side = len(pixels)
    top, left = 38 + (_SIGHT - side) // 2, (WIDTH - side) // 2
    picture[top - 1 : top + side + 1, left - 1 : left + side + 1] = LINE_RGB
    picture[top : top + side, left : left + side] = pixels


def _bar(picture: np.ndarray, y: int, start: float, end: float, rgb, text: str) -> None:
    low, high = sorted((start, end))
    left = _BAR_LEFT + round(low * _BAR_WIDTH)
    width = _BAR_LEFT + round(high * _BAR_WIDTH) - left
    if width > 0:
        fill_box(picture, left, y, width, _BAR_HEIGHT, rgb, 5 if start == 0 else 2)
    if start:
        middle = _BAR_LEFT + round(start * _BAR_WIDTH)
        picture[y - 2 : y + _BAR_HEIGHT + 2, middle - 1 : middle + 1] = QUIET_RGB
    put_text(picture, text, WIDTH - _MARGIN, y + 10, 13, TEXT_RGB, align="right")
