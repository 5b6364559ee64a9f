"""Training in the real CarRacing-v3: what `RacingVectorEnv` is to the engine, over Gymnasium's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from common.errors import UserError
from envs.racing.actions import ACTION_HIGH, ACTION_LOW, check_actions
from envs.racing.config import EnvConfig
from envs.racing.reference.drive import REWARD_TERMS
from envs.racing.reference.pool import OUTCOME, ReferencePool
from envs.racing.score.endings import EndingConfig
from envs.racing.score.metrics import episode_statistics
from envs.racing.score.terms import RewardConfig
from envs.racing.sim.dynamics import DT
from envs.racing.sim.schedule import TrackSchedule


class ReferenceVectorEnv(VectorEnv):
    """`num_envs` real CarRacing-v3 as a policy sees them: repeated actions, grey, stacked frames.

    Observations are uint8 (num_envs, *`ObservationSpec.shape`), the score text blackened; every
    step returns a new array. Actions are float (num_envs, 3), as in `RacingVectorEnv`, and
    clipped to their bounds as CarRacing-v3 does.
    The reward is CarRacing-v3's own, summed over the ticks of a step.

    Autoreset is SAME_STEP: an ended row returns its next episode's first frame and, in
    `info["final_obs"]`, the last one of the old. Every step's `info` holds `track_seed`, `ticks`
    (engine ticks that each row ran) and `reward_terms` (name -> (num_envs,) float32). A step in
    which episodes ended adds `final_obs` (object array) and `episode_statistics` (name -> array),
    each with a mask under its name with a leading underscore.

    Args:
        num_envs: number of cars, each alone in its world.
        config: of preset gymnasium_carracing; `threads` is the number of worker processes, 1
            steps the cars in this one. Results do not depend on it.
        reward, endings: refused unless they are CarRacing-v3's own.
        seed, split, track_seeds: see `RacingVectorEnv`.

    Raises:
        UserError: another preset or reward, forbidden seeds, a missing extra, a dead worker.
    """

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig | None = None,
        reward: RewardConfig | None = None,
        *,
        endings: EndingConfig | None = None,
        seed: int | None = None,
        split: str | None = None,
        track_seeds: Sequence[int] | None = None,
    ) -> None:
        config = config or EnvConfig(preset="gymnasium_carracing")
        self._name = "ReferenceVectorEnv"
        if config.preset != "gymnasium_carracing":
            raise UserError(f"{self._name}: preset={config.preset} is for RacingVectorEnv")
        if reward not in (None, RewardConfig.native()):
            raise UserError(f"{self._name}: the real CarRacing-v3 has its own reward only")
        if endings not in (None, EndingConfig()):
            raise UserError(f"{self._name}: the real CarRacing-v3 has its own endings only")
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
        self._started = False
        self._outcomes = np.zeros(num_envs, OUTCOME)
        self._pool = ReferencePool(num_envs, config.observation, config.max_ticks, config.threads)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes everywhere.

        Args:
            seed: an int s drives track s + row, and later tracks are drawn under s; None goes on to
                the next tracks.
            options: none are known.
        """
        if options:
            raise UserError(f"{self._name}: there are no reset options, not {options}")
        rows = list(range(self.num_envs))
        if seed is None:
            self._schedule.advance(rows)
        else:
            self._schedule.reseed(seed)
        observations = self._start(rows)
        self._started = True
        return observations, self._info()

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision everywhere; actions (num_envs, 3) float."""
        actions = check_actions(actions, self.num_envs, clip=True, where=self._name)
        if not self._started:
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
            rows = np.flatnonzero(ended).tolist()
            final_obs = np.full(self.num_envs, None, object)
            for row in rows:
                final_obs[row] = observations[row].copy()
            info |= {"final_obs": final_obs, "_final_obs": ended}
            statistics = episode_statistics(outcomes["car"], outcomes["length"])
            info |= {"episode_statistics": statistics, "_episode_statistics": ended}
            self._schedule.advance(rows)
            observations[rows] = self._start(rows)
        rewards = outcomes["reward"].astype(np.float32)
        return observations, rewards, terminated, truncated, info | self._info()

    def _start(self, rows: list[int]) -> np.ndarray:
        """First observations of the schedule's present episodes in `rows`."""
        _, observations = self._pool.reset(rows, self._schedule.track_seeds[rows])
        return observations

    def _info(self) -> dict[str, Any]:
        return {"track_seed": self._schedule.track_seeds}

    def snapshot(self) -> dict[str, np.ndarray]:
        """Which episodes were under way, as arrays; not the cars: Box2D's state cannot be saved.

        `restore` therefore continues with fresh episodes, and a resumed training run is not the
        one that was never interrupted.
        """
        return {"schedule": self._schedule.snapshot()}

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Start the episodes that follow those of a snapshot; returns their first observations.

        Raises:
            UserError: a snapshot of something else.
        """
        self._schedule.restore(state)
        rows = list(range(self.num_envs))
        self._schedule.advance(rows)
        self._started = True
        return self._start(rows)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self._name} cannot be pickled or copied: Box2D's state cannot be saved; "
            "make another one (preset=carracing of RacingVectorEnv can be copied)"
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the worker processes."""
        self._schedule.close()
        self._pool.close()
