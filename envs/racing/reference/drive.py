"""The real CarRacing-v3 (extra `parity`: gymnasium[box2d]), measured as the engine measures."""

from __future__ import annotations

import math

import numpy as np

from common.errors import UserError
from envs.racing.actions import ACTION_HIGH, ACTION_LOW
from envs.racing.score.car import CAR
from envs.racing.score.metrics import episode_statistics
from envs.racing.sim.dynamics import COM_Y
from envs.racing.sim.handles import KernelTrack, open_track
from envs.racing.sim.kernel import kernel
from envs.racing.sim.progress import foot, update
from envs.racing.sim.track import build_track, carracing_points

REWARD_TERMS = ("tile", "time", "playfield")
"""Parts of CarRacing-v3's own reward, by the engine's names."""


def make_reference(render_mode: str | None = None):
    """Gymnasium's CarRacing-v3, unwrapped, without a time limit.

    Raises:
        UserError: the extra is not installed.
    """
    import gymnasium

    try:
        env = gymnasium.make("CarRacing-v3", render_mode=render_mode, max_episode_steps=-1)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(
            f"the real CarRacing-v3 is not available ({error}); "
            "install the extra: pip install -e '.[parity]'"
        ) from None
    return env.unwrapped


@kernel
def _first_foot(car, handle, x, y):
    track = open_track(handle[0])
    car[0].s, car[0].lateral, car[0].curvature, _, _ = foot(
        track.centreline, track.samples, track.length, track.tile_s[0], x, y
    )


@kernel
def _follow(car, handle, x, y, touched):
    update(car[0], open_track(handle[0]), x, y, touched)


class LazyFrames:
    """Lets a real CarRacing-v3 step without drawing; `draw` then draws what `step` would have.

    Drawing is 98% of Gymnasium's step, no physics depends on it, and a policy that holds its
    actions looks at few frames. Gymnasium draws before it charges for the tick, so the score of
    that moment is kept.

    Args:
        env: from `make_reference`; from now on its `step` and `reset` return None for an
            observation.
    """

    def __init__(self, env) -> None:
        self._env, self._render = env, env._render
        self._score = 0.0
        env._render = self._skip

    def draw(self) -> np.ndarray:
        """(96, 96, 3) uint8, the observation of the latest tick, score text included."""
        charged, self._env.reward = self._env.reward, self._score
        try:
            return self._render("state_pixels")
        finally:
            self._env.reward = charged

    def _skip(self, mode: str) -> np.ndarray | None:
        if mode != "state_pixels":
            return self._render(mode)
        self._score = self._env.reward
        return None


class ReferenceDrive:
    """The real CarRacing-v3, one episode at a time, with this project's counters kept beside it.

    Attributes:
        env: the real environment.
        track: our `Track` of the same seed.
        car: (1,) CAR record: pose, velocity and counters as the engine keeps them; controls and
            contacts are left at zero, and no reward is known but the native one.
        reward: of the latest tick, as CarRacing-v3 returned it.
        reward_terms: (len(REWARD_TERMS),) float64, what it is the sum of.
        off: whether all wheels are off the road.

    Args:
        seed: CarRacing-v3's reset seed.
        render_mode: of the real environment.
    """

    def __init__(self, seed: int, render_mode: str | None = None) -> None:
        self.env = make_reference(render_mode)
        self._frames = LazyFrames(self.env)
        self.car = np.zeros(1, CAR)
        self.reward_terms = np.zeros(len(REWARD_TERMS))
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Start another episode in the same environment: a new one each time would leave 0.1 MB."""
        self._kernel_track = KernelTrack(build_track(carracing_points(seed), seed=seed))
        self._handle = self._kernel_track.handle.reshape(1)
        self.track = self._kernel_track.track
        self.env.reset(seed=seed)
        self._frame: np.ndarray | None = None
        self.car[:] = np.zeros(1, CAR)
        self.reward, self.reward_terms[:] = 0.0, 0.0
        self.off = False
        self._place()
        _first_foot(self.car, self._handle, *self.env.car.hull.position)

    @property
    def frame(self) -> np.ndarray:
        """(96, 96, 3) uint8, the latest observation, score text included; drawn when asked for."""
        if self._frame is None:
            self._frame = self._frames.draw()
        return self._frame

    def step(self, action: np.ndarray) -> None:
        """One tick; action (3,), clipped to its bounds. Sets `car["terminated"]` at an ending."""
        action = np.clip(action, ACTION_LOW, ACTION_HIGH).astype(np.float64)
        _, reward, terminated, _, info = self.env.step(action)
        self.reward, self._frame = float(reward), None
        tiles = [tile.idx for wheel in self.env.car.wheels for tile in wheel.tiles]
        self.off = not tiles
        self._place()
        # Any tile will do, but not the first of a set, whose order is that of addresses in memory.
        touched = max(tiles, default=-1)
        _follow(self.car, self._handle, *self.env.car.hull.position, touched)
        car, steer = self.car[0], float(action[0])
        car["tick"] += 1
        car["native_return"] += self.reward
        car["episode_return"] = car["native_return"]
        car["off_ticks"] += self.off
        car["speed_sum"] += car["speed"]
        car["steer_sum"] += steer
        car["steer_square_sum"] += steer * steer
        car["terminated"] = terminated
        finished = info.get("lap_finished")  # absent while the episode goes on
        if finished:
            car["finish_tick"] = car["tick"]
        new_tiles = self.env.tile_visited_count - car["tiles_visited"]
        car["tiles_visited"] = self.env.tile_visited_count
        if finished is False:  # left the playfield, which replaces the tick's whole reward
            self.reward_terms[:] = 0.0, 0.0, -100.0
        else:
            self.reward_terms[:] = 1000.0 / len(self.env.track) * new_tiles, -0.1, 0.0

    def statistics(self) -> dict[str, float]:
        """`episode_statistics` of this episode."""
        values = episode_statistics(self.car, np.array([self.track.length]))
        return {name: value[0].item() for name, value in values.items()}

    def close(self) -> None:
        """Close Gymnasium's environment."""
        self.env.close()

    def _place(self) -> None:
        hull, car = self.env.car.hull, self.car[0]
        car["angle"] = hull.angle
        car["com_x"] = hull.position.x - math.sin(hull.angle) * COM_Y
        car["com_y"] = hull.position.y + math.cos(hull.angle) * COM_Y
        car["vx"], car["vy"] = hull.linearVelocity
        car["speed"] = math.hypot(*hull.linearVelocity)
        car["yaw_rate"] = hull.angularVelocity
        car["steer"] = self.env.car.wheels[0].joint.angle
