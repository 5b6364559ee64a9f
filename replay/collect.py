"""Driving turned into episodes: from a vector environment and a policy, or from any single one.

One row is one step of the environment. A policy that wants other frames than the environment's, or
holds its actions for several ticks, is wrapped first, for example in `envs.racing.drivers.PerTick`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from common.errors import UserError
from common.rl.policy import ObservationSpec, Policy, select_observation
from common.seeding import derive
from common.telemetry import TELEMETRY
from replay.schema import ACTION_SIZE, OBSERVATION_SHAPE, Episode

UNKNOWN_TRACK = -1
"""The track seed of an episode whose environment does not say it."""


class Writer(Protocol):
    """Where episodes go, such as `replay.shards.ShardWriter`."""

    def add(self, episode: Episode) -> None:
        """Take a finished episode."""


@dataclass(frozen=True)
class Collected:
    """Rows and episodes that were written."""

    rows: int
    episodes: int


class EpisodeRecorder:
    """The rows of an episode under way, in the timing of `replay.schema`.

    Everything that is handed in is copied.

    Args:
        observation: (96, 96, 3) uint8, the first.
        telemetry: values that came with it, by name.
        track_seed, direction, scenario: see `Episode`.
    """

    def __init__(
        self,
        observation: np.ndarray,
        telemetry: Mapping[str, float],
        *,
        scenario: str,
        track_seed: int = UNKNOWN_TRACK,
        direction: int = 0,
    ) -> None:
        self._about = {"track_seed": track_seed, "direction": direction, "scenario": scenario}
        self._observation = [np.array(observation)]
        self._action = [np.zeros(ACTION_SIZE, np.float32)]
        self._reward = [0.0]
        self._telemetry = [dict(telemetry)]
        self._end = (False, False)

    def __len__(self) -> int:
        """Rows so far."""
        return len(self._observation)

    def add(
        self,
        action: np.ndarray,
        observation: np.ndarray,
        reward: float,
        terminated: bool,
        truncated: bool,
        telemetry: Mapping[str, float],
    ) -> None:
        """One step: the action (3,) applied, and all that came of it."""
        self._action.append(np.array(action, np.float32))
        self._observation.append(np.array(observation))
        self._reward.append(float(reward))
        self._telemetry.append(dict(telemetry))
        self._end = (bool(terminated), bool(truncated))

    def episode(self) -> Episode:
        """The rows so far as an episode; `UserError` where they are not fit to be one."""
        names = self._telemetry[0]
        ends = np.zeros((2, len(self)), np.bool_)
        ends[:, -1] = self._end
        return Episode(
            observation=np.stack(self._observation),
            action=np.stack(self._action),
            reward=np.array(self._reward, np.float32),
            terminated=ends[0],
            truncated=ends[1],
            telemetry={
                name: np.array([row[name] for row in self._telemetry], np.float32) for name in names
            },
            **self._about,
        )


def collect(
    env: VectorEnv,
    policy: Policy,
    writer: Writer,
    *,
    frames: int,
    scenario: str,
    direction: int = 0,
    telemetry: Sequence[str] = tuple(TELEMETRY),
    length: int | None = None,
    warmup: int = 0,
    seed: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Collected:
    """Drive until episodes of `frames` rows in all are written.

    Which episodes are written does not depend on how they end: every one that begins is finished
    and written, and none begins once those written and under way fill the budget. (Taking what
    ends first would prefer short episodes.) Without `length` the sum therefore exceeds the budget
    by what the last episodes still have to drive. With it, the sum is `frames` (one row more where
    a single one is left), because episodes that end early are followed by others.

    Args:
        env: cars that are alone in their worlds; autoreset SAME_STEP, with `final_obs`.
        policy: decides at every step, for all environments; its observations are the environment's
            or telemetry of its `info`. It acts deterministically.
        writer: takes the episodes, in the order in which they end.
        frames: rows to write, first and last observations of episodes included.
        scenario, direction: recorded with every episode.
        telemetry: names that must be in every `info` (and `final_info`).
        length: rows after which an episode is cut. It is not marked as ended, and its environment
            is reset by `options={"reset_mask": ...}`. None records to the end.
        warmup: at most so many steps pass before recording begins. Their number is drawn for every
            episode, so that not all recordings show the standing start.
        seed: of the warm-ups, and of what the policy draws.
        progress: called with the number of rows so far after every step.

    Raises:
        UserError: an environment of another kind, telemetry that is missing, or a policy that does
            not take this environment's frames.
    """
    if env.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
        raise UserError("collect needs an environment that resets in the same step (SAME_STEP)")
    if frames < 1 or (length is not None and length < 2) or warmup < 0:
        raise UserError("collect: frames is at least 1, length at least 2, warmup at least 0")
    _check_spec(policy, env)
    rng = np.random.default_rng(seed)
    carry = policy.initial(
        env.num_envs, [derive(seed, "policy", slot) for slot in range(env.num_envs)]
    )
    recorders: list[EpisodeRecorder | None] = [None] * env.num_envs
    targets = np.zeros(env.num_envs, np.int64)
    is_first = np.ones(env.num_envs, bool)
    steps_to_wait = np.zeros(env.num_envs, np.int64)
    rows = episodes = 0
    observation, info = env.reset()
    while True:
        _check_info(info, telemetry)
        if not np.all(info.get("active", True)):
            raise UserError("collect records cars that are alone in their worlds: num_agents=1")
        steps_to_wait[is_first] = rng.integers(0, warmup, is_first.sum(), endpoint=True)
        under_way = [i for i, recorder in enumerate(recorders) if recorder is not None]
        planned = rows + sum(max(targets[i], len(recorders[i])) for i in under_way)
        for i in np.flatnonzero(steps_to_wait == 0):
            if recorders[i] is not None or planned >= frames:
                continue
            recorders[i] = EpisodeRecorder(
                observation[i],
                _row(info, telemetry, i),
                scenario=scenario,
                track_seed=int(info["track_seed"][i]) if "track_seed" in info else UNKNOWN_TRACK,
                direction=direction,
            )
            # An episode takes a step; a single row is no use to anyone.
            targets[i] = 1 if length is None else max(min(length, frames - planned), 2)
            planned += targets[i]
        if all(recorder is None for recorder in recorders) and rows >= frames:
            return Collected(rows, episodes)
        observed = select_observation(policy.spec, observation, info)
        actions, carry = policy.act(carry, observed, is_first)
        actions = np.array(actions, np.float32)
        observation, reward, terminated, truncated, info = env.step(actions)
        ended = np.asarray(terminated) | np.asarray(truncated)
        cut = np.zeros(env.num_envs, bool)
        for i, recorder in enumerate(recorders):
            if recorder is None:
                continue
            if ended[i]:
                final = info["final_info"] if telemetry else {}
                _check_info(final, telemetry)
                last, values = info["final_obs"][i], _row(final, telemetry, i)
            else:
                last, values = observation[i], _row(info, telemetry, i)
            recorder.add(actions[i], last, reward[i], terminated[i], truncated[i], values)
            cut[i] = length is not None and not ended[i] and len(recorder) == targets[i]
            if ended[i] or cut[i]:
                writer.add(recorder.episode())
                rows, episodes = rows + len(recorder), episodes + 1
                recorders[i] = None
        if progress is not None:
            progress(rows + sum(len(recorder) for recorder in recorders if recorder is not None))
        is_first = ended | cut
        steps_to_wait = np.maximum(steps_to_wait - 1, 0)
        if cut.any():
            observation, info = env.reset(options={"reset_mask": cut})


def _check_spec(policy: Policy, env: VectorEnv) -> None:
    shape = env.single_observation_space.shape
    if isinstance(policy.spec, ObservationSpec) and policy.spec.shape != shape:
        raise UserError(
            f"the policy takes frames {policy.spec.shape} and the environment shows {shape}; wrap "
            "it in envs.racing.drivers.PerTick"
        )


def _check_info(info: Mapping[str, Any], telemetry: Sequence[str]) -> None:
    missing = [name for name in telemetry if name not in info]
    if missing:
        raise UserError(f"the environment's info has no telemetry named {', '.join(missing)}")


def _row(info: Mapping[str, Any], telemetry: Sequence[str], i: int) -> dict[str, float]:
    return {name: float(info[name][i]) for name in telemetry}


class RecordReplay(gym.Wrapper):
    """Records whatever drives a single Gymnasium environment with image observations.

    Frames of another size are shrunk to 96 x 96 by area, grey ones get three equal channels. Box
    actions of up to three numbers are padded with zeros and discrete ones of up to three choices
    written as one-hot; others need `to_action`. An episode that a reset interrupts is written as
    far as it got; `close` writes the last one.

    Args:
        env: any environment with uint8 images (H, W), (H, W, 1) or (H, W, 3).
        writer: takes the episodes; of a `ShardWriter`, its attributes name the same telemetry.
        scenario: recorded with every episode.
        telemetry: names that must be in every `info`; none by default.
        to_action: an action of `env` as (3,) float32.

    Raises:
        UserError: observations or actions that cannot be recorded.
    """

    def __init__(
        self,
        env: gym.Env,
        writer: Writer,
        *,
        scenario: str,
        telemetry: Sequence[str] = (),
        to_action: Callable[[Any], np.ndarray] | None = None,
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        shape = space.shape if isinstance(space, spaces.Box) and space.dtype == np.uint8 else None
        if shape is None or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,)):
            raise UserError(f"observations are no uint8 images (H, W[, 1 or 3]): {space}")
        self._writer, self._scenario, self._telemetry = writer, scenario, tuple(telemetry)
        self._to_action = to_action or _action_of(env.action_space)
        self._recorder: EpisodeRecorder | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """As the environment's; `seed` becomes the episode's track seed."""
        self._finish()
        observation, info = self.env.reset(seed=seed, options=options)
        self._recorder = EpisodeRecorder(
            _frame(observation),
            self._values(info),
            scenario=self._scenario,
            track_seed=UNKNOWN_TRACK if seed is None else seed,
        )
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """As the environment's; steps beyond an episode's end are not recorded."""
        recorded = self._to_action(action)  # before the environment can change it
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._recorder is not None:
            frame, values = _frame(observation), self._values(info)
            self._recorder.add(recorded, frame, reward, terminated, truncated, values)
            if terminated or truncated:
                self._finish()
        return observation, reward, terminated, truncated, info

    def close(self) -> None:
        """Write what is under way and close the environment; the writer stays open."""
        self._finish()
        super().close()

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None and len(recorder) > 1:
            self._writer.add(recorder.episode())

    def _values(self, info: Mapping[str, Any]) -> dict[str, float]:
        _check_info(info, self._telemetry)
        return {name: float(info[name]) for name in self._telemetry}


def _frame(observation: np.ndarray) -> np.ndarray:
    """(96, 96, 3) uint8 from an image (H, W), (H, W, 1) or (H, W, 3) uint8."""
    frame = np.asarray(observation)
    if frame.shape[:2] != OBSERVATION_SHAPE[:2]:
        import cv2  # here, as the racing world's frames have the right size

        frame = cv2.resize(frame, OBSERVATION_SHAPE[1::-1], interpolation=cv2.INTER_AREA)
    frame = frame.reshape(*OBSERVATION_SHAPE[:2], -1)
    return np.broadcast_to(frame, OBSERVATION_SHAPE)


def _action_of(space: spaces.Space) -> Callable[[Any], np.ndarray]:
    """How an action of `space` is written as (3,) float32."""
    if isinstance(space, spaces.Box) and np.prod(space.shape) <= ACTION_SIZE:

        def padded(action: Any) -> np.ndarray:
            values = np.asarray(action, np.float32).ravel()
            return np.pad(values, (0, ACTION_SIZE - len(values)))

        return padded
    if isinstance(space, spaces.Discrete) and space.n <= ACTION_SIZE:
        return lambda action: np.eye(ACTION_SIZE, dtype=np.float32)[int(action) - int(space.start)]
    raise UserError(f"say by to_action how to write an action of {space} as {ACTION_SIZE} numbers")
