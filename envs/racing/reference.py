"""The real CarRacing-v3 (extra `parity`: gymnasium[box2d]), measured as the engine measures."""

from __future__ import annotations

import math

import numpy as np

from common.errors import UserError
from envs.racing.dynamics import CAR, COM_Y
from envs.racing.kernel import kernel
from envs.racing.metrics import episode_statistics
from envs.racing.pool import PaintedTrack, open_track
from envs.racing.progress import foot, update
from envs.racing.track import build_track, carracing_points
from envs.racing.vector_env import ACTION_HIGH, ACTION_LOW


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
    car[0].s, car[0].lateral, car[0].curvature = foot(
        track.centreline, track.samples, track.length, track.tile_s[0], x, y
    )


@kernel
def _follow(car, handle, x, y, touched):
    update(car[0], open_track(handle[0]), x, y, touched)


class ReferenceDrive:
    """One episode of the real CarRacing-v3, with this project's counters kept beside it.

    Attributes:
        env: the real environment.
        frame: (96, 96, 3) uint8, its latest observation, score text included.
        track: our `Track` of the same seed.
        car: (1,) CAR record: pose, velocity and counters as the engine keeps them; controls,
            contacts and rewards other than the native one are left at zero.
        off: whether all wheels are off the road.

    Args:
        seed: CarRacing-v3's reset seed.
        render_mode: of the real environment.
    """

    def __init__(self, seed: int, render_mode: str | None = None) -> None:
        self.env = make_reference(render_mode)
        self._painted = PaintedTrack(build_track(carracing_points(seed), seed=seed))
        self._handle = self._painted.handle.reshape(1)
        self.track = self._painted.track
        self.car = np.zeros(1, CAR)
        self.frame, _ = self.env.reset(seed=seed)
        self.off = False
        self._place()
        _first_foot(self.car, self._handle, *self.env.car.hull.position)

    def step(self, action: np.ndarray) -> None:
        """One tick; action (3,), clipped to its bounds. Sets `car["terminated"]` at an ending."""
        action = np.clip(action, ACTION_LOW, ACTION_HIGH).astype(np.float64)
        self.frame, reward, terminated, _, info = self.env.step(action)
        tiles = [tile.idx for wheel in self.env.car.wheels for tile in wheel.tiles]
        self.off = not tiles
        self._place()
        _follow(self.car, self._handle, *self.env.car.hull.position, tiles[0] if tiles else -1)
        car, steer = self.car[0], float(action[0])
        car["tick"] += 1
        car["native_return"] += float(reward)
        car["off_ticks"] += self.off
        car["speed_sum"] += car["speed"]
        car["steer_sum"] += steer
        car["steer_square_sum"] += steer * steer
        car["terminated"] = terminated
        if info.get("lap_finished"):
            car["finish_tick"] = car["tick"]

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
