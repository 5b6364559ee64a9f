"""Training in the real CarRacing-v3: what `RacingVectorEnv` is to the engine, over Gymnasium's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from common.errors import UserError
from envs.racing.config import EnvConfig, RewardConfig
from envs.racing.reference.drive import REWARD_TERMS
from envs.racing.reference.pool import OUTCOME, ReferencePool
from envs.racing.score.metrics import episode_statistics
from envs.racing.sim.dynamics import DT
from envs.racing.sim.schedule import TrackSchedule
from envs.racing.vector_env import ACTION_HIGH, ACTION_LOW, ACTION_SLACK


class ReferenceVectorEnv(VectorEnv):
    """`num_envs` real CarRacing-v3 as a policy sees them: repeated actions, grey, stacked frames.

    Observations are uint8 (num_envs, *`ObservationSpec.shape`), the score text blackened; every
    step returns a new array. Actions are float (num_envs, 3), as in `RacingVectorEnv`.
    The reward is CarRacing-v3's own, summed over the ticks of a step.

    Autoreset is SAME_STEP: an ended row returns its next episode's first frame and, in
    `info["final_obs"]`, the last one of the old. Every step's `info` holds `track_seed`, `ticks`
    (engine ticks that each row ran) and `reward_terms` (name -> (num_envs,) float32). A step in
    which episodes ended adds `final_obs` (object array) and `episode` (see `episode_statistics`),
    each with a mask under its name with a leading underscore.

    Args:
        num_envs: number of cars, each alone in its world.
        config: of preset gymnasium_carracing; `threads` is the number of worker processes, 1
            steps the cars in this one. Results do not depend on it.
        reward: refused unless it is CarRacing-v3's own.
        seed: root seed from which tracks are drawn.
        split: split of track seeds; see `TrackSchedule`.
        track_seeds: explicit track seeds, driven in order.

    Raises:
        UserError: another preset or reward, forbidden seeds, a missing extra, a dead worker.
    """

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig | None = None,
        reward: RewardConfig | None = None,
        *,
        seed: int = 0,
        split: str | None = "train",
        track_seeds: Sequence[int] | None = None,
    ) -> None:
        config = config or EnvConfig(preset="gymnasium_carracing")
        self._name = "ReferenceVectorEnv"
        if config.preset != "gymnasium_carracing":
            raise UserError(f"{self._name}: preset={config.preset} is for RacingVectorEnv")
        if reward not in (None, RewardConfig.native()):
            raise UserError(f"{self._name}: the real CarRacing-v3 has its own reward only")
        if num_envs < 1:
            raise UserError(f"{self._name}: num_envs is at least 1, not {num_envs}")
        self.config, self.num_envs = config, num_envs
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP,
            "render_fps": round(1 / DT),
        }
        self.single_observation_space = spaces.Box(0, 255, config.observation.shape, np.uint8)
        self.single_action_space = spaces.Box(ACTION_LOW, ACTION_HIGH, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._schedule = TrackSchedule(config, num_envs, seed, split, track_seeds, self._name)
        self._episodes = np.full(num_envs, -1, np.int64)
        self._track_seeds = np.zeros(num_envs, np.int64)
        self._outcomes = np.zeros(num_envs, OUTCOME)
        self._pool = ReferencePool(num_envs, config.observation, config.max_ticks, config.threads)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes everywhere; `seed` drives track seed + row and draws later ones from
        this root, None draws the next tracks."""
        if options:
            raise UserError(f"{self._name}: there are no reset options, not {options}")
        rows = np.arange(self.num_envs)
        if seed is None:
            observations = self._start(rows)
        else:
            seeds = seed + rows
            for track_seed in seeds:
                self._schedule.check(track_seed)
            self._schedule.set_root(seed)
            self._episodes[:] = 0
            observations = self._start_on(rows, seeds)
        return observations, self._info()

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision everywhere; actions (num_envs, 3) float."""
        actions = np.asarray(actions, np.float64)
        if actions.shape != (self.num_envs, 3):
            raise ValueError(
                f"{self._name}: actions have shape ({self.num_envs}, 3), not {actions.shape}"
            )
        beyond = np.abs(np.clip(actions, ACTION_LOW, ACTION_HIGH) - actions)
        if not (beyond <= ACTION_SLACK).all():  # NaN fails as well
            raise ValueError(f"{self._name}: actions lie in [-1, 1] x [0, 1] x [0, 1]")
        if (self._episodes < 0).any():
            raise UserError(f"{self._name}: call reset() before step()")
        outcomes, observations = self._pool.step(np.arange(self.num_envs), actions)
        self._outcomes[:] = outcomes
        terminated = outcomes["car"]["terminated"].astype(bool)
        truncated = outcomes["car"]["truncated"].astype(bool)
        terms = outcomes["terms"].T.astype(np.float32)
        info: dict[str, Any] = {
            "ticks": outcomes["ticks"],
            "reward_terms": dict(zip(REWARD_TERMS, terms, strict=True)),
        }
        ended = terminated | truncated
        if ended.any():
            rows = np.flatnonzero(ended)
            final_obs = np.full(self.num_envs, None, object)
            for row in rows:
                final_obs[row] = observations[row].copy()
            info |= {"final_obs": final_obs, "_final_obs": ended}
            episode = episode_statistics(outcomes["car"], outcomes["length"])
            info |= {"episode": episode, "_episode": ended}
            observations[rows] = self._start(rows)
        rewards = outcomes["reward"].astype(np.float32)
        return observations, rewards, terminated, truncated, info | self._info()

    def _start(self, rows: np.ndarray) -> np.ndarray:
        """Observations of the next episodes in `rows`, on the tracks that the schedule draws."""
        self._episodes[rows] += 1
        seeds = [self._schedule.key(int(w), int(self._episodes[w]))[0] for w in rows]
        return self._start_on(rows, seeds)

    def _start_on(self, rows: np.ndarray, seeds: Sequence[int]) -> np.ndarray:
        self._track_seeds[rows] = seeds
        _, observations = self._pool.reset(rows, seeds)
        return observations

    def _info(self) -> dict[str, Any]:
        return {"track_seed": self._track_seeds.copy()}

    def snapshot(self) -> dict[str, np.ndarray]:
        """Which episodes were under way, as arrays; not the cars: Box2D's state cannot be saved.

        `restore` therefore continues with fresh episodes, and a resumed training run is not the
        one that was never interrupted.
        """
        return {
            "episodes": self._episodes.copy(),
            "root": np.array(self._schedule.root, np.int64),
        }

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Start the episodes that follow those of a snapshot; returns their first observations.

        Raises:
            UserError: a snapshot of something else.
        """
        try:
            episodes, root = np.asarray(state["episodes"]), int(state["root"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self._name}: the snapshot is damaged: {error!r}") from None
        if episodes.shape != (self.num_envs,) or episodes.dtype != np.int64:
            raise UserError(
                f"{self._name}: the snapshot has {episodes.dtype} episodes of shape "
                f"{episodes.shape}, not int64 of ({self.num_envs},)"
            )
        self._schedule.set_root(root)
        self._episodes[:] = episodes
        return self._start(np.arange(self.num_envs))

    def close_extras(self, **kwargs: Any) -> None:
        """End the worker processes."""
        self._schedule.close()
        self._pool.close()
