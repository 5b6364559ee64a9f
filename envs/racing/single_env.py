"""One car as a plain `gymnasium.Env`: the ids `racing/CarRacing-v0` and `racing/Race-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from common.errors import UserError
from envs.racing.config import EnvConfig, RewardConfig
from envs.racing.pixels.view import render_view
from envs.racing.sim.dynamics import DT
from envs.racing.vector_env import RacingVectorEnv

RENDER_MODES = ("rgb_array", "state_pixels")


class RacingEnv(gymnasium.Env):
    """A single world with one car.

    `reset(seed=s)` drives the track that CarRacing-v3 makes from seed s; without a seed the next
    track is drawn. Observations are copies. `info` holds the scalars of `RacingVectorEnv`'s info,
    `lap_finished` when an episode terminates, and `episode` (see there) when it ends.

    Args:
        preset: "race" or "carracing".
        render_mode: "rgb_array" for a large antialiased view, "state_pixels" for the newest frame
            that the policy sees.
        reward: a `RewardConfig`, or a mapping of its fields.
        **options: fields of `EnvConfig`.

    Raises:
        UserError: unknown options or values.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": round(1 / DT)}  # noqa: RUF012

    def __init__(
        self,
        preset: str = "race",
        render_mode: str | None = None,
        reward: RewardConfig | dict[str, float] | None = None,
        **options: Any,
    ) -> None:
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UserError(
                f"racing: render_mode is one of {', '.join(RENDER_MODES)}, not {render_mode!r}"
            )
        try:
            config = EnvConfig(preset=preset, **options)
            if isinstance(reward, dict):
                reward = RewardConfig(**reward)
        except (TypeError, ValueError) as error:
            raise UserError(f"racing (preset={preset}): {error}") from None
        if config.num_agents != 1:
            raise UserError(
                f"racing: a single environment has one car, not num_agents={config.num_agents}; "
                "use RacingVectorEnv or the PettingZoo form for more"
            )
        self.render_mode = render_mode
        self._vector = RacingVectorEnv(1, config, reward, split=None, autoreset=False)
        self._over = False
        self.observation_space = self._vector.single_observation_space
        self.action_space = self._vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; `options` must be empty."""
        super().reset(seed=seed)
        if options:
            raise UserError(f"racing: reset takes no options, not {next(iter(options))!r}")
        observation, info = self._vector.reset(seed=None if seed is None else [seed])
        self._over = False
        return observation[0].copy(), _scalars(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One decision; action (3,): steer [-1, 1], gas [0, 1], brake [0, 1]."""
        if self._over:
            raise UserError("racing: the episode is over; call reset() before the next step()")
        action = np.asarray(action, np.float64)
        if action.shape != (3,):
            raise ValueError(f"racing: an action has shape (3,), not {action.shape}")
        observation, reward, terminated, truncated, info = self._vector.step(action[None])
        scalars = _scalars(info)
        if terminated[0]:
            scalars["lap_finished"] = bool(info["episode"]["finished"][0])
        if "episode" in info:
            scalars["episode"] = {name: v[0].item() for name, v in info["episode"].items()}
        self._over = bool(terminated[0] or truncated[0])
        frame = observation[0].copy()
        return frame, float(reward[0]), bool(terminated[0]), bool(truncated[0]), scalars

    def render(self) -> np.ndarray | None:
        """The picture of `render_mode`, (H, W, 3) uint8, or None without one."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() without render_mode; pass it to gymnasium.make")
            return None
        engine = self._vector.engine
        if engine.tracks[0] is None:
            raise UserError("racing: call reset() before render()")
        if self.render_mode == "rgb_array":
            painted = engine.painted(0, 0)
            track = engine.tracks[0].track
            return render_view(track, engine.cars[0], engine.wheels[0], painted=painted)
        frame = self._vector.frames[0]
        config = self._vector.config
        if config.grey:
            return np.repeat(frame[-1][..., None], 3, -1)
        return (frame if config.frame_stack == 1 else frame[-1]).copy()

    def snapshot(self) -> dict[str, np.ndarray]:
        """The full state; see `RacingVectorEnv.snapshot`."""
        return self._vector.snapshot()

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Continue from a snapshot; returns its observation."""
        observation = self._vector.restore(state)[0].copy()
        self._over = not self._vector.engine.cars["active"].any()
        return observation

    def close(self) -> None:
        """Stop background threads."""
        self._vector.close()


def _scalars(info: dict[str, Any]) -> dict[str, Any]:
    scalars: dict[str, Any] = {}
    for name, value in info.items():
        if name == "reward_terms":
            scalars[name] = {term: float(array[0]) for term, array in value.items()}
        elif isinstance(value, np.ndarray) and not name.startswith("_") and name != "final_obs":
            scalars[name] = value[0].item()
    return scalars
