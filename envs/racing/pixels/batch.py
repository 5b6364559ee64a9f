"""Draws a batch of worlds: holds every agent's colours and turns states into frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.racing.config import EnvConfig
from envs.racing.pixels.camera import make_camera
from envs.racing.pixels.painted_track import PICTURE, PaintedTrack, open_picture
from envs.racing.pixels.render import LUMINANCE, LUT_SIZE, draw, fresh_lut, make_look
from envs.racing.pixels.texture import GRASS_BINS, TILE_CODE
from envs.racing.sim.kernel import kernel


@kernel(inline="always")
def repaint(lut, tiles, count, look):
    """Give the first `count` of `tiles` the colour of driven road. lut: (LUT_SIZE,) uint32."""
    for i in range(count):
        lut[TILE_CODE + tiles[i]] = look.road_value


@kernel
def _colour(worlds, pictures, contacted, luts, look):
    for w in worlds:
        picture = open_picture(pictures[w])
        for a in range(luts.shape[1]):
            fresh_lut(luts[w, a], picture.shade, look)
            for tile in range(len(picture.shade)):
                if contacted[w, a, tile]:
                    luts[w, a, TILE_CODE + tile] = look.road_value


@kernel
def _draw(worlds, cars, wheels, pictures, luts, look, camera, rivals, frames, previous):
    """frames: (worlds * agents, stack * size * size * channels) uint8, the newest frame last.

    `previous` holds the stacks of the step before (often the same memory), or has no rows, which
    fills the whole stack with the new frame.
    """
    agents = cars.shape[1]
    size = camera.size * camera.size * camera.channels
    stack = camera.stack
    line, shares = np.empty(camera.size, np.uint32), np.zeros((2, GRASS_BINS + 1))
    for w in worlds:
        picture = open_picture(pictures[w])
        for a in range(agents):
            row = w * agents + a
            frame = frames[row]
            if stack > 1 and len(previous):
                frame[: size * (stack - 1)] = previous[row, size:]
            newest = frame[size * (stack - 1) :]
            draw(
                cars[w],
                wheels[w],
                a,
                picture,
                luts[w, a],
                look,
                camera,
                rivals,
                newest,
                line,
                shares,
            )
            if stack > 1 and not len(previous):
                for i in range(stack - 1):
                    frame[i * size : (i + 1) * size] = newest


class BatchRenderer:
    """Cameras, colours and frames of `worlds` x `agents` cars.

    Attributes:
        camera: `Camera`; look: `Look`.
        luts: (worlds, agents, LUT_SIZE) uint32, every agent's colours: the tiles that its own car
            has touched are darker.
    """

    def __init__(self, worlds: int, config: EnvConfig) -> None:
        self.camera = make_camera(
            size=config.size,
            grey=config.grey,
            stack=config.frame_stack,
            indicators=config.indicators,
            zoom_in=config.preset != "race",
        )
        self.look = make_look(self.camera)
        self.luts = np.zeros((worlds, config.num_agents, LUT_SIZE), np.uint32)
        self.rivals = rival_colours(config.num_agents, self.camera.channels)
        self._pictures = np.zeros(worlds, PICTURE)

    def set_tracks(
        self, worlds: Sequence[int], tracks: Sequence[PaintedTrack], contacted: np.ndarray
    ) -> None:
        """Show these tracks in these worlds.

        Args:
            contacted: (all worlds, agents, MAX_TILES) uint8, the tiles that each car has touched.
        """
        for w, track in zip(worlds, tracks, strict=True):
            self._pictures[w] = track.picture
        worlds = np.asarray(worlds, np.int64)
        _colour(worlds, self._pictures, contacted, self.luts, self.look)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_pictures"]  # addresses of this process; `set_tracks` writes them anew
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pictures = np.zeros(len(self.luts), PICTURE)

    def draw(
        self,
        worlds: np.ndarray,
        cars: np.ndarray,
        wheels: np.ndarray,
        frames: np.ndarray,
        previous: np.ndarray,
    ) -> None:
        """Draw what every agent of some worlds sees, without the interpreter's lock.

        Args:
            worlds: (n,) int64.
            cars, wheels: of all worlds, see `Engine`.
            frames: (worlds * agents, stack * size * size * channels) uint8, written.
            previous: frames of the step before, from which a stack is continued; with no rows, the
                stacks start anew.
        """
        _draw(
            worlds,
            cars,
            wheels,
            self._pictures,
            self.luts,
            self.look,
            self.camera,
            self.rivals,
            frames,
            previous,
        )


def rival_colours(agents: int, channels: int) -> np.ndarray:
    """(agents, channels) hull colours by which others see each car."""
    hue = np.arange(agents) * 0.61803 + 0.6  # golden-ratio steps keep neighbours apart
    rgb = 0.5 + 0.5 * np.cos(2 * np.pi * (hue[:, None] + np.array([0.0, 1 / 3, 2 / 3])))
    values = 30 + 190 * rgb
    return values @ LUMINANCE[:, None] if channels == 1 else values
