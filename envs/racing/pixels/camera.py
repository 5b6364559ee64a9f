"""The camera of CarRacing-v3: a 1000 x 800 window that follows the car, shrunk to a square."""

from __future__ import annotations

from collections import namedtuple

from envs.racing.sim.dynamics import DT
from envs.racing.sim.kernel import kernel

WINDOW_WIDTH, WINDOW_HEIGHT = 1000.0, 800.0
ZOOM = 16.2
"""Window pixels per unit; the first second of CarRacing blends from START_ZOOM."""
START_ZOOM = 0.6
HUD_ROWS = 12 / 96
"""Share of the picture's height that the indicators take."""

DARKEN = 2
"""CarRacing's shrinking makes every channel that is not black darker by this much."""

Camera = namedtuple(
    "Camera",
    "size rows channels stack across along centre_row centre_column zoom_in indicators",
)
"""across, along: units per pixel at full zoom; rows: picture rows above the indicators."""


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


@kernel(counted=False)
def zoom_at(camera, tick):
    """Window pixels per unit after `tick` ticks since the reset."""
    t = (tick + 1) * DT  # a reset makes one step
    if not camera.zoom_in or t >= 1.0:
        return ZOOM
    return START_ZOOM * (1.0 - t) + ZOOM * t
