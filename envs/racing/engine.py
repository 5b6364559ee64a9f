"""The engine: worlds x agents stepped and drawn by kernels that hold no lock.

`Engine` knows nothing of Gymnasium, of episodes that follow each other or of where tracks come
from: it is given painted tracks, steps them, and draws into a buffer that the caller owns. Worlds
are split over threads in slices; no world reads another, so the result is the same for any number
of threads and of worlds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise
from typing import Any

import numpy as np

from common.errors import UserError
from envs.racing.config import EnvConfig, RewardConfig
from envs.racing.pixels.camera import make_camera
from envs.racing.pixels.render import LUT_SIZE, draw, fresh_lut, make_look
from envs.racing.pixels.texture import TILE_CODE
from envs.racing.score.rewards import TERMS, Rules, coefficients, corner_angle, settle
from envs.racing.sim.dynamics import CAR, WHEEL, drive, move, origin_x, origin_y, place, roll, touch
from envs.racing.sim.kernel import kernel
from envs.racing.sim.pool import HANDLE, PaintedTrack, open_track
from envs.racing.sim.progress import foot, pass_tiles, update
from envs.racing.sim.schedule import GRID, Start
from envs.racing.sim.track import MAX_TILES

TELEMETRY = (
    "speed",
    "progress",
    "progress_delta",
    "steer",
    "yaw_rate",
    "corner_angle",
    "off_track",
    "lateral_offset",
    "x",
    "y",
    "heading",
)
GRID_ROWS, GRID_SIDE = 7.0, 3.3
"""Starting grid of several cars: units between rows, and offset to the side."""


@kernel
def _tick(cars, wheels, a, track, visited, painted, lut, look, k, rules, grips, action, terms):
    car, four = cars[a], wheels[a]
    speed_before, arc_before = car.speed, car.arc
    drive(car, four, action[0], action[1], action[2], grips[0], grips[1])
    touched = touch(car, four, track, visited, painted, lut, TILE_CODE, look.road_value)
    move(car, action[0])
    x, y = origin_x(car), origin_y(car)
    missed = car.tiles_missed
    update(car, track, x, y, touched)
    pass_tiles(car, track, visited)
    missed = car.tiles_missed - missed
    settle(
        car,
        four,
        track,
        k,
        rules,
        action[0],
        action[2],
        speed_before,
        arc_before,
        missed,
        x,
        y,
        terms,
    )


@kernel
def _step(
    first,
    last,
    cars,
    wheels,
    handles,
    visited,
    painted,
    luts,
    look,
    k,
    rules,
    grips,
    repeat,
    actions,
    rewards,
    terms,
):
    for w in range(first, last):
        track = open_track(handles[w])
        for a in range(cars.shape[1]):
            cars[w, a].arc_delta = 0.0
            terms[w, a, :] = 0.0
        for _ in range(repeat):
            for a in range(cars.shape[1]):
                if cars[w, a].active:
                    _tick(
                        cars[w],
                        wheels[w],
                        a,
                        track,
                        visited[w, a],
                        painted[w, a],
                        luts[w, a],
                        look,
                        k,
                        rules,
                        grips,
                        actions[w, a],
                        terms[w, a],
                    )
                    if cars[w, a].terminated or cars[w, a].truncated:
                        cars[w, a].active = 0
        for a in range(cars.shape[1]):
            total = 0.0
            for i in range(terms.shape[2]):
                total += terms[w, a, i]
            rewards[w, a] = total


@kernel
def _reset(which, starts, cars, wheels, handles, visited, painted, luts, look):
    for i in range(len(which)):
        w = which[i]
        lap, offset, turned, speed = starts[i, 0], starts[i, 1], starts[i, 2], starts[i, 3]
        track = open_track(handles[w])
        for a in range(cars.shape[1]):
            car, four = cars[w, a], wheels[w, a]
            visited[w, a, :] = 0
            painted[w, a, :] = 0
            fresh_lut(luts[w, a], track.shade, look)
            # The first car starts where CarRacing's does, the others behind it, side by side.
            back = int(round((a + 1) // 2 * GRID_ROWS / track.length * track.count))
            at = (int(lap * track.count) + track.count - back) % track.count
            side = 0.0 if a == 0 else (GRID_SIDE if a % 2 else -GRID_SIDE)
            side += offset * track.half_width
            angle = track.points[at, 0]
            x = track.points[at, 1] + side * math.cos(angle)
            y = track.points[at, 2] + side * math.sin(angle)
            car.first_tile = at
            start = track.tile_s[at]
            car.s, car.lateral, car.curvature = foot(
                track.centreline, track.samples, track.length, start, x, y
            )
            car.s -= track.length * math.floor(car.s / track.length)
            car.active = 1
            # The reference's reset makes one step without controls, in which only contacts happen.
            place(car, x, y, angle + turned)
            roll(car, four, speed)
            touch(
                car,
                four,
                track,
                visited[w, a],
                painted[w, a],
                luts[w, a],
                TILE_CODE,
                look.road_value,
            )


@kernel
def _draw(which, cars, wheels, handles, luts, look, camera, rivals, frames, stack, previous):
    """frames: (worlds * agents, stack * size * size * channels) uint8.

    The newest frame is drawn last in the stack; `previous` holds the stacks of the step before
    (often the same memory), or has no rows, which fills the whole stack with the new frame.
    """
    agents = cars.shape[1]
    size = camera.size * camera.size * camera.channels
    line = np.empty(camera.size, np.uint32)
    for w in which:
        track = open_track(handles[w])
        for a in range(agents):
            row = w * agents + a
            frame = frames[row]
            if stack > 1 and len(previous):
                frame[: size * (stack - 1)] = previous[row, size:]
            begin = size * (stack - 1)
            newest = frame[begin:]
            draw(cars[w], wheels[w], a, track, luts[w, a], look, camera, rivals, newest, line)
            if stack > 1 and not len(previous):
                for i in range(stack - 1):
                    frame[i * size : (i + 1) * size] = newest


@kernel
def _telemetry(cars, wheels, handles, out):
    """out: (worlds, agents, len(TELEMETRY)) float32."""
    for w in range(cars.shape[0]):
        track = open_track(handles[w])
        for a in range(cars.shape[1]):
            car, row = cars[w, a], out[w, a]
            off = 4 - (
                wheels[w, a, 0].on_road
                + wheels[w, a, 1].on_road
                + wheels[w, a, 2].on_road
                + wheels[w, a, 3].on_road
            )
            row[0] = car.speed
            row[1] = car.arc / track.length
            row[2] = car.arc_delta
            row[3] = car.steer
            row[4] = car.yaw_rate
            row[5] = corner_angle(track, car.s)
            row[6] = 0.25 * off
            row[7] = car.lateral
            row[8] = origin_x(car)
            row[9] = origin_y(car)
            row[10] = car.angle


class Engine:
    """State and kernels of `worlds` x `agents` cars.

    Attributes:
        cars: (worlds, agents) CAR records; wheels: (worlds, agents, 4) WHEEL records.
        rewards: (worlds, agents) float64 and terms: (worlds, agents, len(TERMS)) float64 of the
            last step.

    Raises:
        UserError: a preset that is not this engine's.
    """

    def __init__(
        self, worlds: int, config: EnvConfig, reward: RewardConfig, *, end_at_playfield: bool = True
    ) -> None:
        if config.preset == "gymnasium_carracing":
            raise UserError(
                "preset gymnasium_carracing is Gymnasium's own simulator, not this engine: "
                "use envs.racing.reference.vector_env.ReferenceVectorEnv, or preset=carracing"
            )
        agents = config.num_agents
        self.config = config
        race = config.preset == "race"
        self.camera = make_camera(
            size=config.size,
            grey=config.grey,
            stack=config.frame_stack,
            indicators=config.indicators,
            zoom_in=not race,
        )
        self.look = make_look(self.camera)
        self.cars = np.zeros((worlds, agents), CAR)
        self.wheels = np.zeros((worlds, agents, 4), WHEEL)
        self.rewards = np.zeros((worlds, agents))
        self.terms = np.zeros((worlds, agents, len(TERMS)))
        self.tracks: list[PaintedTrack | None] = [None] * worlds
        self._handles = np.zeros(worlds, HANDLE)
        self._visited = np.zeros((worlds, agents, MAX_TILES), np.uint8)
        self._painted = np.zeros((worlds, agents, MAX_TILES), np.uint8)
        self._luts = np.zeros((worlds, agents, LUT_SIZE), np.uint32)
        self._coefficients = coefficients(reward)
        self._rules = Rules(
            race, float(config.laps), config.max_ticks, end_at_playfield, config.end_at_finish
        )
        self._grips = np.array([config.road_friction, config.grass_friction])
        self._rivals = _rival_colours(agents, self.camera.channels)
        self._telemetry = np.zeros((worlds, agents, len(TELEMETRY)), np.float32)
        threads = min(config.threads, worlds)
        edges = np.linspace(0, worlds, threads + 1).astype(int)
        self._slices = [(int(a), int(b)) for a, b in pairwise(edges)]
        self._workers = ThreadPoolExecutor(threads) if threads > 1 else None

    def _each(self, task) -> None:
        if self._workers is None:
            task(0, len(self.tracks))
            return
        done = [self._workers.submit(task, first, last) for first, last in self._slices]
        wait(done)
        for future in done:
            future.result()

    def reset(
        self,
        which: Sequence[int],
        tracks: Sequence[PaintedTrack],
        starts: Sequence[Start] | None = None,
    ) -> None:
        """Start new episodes in some worlds, each on its track; on the grid unless told."""
        for w, track in zip(which, tracks, strict=True):
            self.tracks[w] = track
            self._handles[w] = track.handle
        which = np.asarray(which, np.int64)
        self.cars[which] = np.zeros((), CAR)
        self.wheels[which] = np.zeros((), WHEEL)
        self.rewards[which] = 0.0
        self.terms[which] = 0.0
        _reset(
            which,
            np.array(starts or [GRID] * len(which), np.float64),
            self.cars,
            self.wheels,
            self._handles,
            self._visited,
            self._painted,
            self._luts,
            self.look,
        )

    def step(self, actions: np.ndarray) -> None:
        """Advance by `action_repeat` ticks. actions: (worlds, agents, 3) float64, in bounds."""

        def task(first: int, last: int) -> None:
            _step(
                first,
                last,
                self.cars,
                self.wheels,
                self._handles,
                self._visited,
                self._painted,
                self._luts,
                self.look,
                self._coefficients,
                self._rules,
                self._grips,
                self.config.action_repeat,
                actions,
                self.rewards,
                self.terms,
            )

        self._each(task)

    def draw(
        self,
        frames: np.ndarray,
        previous: np.ndarray | None = None,
        which: Sequence[int] | None = None,
    ) -> None:
        """Draw what every agent sees.

        Args:
            frames: (worlds * agents, ...) uint8, C-contiguous, written.
            previous: the frames of the step before, from which a stack is continued; None starts
                the stacks anew.
            which: worlds to draw; all by default.
        """
        flat = frames.reshape(len(frames), -1)
        before = flat[:0] if previous is None else previous.reshape(len(previous), -1)
        every = np.arange(len(self.tracks)) if which is None else np.asarray(which, np.int64)

        def task(first: int, last: int) -> None:
            some = every if which is not None else every[first:last]
            _draw(
                some,
                self.cars,
                self.wheels,
                self._handles,
                self._luts,
                self.look,
                self.camera,
                self._rivals,
                flat,
                self.camera.stack,
                before,
            )

        if which is None:
            self._each(task)
        else:
            task(0, 0)

    def telemetry(self) -> np.ndarray:
        """(worlds, agents, len(TELEMETRY)) float32, columns named by TELEMETRY; reused."""
        _telemetry(self.cars, self.wheels, self._handles, self._telemetry)
        return self._telemetry

    def painted(self, world: int, agent: int) -> np.ndarray:
        """(tiles,) bool, which tiles a car has repainted by touching them."""
        return self._painted[world, agent, : len(self.tracks[world].track)].astype(bool)

    def visited(self, world: int, agent: int) -> np.ndarray:
        """(tiles,) bool, which tiles a wheel has touched."""
        return self._visited[world, agent, : len(self.tracks[world].track)].astype(bool)

    def snapshot(self) -> dict[str, np.ndarray]:
        """Copies of everything that the future depends on, except which tracks are loaded."""
        return {
            "cars": self.cars.view(np.uint8).copy(),
            "wheels": self.wheels.view(np.uint8).copy(),
            "visited": self._visited.copy(),
            "painted": self._painted.copy(),
        }

    def restore(self, state: dict[str, np.ndarray], tracks: Sequence[PaintedTrack]) -> None:
        """Continue from a snapshot of the same shapes, given the tracks that were loaded then."""
        for name, array in (
            ("cars", self.cars.view(np.uint8)),
            ("wheels", self.wheels.view(np.uint8)),
            ("visited", self._visited),
            ("painted", self._painted),
        ):
            array[...] = state[name]
        for w, track in enumerate(tracks):
            self.tracks[w] = track
            self._handles[w] = track.handle
            for a in range(self.cars.shape[1]):
                fresh_lut(self._luts[w, a], track.arrays["shade"], self.look)
                hit = np.flatnonzero(self._painted[w, a])
                self._luts[w, a, TILE_CODE + hit] = self.look.road_value

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_handles"]  # addresses of this process
        state["_workers"] = self._workers is not None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._workers = ThreadPoolExecutor(len(self._slices)) if state["_workers"] else None
        self._handles = np.zeros(len(self.tracks), HANDLE)
        for w, track in enumerate(self.tracks):
            if track is not None:
                self._handles[w] = track.handle

    def close(self) -> None:
        """Stop the engine's threads."""
        if self._workers is not None:
            self._workers.shutdown()
            self._workers = None


def _rival_colours(agents: int, channels: int) -> np.ndarray:
    """(agents, channels) hull colours by which others see each car."""
    hue = np.arange(agents) * 0.61803 + 0.6  # golden-ratio steps keep neighbours apart
    rgb = 0.5 + 0.5 * np.cos(2 * np.pi * (hue[:, None] + np.array([0.0, 1 / 3, 2 / 3])))
    values = 30 + 190 * rgb
    if channels == 1:
        return values @ np.array([[0.299], [0.587], [0.114]])
    return values
