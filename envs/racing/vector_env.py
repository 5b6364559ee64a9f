"""The batched environment: worlds x agents as one `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from common.errors import UserError
from envs.racing.config import EnvConfig, RewardConfig
from envs.racing.engine import TELEMETRY, Engine
from envs.racing.score.metrics import episode_statistics
from envs.racing.score.rewards import TERMS
from envs.racing.sim.dynamics import DT
from envs.racing.sim.schedule import TrackSchedule, keys_from_arrays, keys_to_arrays

ACTION_LOW = np.array([-1.0, 0.0, 0.0], np.float32)
ACTION_HIGH = np.array([1.0, 1.0, 1.0], np.float32)
ACTION_NAMES = ("steer", "gas", "brake")
ACTION_SLACK = 1e-4
"""Rounding by which an action may lie beyond its bounds: it is clipped; further out, refused."""


class RacingVectorEnv(VectorEnv):
    """`num_envs` = worlds x agents; row w * agents + a is agent a of world w.

    Observations are uint8 frames (see `ObservationSpec.shape`) in a buffer that is written in place
    by every step: copy what you keep, or hand over your own memory with `set_buffer`. Actions are
    float (num_envs, 3): steer [-1, 1] (positive to the right), gas [0, 1], brake [0, 1].

    Autoreset is SAME_STEP: when all agents of a world have ended, the same step returns the next
    episode's first frame, and `info["final_obs"]` the last one of the old. An agent that ends
    before its world keeps its slot, with `active` False and reward 0.

    Every `info` holds float32 arrays of the telemetry by name, `world_id`, `agent_id`, `active`,
    `track_seed`, and `reward_terms` (name -> array); a step adds `ticks`, the engine ticks that
    each row really ran (an episode can end inside an action repeat, an ended row runs none). A step
    in which agents ended adds `final_obs` (object array), `final_info` (the telemetry before the
    reset) and `episode` (see `episode_statistics`), each with a mask under its name with a leading
    underscore.

    Args:
        num_envs: worlds x agents.
        config, reward: see `EnvConfig` and `RewardConfig`; preset carracing always has CarRacing's
            own reward unless `reward` is given.
        preset, num_agents: shorthands that override `config`.
        seed: root seed from which tracks are drawn.
        split: split of track seeds; see `TrackSchedule`.
        track_seeds: explicit track seeds, driven in order.
        autoreset: False leaves ended worlds as they are until `reset(options={"reset_mask": ...})`.
        end_at_playfield: end an episode that leaves the playfield, as CarRacing does.

    Raises:
        UserError: options that do not fit together, or forbidden seeds.
    """

    def __init__(
        self,
        num_envs: int,
        config: EnvConfig | None = None,
        reward: RewardConfig | None = None,
        *,
        preset: str | None = None,
        num_agents: int | None = None,
        seed: int = 0,
        split: str | None = "train",
        track_seeds: Sequence[int] | None = None,
        autoreset: bool = True,
        end_at_playfield: bool = True,
    ) -> None:
        config = config or EnvConfig()
        changes = {"preset": preset, "num_agents": num_agents}
        try:
            config = replace(config, **{k: v for k, v in changes.items() if v is not None})
        except ValueError as error:
            raise UserError(f"RacingVectorEnv: {error}") from None
        self._name = f"RacingVectorEnv(preset={config.preset})"
        seed = self._root_seed(seed)
        agents = config.num_agents
        whole = isinstance(num_envs, (int, np.integer)) and not isinstance(num_envs, bool)
        if not whole or num_envs < 1 or num_envs % agents:
            raise UserError(
                f"{self._name}: num_envs={num_envs!r} is worlds x agents, so a positive multiple "
                f"of num_agents={agents}"
            )
        if reward is None:
            reward = RewardConfig.native() if config.preset == "carracing" else RewardConfig()
        self.config = config
        self.num_envs = num_envs
        self.num_worlds = num_envs // agents
        self.metadata = {
            "autoreset_mode": AutoresetMode.SAME_STEP if autoreset else AutoresetMode.DISABLED,
            "render_fps": round(1 / DT),
        }
        self.single_observation_space = spaces.Box(0, 255, config.observation.shape, np.uint8)
        self.single_action_space = spaces.Box(ACTION_LOW, ACTION_HIGH, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._autoreset = autoreset
        self._schedule = TrackSchedule(
            config, self.num_worlds, seed, split, track_seeds, self._name
        )
        self.engine = Engine(self.num_worlds, config, reward, end_at_playfield=end_at_playfield)
        self._keys = [(0, "ccw")] * self.num_worlds
        self._episodes = np.zeros(self.num_worlds, np.int64)
        self._started = False
        self._frames = np.zeros((num_envs, *config.observation.shape), np.uint8)
        self._previous = self._frames
        self._world_id = np.repeat(np.arange(self.num_worlds), agents)
        self._agent_id = np.tile(np.arange(agents), self.num_worlds)

    def _root_seed(self, seed: Any) -> int:
        whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        if not whole or not 0 <= seed < 2**63:
            raise UserError(f"{self._name}: a seed is a whole number from 0 on, not {seed!r}")
        return int(seed)

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
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes.

        Args:
            seed: an int drives track seed + w in world w and draws later tracks from this root; a
                sequence names one track seed per world; None draws the next tracks.
            options: `reset_mask`, (num_envs,) bool, resets only worlds with a True.
        """
        unknown = set(options or {}) - {"reset_mask"}
        if unknown:
            raise UserError(f"{self._name}: unknown reset option {unknown.pop()!r}; reset_mask is")
        which = np.arange(self.num_worlds)
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            mask = np.asarray(mask)
            if mask.shape != (self.num_envs,) or mask.dtype != bool:
                raise UserError(
                    f"{self._name}: reset_mask is bool of shape ({self.num_envs},), not "
                    f"{mask.dtype} of shape {mask.shape}"
                )
            which = np.flatnonzero(mask.reshape(self.num_worlds, -1).any(1))
            if not self._started and len(which) < self.num_worlds:
                raise UserError(f"{self._name}: the first reset starts every world")
        if seed is None:
            keys = []
            for w in which:
                if self._started:
                    self._episodes[w] += 1
                keys.append(self._schedule.key(int(w), int(self._episodes[w])))
        else:
            named = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str)
            if not named:
                root = self._root_seed(seed)
                seeds = [root + int(w) for w in which]
            else:
                seeds = [self._root_seed(s) for s in seed]
                if len(seeds) != len(which):
                    raise UserError(
                        f"{self._name}: {len(which)} worlds need as many seeds, not {len(seeds)}"
                    )
            for track_seed in seeds:
                self._schedule.check(track_seed)
            if not named and mask is None:
                self._schedule.set_root(root)
            self._episodes[which] = 0
            keys = [
                (track_seed, self._schedule.direction(int(w), 0))
                for w, track_seed in zip(which, seeds, strict=True)
            ]
        self._start(which, keys)
        self._started = True
        return self._frames, self._info()

    def _start(self, which: np.ndarray, keys: list[tuple[int, str]]) -> None:
        for w, key in zip(which, keys, strict=True):
            self._keys[w] = key
        starts = [self._schedule.start(int(w), int(self._episodes[w])) for w in which]
        self.engine.reset(which, [self._schedule.get(key) for key in keys], starts)
        every = len(which) == self.num_worlds
        if self._previous is not self._frames and not every:
            self._frames[...] = self._previous
        self.engine.draw(self._frames, None, None if every else which)
        self._previous = self._frames
        if self._autoreset:
            for w in which:
                self._schedule.prefetch(int(w), int(self._episodes[w]) + 1)

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = np.asarray(actions, np.float64)
        if actions.shape != (self.num_envs, 3):
            raise ValueError(
                f"{self._name}: actions have shape ({self.num_envs}, 3), not {actions.shape}"
            )
        bounded = np.clip(actions, ACTION_LOW, ACTION_HIGH)
        if not (np.abs(bounded - actions) <= ACTION_SLACK).all():  # NaN fails as well
            row, column = np.argwhere(~(np.abs(bounded - actions) <= ACTION_SLACK))[0]
            raise ValueError(
                f"{self._name}: {ACTION_NAMES[column]} of environment {row} is "
                f"{actions[row, column]}; it must be a number in "
                f"[{ACTION_LOW[column]:g}, {ACTION_HIGH[column]:g}]"
            )
        return bounded.reshape(self.num_worlds, -1, 3)

    def step(
        self, actions: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One decision: `action_repeat` ticks. See the class for shapes and for `info`."""
        if not self._started:
            raise UserError(f"{self._name}: call reset() before step()")
        engine = self.engine
        active = engine.cars["active"].astype(bool)
        before = engine.cars["tick"].copy()
        engine.step(self._checked(actions))
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
        episode = self._episode_statistics()
        over = np.flatnonzero(~engine.cars["active"].any(1))
        if self._autoreset and len(over):
            self._episodes[over] += 1
            keys = [self._schedule.key(int(w), int(self._episodes[w])) for w in over]
            self._start(over, keys)
        info = self._info()
        info |= {"reward_terms": final["reward_terms"], "ticks": ticks}
        info |= {"final_obs": final_obs, "_final_obs": mask}
        info |= {"final_info": final, "_final_info": mask}
        info |= {"episode": episode, "_episode": mask}
        return self._frames, rewards, terminated, truncated, info

    def _info(self) -> dict[str, Any]:
        table = self.engine.telemetry().reshape(self.num_envs, -1).T.copy()
        terms = self.engine.terms.reshape(self.num_envs, -1).T.astype(np.float32)
        info: dict[str, Any] = dict(zip(TELEMETRY, table, strict=True))
        info["reward_terms"] = dict(zip(TERMS, terms, strict=True))
        info["world_id"] = self._world_id
        info["agent_id"] = self._agent_id
        info["active"] = self.engine.cars["active"].astype(bool).ravel()
        info["track_seed"] = np.array([seed for seed, _ in self._keys])[self._world_id]
        return info

    def _episode_statistics(self) -> dict[str, np.ndarray]:
        lengths = np.array([track.track.length for track in self.engine.tracks])[self._world_id]
        return episode_statistics(self.engine.cars.ravel(), lengths)

    def snapshot(self) -> dict[str, np.ndarray]:
        """The full state as arrays; `restore` continues from it bit by bit."""
        if not self._started:
            raise UserError(f"{self._name}: call reset() before snapshot()")
        return self.engine.snapshot() | {
            **keys_to_arrays(self._keys),
            "episodes": self._episodes.copy(),
            "root": np.array(self._schedule.root, np.int64),
            "frames": self.frames.copy(),
            "settings": self._settings(),
        }

    def _settings(self) -> np.ndarray:
        """The configuration as bytes, to tell whether a snapshot belongs here."""
        # Threads change no result.
        plain = asdict(self.config) | {"threads": 0, "num_envs": self.num_envs}
        return np.frombuffer(json.dumps(plain, sort_keys=True).encode(), np.uint8)

    def restore(self, state: dict[str, np.ndarray]) -> np.ndarray:
        """Continue from a snapshot of an environment with the same configuration.

        Returns:
            The observations at the snapshot.

        Raises:
            UserError: a snapshot of another configuration, or of tracks that the split forbids.
        """
        keys = self._checked_snapshot(state)
        self.engine.restore(state, [self._schedule.get(key) for key in keys])
        self._keys = keys
        self._episodes[:] = state["episodes"]
        self._schedule.set_root(int(state["root"]))
        self._frames[:] = state["frames"]
        self._previous = self._frames
        self._started = True
        return self._frames

    def _checked_snapshot(self, state: dict[str, np.ndarray]) -> list[tuple[int, str]]:
        """The tracks of a snapshot that belongs here; nothing is changed."""
        try:
            theirs = json.loads(bytes(np.asarray(state["settings"], np.uint8)))
            ours = json.loads(bytes(self._settings()))
            for name in ours:
                if theirs.get(name) != ours[name]:
                    raise UserError(
                        f"{self._name}: the snapshot is of another environment: "
                        f"{name}={theirs.get(name)}, not {ours[name]}"
                    )
            expected = self.engine.snapshot() | {"frames": self._frames}
            expected |= keys_to_arrays(self._keys)
            expected |= {"episodes": self._episodes, "root": np.array(0, np.int64)}
            for name, array in expected.items():
                if state[name].shape != array.shape or state[name].dtype != array.dtype:
                    raise UserError(f"{self._name}: the snapshot's {name} are damaged")
            self._root_seed(state["root"].item())
            keys = keys_from_arrays(state)
        except KeyError as error:
            raise UserError(f"{self._name}: the snapshot lacks {error}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{self._name}: the snapshot is damaged: {error}") from None
        for track_seed, _ in keys:
            self._schedule.check(track_seed)
        return keys

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            f"{self._name} has threads and cannot be pickled or copied; "
            "make another one and restore(snapshot())"
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Stop builder and engine threads."""
        self._schedule.close()
        self.engine.close()
