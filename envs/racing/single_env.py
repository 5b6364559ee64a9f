"""One car as a plain `gymnasium.Env`: the ids `racing/CarRacing-v0` and `racing/Race-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from common.errors import UserError
from common.seeding import whole_seed
from envs.racing.actions import read_action
from envs.racing.rendering import RENDER_MODES
from envs.racing.sim.dynamics import DT
from envs.racing.vector_env import RacingVectorEnv


class TrackSeed(int):
    """A whole number of any size.

    Gymnasium's vector environments put plain ints into int64 arrays, which seeds of over 63 bits do
    not fit; they put a type of its own into object arrays.
    """


class RacingEnv(gymnasium.Env):
    """A single world with one car.

    `reset(seed=s)` drives the track that CarRacing-v3 makes from seed s, and s decides all that
    follows until the next seed. Without a seed the next track is drawn; the first one is then
    random. Observations are copies. `info` holds the scalars of `RacingVectorEnv`'s info;
    `episode_statistics` (see there) when an episode ends, and `lap_finished` when it terminates.

    `gymnasium.wrappers.RecordVideo` films it if moviepy is installed (`pip install moviepy`).
    `envs.racing.show.video.record_video` films a policy without it.

    Args:
        render_mode: "rgb_array" for a large antialiased view, "state_pixels" for the newest frame
            that the policy sees.
        **options: `config`, `reward`, `seed`, `split`, `track_seeds`, `endings` and the
            fields of `EnvConfig`, such as `preset="race"` or "carracing"; see `RacingVectorEnv`.

    Raises:
        UserError: unknown options or values.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": round(1 / DT)}  # noqa: RUF012

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        if "autoreset" in options:
            raise UserError("racing: autoreset is for the vector form; call reset() here")
        agents = options.get("num_agents", 1)
        if agents != 1:
            raise UserError(
                f"racing: a single environment has one car, not num_agents={agents}; "
                "use RacingVectorEnv or the PettingZoo form for more"
            )
        self.render_mode = render_mode
        self._vector = RacingVectorEnv(1, autoreset=False, render_mode=render_mode, **options)
        self._done = False
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: a whole number from 0 on, of any size.
            options: none are known.
        """
        if options:
            raise UserError(f"racing: reset takes no options, not {next(iter(options))!r}")
        seed = None if seed is None else whole_seed(seed)
        observation, info = self._vector.reset(seed=seed)
        super().reset(seed=seed)
        self._done = False
        return observation[0].copy(), _scalars(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One decision; action (3,): steer [-1, 1], gas [0, 1], brake [0, 1]."""
        if self._done and not self._vector.closed:
            raise UserError("racing: the episode is over; call reset() before the next step()")
        action = read_action(action, "racing: an action")
        observation, reward, terminated, truncated, info = self._vector.step(action[None])
        scalars = _scalars(info)
        if terminated[0]:
            scalars["lap_finished"] = scalars["episode_statistics"]["finished"]
        self._done = bool(terminated[0] or truncated[0])
        frame = observation[0].copy()
        return frame, float(reward[0]), bool(terminated[0]), bool(truncated[0]), scalars

    def render(self) -> np.ndarray | None:
        """The picture of `render_mode`, (H, W, 3) uint8, or None without one."""
        return self._vector.render_row(0)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The full state; see `RacingVectorEnv.snapshot`."""
        return self._vector.snapshot()

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Continue from a snapshot; returns its observation."""
        observation = self._vector.restore(state)[0].copy()
        self._done = not self._vector.engine.cars["active"].any()
        return observation

    def close(self) -> None:
        """Stop background threads; the environment cannot be used any more."""
        self._vector.close()


def _scalars(info: dict[str, Any]) -> dict[str, Any]:
    """The info of the only car: numbers in place of arrays of length 1."""
    scalars: dict[str, Any] = {}
    for name, value in info.items():
        if name == "track_seed":
            scalars[name] = TrackSeed(value[0])
        elif name in ("reward_terms", "episode_statistics"):
            scalars[name] = {part: array[0].item() for part, array in value.items()}
        elif isinstance(value, np.ndarray) and not name.startswith("_") and name != "final_obs":
            scalars[name] = value[0].item()
    return scalars
