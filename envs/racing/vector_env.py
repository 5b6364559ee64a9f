"""The batched environment: worlds x agents as one `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from common.errors import UserError
from common.telemetry import TELEMETRY
from envs.racing.actions import ACTION_HIGH, ACTION_LOW, check_actions
from envs.racing.config import EnvConfig
from envs.racing.engine import Engine
from envs.racing.options import read_config, read_endings, read_reward
from envs.racing.pixels.painted_track import PaintedTrack
from envs.racing.rendering import RENDER_MODES, check_render_mode, large_view, newest_frame
from envs.racing.score.endings import EndingConfig
from envs.racing.score.metrics import episode_statistics
from envs.racing.score.terms import TERMS, RewardConfig
from envs.racing.sim.dynamics import DT
from envs.racing.sim.schedule import TrackSchedule
from envs.racing.snapshots import check_snapshot, describe


class RacingVectorEnv(VectorEnv):
    """`num_envs` = worlds x agents; row w * agents + a is agent a of world w.

    Observations are uint8 frames (see `ObservationSpec.shape`) in a buffer that is written in place
    by every step: copy what you keep, or hand over your own memory with `set_buffer`. Actions are
    float (num_envs, 3): steer [-1, 1] (positive to the right), gas [0, 1], brake [0, 1]. Preset
    carracing clips an action outside these bounds, as CarRacing-v3 does; preset race refuses it.

    Autoreset is SAME_STEP: when all agents of a world have ended, the same step returns the next
    episode's first frame, and `info["final_obs"]` the last one of the old. An agent that ends
    before its world keeps its slot, with `active` False and reward 0.

    Every `info` holds float32 arrays of the telemetry by name, `world_id`, `agent_id`, `active`,
    `track_seed` (int64; an object array of Python's int while some seed has over 63 bits), and
    `reward_terms` (name -> array). A step adds `ticks`, the engine ticks that each row really ran
    (an episode can end inside an action repeat, an ended row runs none). A step in which agents
    ended adds `final_obs` (object array), `final_info` (the telemetry before the reset) and
    `episode_statistics` (name -> array, see `score.metrics.episode_statistics`), each with a mask
    under its name with a leading underscore. The key `episode` is left to Gymnasium's wrappers.

    The environment can be pickled and copied at any time; the copy continues bit by bit.

    Args:
        num_envs: worlds x agents.
        config: see `EnvConfig`.
        reward: see `RewardConfig`, or a mapping of its fields; preset carracing always has
            CarRacing's own reward unless one is given.
        seed: root seed under which tracks are drawn, a whole number of any size; None takes one
            from the operating system's randomness.
        split: split of track seeds to draw from; every seed named later must belong to it too. None
            draws from "train" and allows every seed to be named.
        track_seeds: drive these tracks in order in place of drawn ones.
        autoreset: False leaves ended worlds as they are until `reset(options={"reset_mask": ...})`.
        endings: what ends an episode, as an `EndingConfig` or a mapping of its fields; the default
            ends it as CarRacing does.
        render_mode: one of `rendering.RENDER_MODES`, for `render()`.
        **options: fields of `EnvConfig` that override `config`, and `max_episode_steps`.

    Raises:
        UserError: options that do not fit together, or forbidden seeds.
    """

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig | None = None,
        reward: RewardConfig | Mapping[str, Any] | None = None,
        *,
        seed: int | None = None,
        split: str | None = None,
        track_seeds: Sequence[int] | None = None,
        autoreset: bool = True,
        endings: EndingConfig | Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        config = read_config(config, options, name)
        self._name = f"{name}(preset={config.preset})"
        reward = read_reward(reward, config, self._name)
        endings = read_endings(endings, self._name)
        check_render_mode(render_mode, self._name)
        agents = config.num_agents
        whole = isinstance(num_envs, (int, np.integer)) and not isinstance(num_envs, bool)
        if not whole or num_envs < 1 or num_envs % agents:
            raise UserError(
                f"{self._name}: num_envs={num_envs!r} is worlds x agents, so a positive multiple "
                f"of num_agents={agents}"
            )
        self.config = config
        self.num_envs = num_envs
        self.num_worlds = num_envs // agents
        self.render_mode = render_mode
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP if autoreset else AutoresetMode.DISABLED,
            "render_modes": list(RENDER_MODES),
            "render_fps": round(1 / DT),
        }
        self.single_observation_space = spaces.Box(0, 255, config.observation.shape, np.uint8)
        self.single_action_space = spaces.Box(ACTION_LOW, ACTION_HIGH, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._autoreset = autoreset
        self._schedule = TrackSchedule(
            config, self.num_worlds, seed, split, track_seeds, self._name, PaintedTrack
        )
        self.engine = Engine(self.num_worlds, config, reward, endings)
        self._started = False
        self._frames = np.zeros((num_envs, *config.observation.shape), np.uint8)
        self._previous = self._frames
        self._world_id = np.repeat(np.arange(self.num_worlds), agents)
        self._agent_id = np.tile(np.arange(agents), self.num_worlds)

    @property
    def frames(self) -> np.ndarray:
        """The latest observations, (num_envs, ...) uint8; not a copy."""
        return self._previous

    def set_buffer(self, frames: np.ndarray) -> None:
        """Write the next observations into `frames`, (num_envs, ...) uint8 and C-contiguous.

        The frames of the step before are still read (to continue stacks), so leave them alone until
        the next step has returned.
        """
        shape = self.observation_space.shape
        if frames.shape != shape or frames.dtype != np.uint8 or not frames.flags.c_contiguous:
            raise ValueError(
                f"{self._name}: a buffer is C-contiguous uint8 of shape {shape}, not "
                f"{frames.dtype} of shape {frames.shape}"
            )
        self._frames = frames

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes.

        A seed is a whole number from 0 on, of any size; seed s drives the track that CarRacing-v3
        makes from s. It also decides all that follows until the next seed.

        Args:
            seed: an int s drives track s + w in world w; later tracks are drawn under s. A sequence
                names one track seed per world, and each world draws its later tracks under its own
                seed, as a single environment with that seed does. None goes on to the next tracks.
            options: `reset_mask`, (num_envs,) bool, resets only worlds with a True.

        Raises:
            UserError: a seed that is none or that the split forbids; nothing has changed then.
        """
        self._check_open("reset")
        unknown = set(options or {}) - {"reset_mask"}
        if unknown:
            raise UserError(f"{self._name}: unknown reset option {unknown.pop()!r}; reset_mask is")
        which = list(range(self.num_worlds))
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != bool:
                raise UserError(
                    f"{self._name}: reset_mask is bool of shape ({self.num_envs},), not "
                    f"{mask.dtype} of shape {mask.shape}"
                )
            which = np.flatnonzero(mask.reshape(self.num_worlds, -1).any(1)).tolist()
            if not self._started and len(which) < self.num_worlds:
                raise UserError(f"{self._name}: the first reset starts every world")
        several = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str)
        if seed is None:
            self._schedule.advance(which)
        elif several:
            if len(seed) != len(which):
                raise UserError(
                    f"{self._name}: {len(which)} worlds need as many seeds, not {len(seed)}"
                )
            self._schedule.name(which, seed)
        elif mask is None:
            self._schedule.reseed(seed)
        else:
            self._schedule.name_from(which, seed)
        self._start(which)
        self._started = True
        return self._frames, self._info()

    def _start(self, which: list[int]) -> None:
        """Put the cars of some worlds at the start of their schedule's present episode."""
        self.engine.reset(which, self._schedule.tracks(which), self._schedule.starts(which))
        every = len(which) == self.num_worlds
        if self._previous is not self._frames and not every:
            self._frames[...] = self._previous
        self.engine.draw(self._frames, None, None if every else which)
        self._previous = self._frames
        if self._autoreset:
            self._schedule.prefetch(which)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision: `action_repeat` ticks. See the class for shapes and for `info`."""
        self._check_open("step")
        if not self._started:
            raise UserError(f"{self._name}: call reset() before step()")
        clip = self.config.preset == "carracing"
        actions = check_actions(actions, self.num_envs, clip=clip, where=self._name)
        engine = self.engine
        active = engine.cars["active"].astype(bool)
        before = engine.cars["tick"].copy()
        engine.step(actions.reshape(self.num_worlds, -1, 3))
        ticks = (engine.cars["tick"] - before).ravel()
        engine.draw(self._frames, self._previous)
        self._previous = self._frames
        ended = active & ~engine.cars["active"].astype(bool)
        terminated = (ended & engine.cars["terminated"].astype(bool)).ravel()
        truncated = (ended & engine.cars["truncated"].astype(bool)).ravel()
        rewards = engine.rewards.astype(np.float32).ravel()
        if not ended.any():
            info = self._info() | {"ticks": ticks}
            return self._frames, rewards, terminated, truncated, info

        mask = ended.ravel()
        final = self._info() | {"ticks": ticks}
        final_obs = np.full(self.num_envs, None, object)
        for row in np.flatnonzero(mask):
            final_obs[row] = self._frames[row].copy()
        statistics = self._episode_statistics()
        finished = np.flatnonzero(~engine.cars["active"].any(1)).tolist()
        if self._autoreset and finished:
            self._schedule.advance(finished)
            self._start(finished)
        info = self._info()
        info |= {"reward_terms": final["reward_terms"], "ticks": ticks}
        info |= {"final_obs": final_obs, "_final_obs": mask}
        info |= {"final_info": final, "_final_info": mask}
        info |= {"episode_statistics": statistics, "_episode_statistics": mask}
        return self._frames, rewards, terminated, truncated, info

    def _info(self) -> dict[str, Any]:
        table = self.engine.telemetry().reshape(self.num_envs, -1).T.copy()
        terms = self.engine.terms.reshape(self.num_envs, -1).T.astype(np.float32)
        info: dict[str, Any] = dict(zip(TELEMETRY, table, strict=True))
        info["reward_terms"] = dict(zip(TERMS, terms, strict=True))
        info["world_id"] = self._world_id
        info["agent_id"] = self._agent_id
        info["active"] = self.engine.cars["active"].astype(bool).ravel()
        info["track_seed"] = self._schedule.track_seeds[self._world_id]
        return info

    def _episode_statistics(self) -> dict[str, np.ndarray]:
        lengths = np.array([track.track.length for track in self.engine.tracks])[self._world_id]
        return episode_statistics(self.engine.cars.ravel(), lengths)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """One picture of `render_mode` per row, (H, W, 3) uint8, or None without a mode."""
        pictures = [self.render_row(row) for row in range(self.num_envs)]
        return None if self.render_mode is None else tuple(pictures)

    def render_row(self, row: int) -> np.ndarray | None:
        """The picture of one row; see `render`."""
        self._check_open("render")
        if self.render_mode is None:
            gymnasium.logger.warn("render() shows nothing: the environment has no render_mode")
            return None
        if not self._started:
            raise UserError(f"{self._name}: call reset() before render()")
        if self.render_mode == "rgb_array":
            return large_view(self.engine, *divmod(row, self.config.num_agents))
        return newest_frame(self.frames[row], self.config)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The full state as arrays; `restore` continues from it bit by bit."""
        if not self._started:
            raise UserError(f"{self._name}: call reset() before snapshot()")
        return self.engine.snapshot() | {
            "schedule": self._schedule.snapshot(),
            "frames": self.frames.copy(),
            "settings": describe(self.config, self.num_envs),
        }

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Continue from a snapshot of an environment with the same configuration.

        Returns:
            The observations at the snapshot.

        Raises:
            UserError: a snapshot of another configuration, or of tracks that the split forbids;
                nothing has changed then.
        """
        self._check_open("restore")
        expected = self.engine.snapshot() | {"frames": self._frames}
        settings = describe(self.config, self.num_envs)
        check_snapshot(state, expected | {"settings": settings}, self._name)
        self._schedule.restore(state)
        self.engine.restore(state, self._schedule.tracks(range(self.num_worlds)))
        self._frames[:] = state["frames"]
        self._previous = self._frames
        self._started = True
        return self._frames

    def _check_open(self, method: str) -> None:
        if self.closed:
            raise UserError(f"{self._name}: {method}() after close(); make another environment")

    def close_extras(self, **kwargs: Any) -> None:
        """Stop builder and engine threads."""
        self._schedule.close()
        self.engine.close()
