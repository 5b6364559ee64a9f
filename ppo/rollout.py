"""Collecting experience: a buffer over streams, and the loop that fills it.

A stream is one agent's slot in one environment, n_streams = n_envs x num_agents. Every array is
(num_steps, n_streams, ...). A row is inactive if its agent had already ended before it: it holds no
experience and counts in no sum.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from common.rl.controls import ACTION_SIZE
from common.rl.policy import ObservationSpec
from common.rl.returns import gae
from common.rl.scaling import ReturnScaler
from common.torch.checkpoint import to_arrays, to_tensors
from ppo.policy import ActorCritic, pixel_shape, to_pixels


class RolloutBuffer:
    """One rollout of `num_steps` decisions in each of `n_streams` streams, allocated once.

    `u` holds the policy's `n_controls` numbers before squashing, `action` steer, gas and brake.
    """

    def __init__(
        self,
        num_steps: int,
        n_streams: int,
        spec: ObservationSpec,
        n_controls: int,
        device: torch.device,
    ) -> None:
        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(num_steps, n_streams, *shape, dtype=dtype, device=device)

        self.num_steps, self.n_streams = num_steps, n_streams
        self.pixels = zeros(*pixel_shape(spec), dtype=torch.uint8)
        self.u = zeros(n_controls)
        self.action = zeros(ACTION_SIZE)
        self.log_prob, self.value, self.reward = zeros(), zeros(), zeros()
        self.terminated, self.done = zeros(dtype=torch.bool), zeros(dtype=torch.bool)
        self.active = zeros(dtype=torch.bool)
        self.advantage, self.target = zeros(), zeros()
        self._finals: list[tuple[int, int, Tensor]] = []

    def clear(self) -> None:
        """Forget the last rollout's endings; the arrays are overwritten row by row."""
        self._finals.clear()

    def add_final(self, step: int, stream: int, pixels: Tensor) -> None:
        """Keep the final observation of a truncated episode: its value is bootstrapped from it."""
        self._finals.append((step, stream, pixels))

    def next_values(self, value_fn: Callable[[Tensor], Tensor], last_pixels: Tensor) -> Tensor:
        """Value of the state that each row led to, (num_steps, n_streams).

        The following row's value within an episode, that of the final observation where the
        episode was truncated. (What follows a terminated row is never used.)
        """
        following = torch.cat([self.value[1:], value_fn(last_pixels)[None]])
        if self._finals:
            steps, streams, pixels = zip(*self._finals, strict=True)
            following[list(steps), list(streams)] = value_fn(torch.stack(pixels))
        return following

    def compute_advantages(
        self, next_value: Tensor, gamma: float, lam: float, reward_scale: float = 1.0
    ) -> None:
        """Fill `advantage` and `target` (the lambda-return, in the value's scale)."""
        self.advantage[:] = gae(
            self.reward * reward_scale,
            self.value,
            next_value,
            self.terminated,
            self.done,
            gamma,
            lam,
        )
        self.target[:] = self.advantage + self.value

    def flat(self, name: str) -> Tensor:
        """The array called `name` as (num_steps * n_streams, ...), a view."""
        return getattr(self, name).flatten(0, 1)

    def take(self, name: str, rows: Tensor) -> Tensor:
        """Copies of the flat rows `rows` of the array called `name`."""
        return self.flat(name).index_select(0, rows)  # 7 times faster than indexing, on pixels

    def active_rows(self) -> Tensor:
        """Indices into the flat arrays of the rows that are experience."""
        return self.flat("active").nonzero().squeeze(-1)


@dataclass
class RolloutStats:
    """What happened while a buffer was filled.

    `ticks` are those that the engine ran: an episode may end inside an action repeat.
    `episodes` has one entry per ended episode; `reward_terms` sums each named term over the rows.
    """

    decisions: int = 0
    ticks: int = 0
    reward: float = 0.0
    episodes: list[dict[str, float]] = field(default_factory=list)
    reward_terms: dict[str, float] = field(default_factory=dict)


class RolloutCollector:
    """Drives a SAME_STEP vector environment with the current policy and fills a buffer."""

    def __init__(
        self,
        env: gymnasium.vector.VectorEnv,
        spec: ObservationSpec,
        policy: ActorCritic,
        buffer: RolloutBuffer,
        generator: torch.Generator,
        autocast: Callable[[], AbstractContextManager] = nullcontext,
        bootstrap_truncation: bool = True,
    ) -> None:
        mode = env.metadata.get("autoreset_mode")
        if mode != gymnasium.vector.AutoresetMode.SAME_STEP:
            # Under NEXT_STEP every reset adds a row that is no experience (rl_games #362).
            raise ValueError(f"the environment resets in mode {mode}, not SAME_STEP")
        self.env, self.spec, self.policy, self.buffer = env, spec, policy, buffer
        self.generator, self.autocast = generator, autocast
        self.bootstrap_truncation = bootstrap_truncation
        self.device = buffer.pixels.device
        self.pixels: Tensor | None = None
        self.active = torch.ones(buffer.n_streams, dtype=torch.bool)

    def reset(self, seed: int | None = None) -> None:
        """Start every stream afresh."""
        observations, info = self.env.reset(seed=seed)
        self.pixels = self._copied(observations)
        self.active = _active(info, self.buffer.n_streams)

    def state_dict(self) -> dict[str, Any]:
        """The environment and which slots are active, as tensors and plain data."""
        return {"env": to_tensors(self.env.snapshot()), "active": self.active}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved environment; the real CarRacing-v3 starts afresh."""
        # Observations are not saved: a restored environment draws them again.
        self.pixels = self._copied(self.env.restore(to_arrays(state["env"])))
        self.active = state["active"]

    @torch.inference_mode()
    def collect(self) -> RolloutStats:
        """Fill the buffer with one rollout, from where the last one stopped."""
        if self.pixels is None:
            self.reset()
        buffer, stats, terms = self.buffer, RolloutStats(), {}
        buffer.clear()
        for t in range(buffer.num_steps):
            buffer.pixels[t] = self.pixels
            with self.autocast():
                decision = self.policy.decide(buffer.pixels[t], self._noise())
            buffer.u[t], buffer.action[t] = decision.u, decision.action
            buffer.log_prob[t], buffer.value[t] = decision.log_prob, decision.value
            buffer.active[t] = self.active
            observations, reward, terminated, truncated, info = self.env.step(
                decision.action.cpu().numpy()
            )
            done = terminated | truncated
            buffer.reward[t] = torch.from_numpy(reward) * self.active
            ended = terminated if self.bootstrap_truncation else done
            buffer.terminated[t] = torch.from_numpy(ended)
            buffer.done[t] = torch.from_numpy(done)
            active = self.active.numpy()
            for stream in np.flatnonzero(truncated & ~ended & active):
                final = self._copied(info["final_obs"][stream][None])
                buffer.add_final(t, int(stream), final[0])
            if done.any():
                stats.episodes += _episodes(info, active)
            for name, values in info.get("reward_terms", {}).items():
                terms[name] = terms.get(name, 0.0) + values * active
            stats.decisions += int(active.sum())
            stats.ticks += int(info["ticks"].sum())
            self.pixels = self._copied(observations)
            self.active = _active(info, buffer.n_streams)
        stats.reward = float(buffer.reward.sum())
        stats.reward_terms = {name: float(np.sum(values)) for name, values in terms.items()}
        return stats

    @torch.inference_mode()
    def finish(self, gamma: float, lam: float, scaler: ReturnScaler | None) -> None:
        """Turn the collected rollout into advantages and value targets."""
        buffer = self.buffer
        if scaler is not None:
            scaler.update(buffer.reward, buffer.done, buffer.active)
        with self.autocast():
            next_value = buffer.next_values(self.policy.state_value, self.pixels)
        buffer.compute_advantages(next_value, gamma, lam, scaler.scale if scaler else 1.0)

    def _noise(self) -> Tensor:
        shape = (self.buffer.n_streams, len(self.policy.controls))
        # Drawn on the CPU, so that a seed means the same on every device.
        return torch.randn(shape, generator=self.generator).to(self.device)

    def _copied(self, observations: np.ndarray) -> Tensor:
        """A copy on the training device: the environment overwrites its buffer in the next step."""
        pixels = to_pixels(observations, self.spec)
        return pixels.to(self.device, memory_format=torch.contiguous_format, copy=True)


def _active(info: Mapping[str, Any], n_streams: int) -> Tensor:
    """Slots whose agent is still driving in the observation just returned."""
    active = info.get("active")
    return torch.ones(n_streams, dtype=torch.bool) if active is None else torch.tensor(active)


def _episodes(info: Mapping[str, Any], active: np.ndarray) -> list[dict[str, float]]:
    statistics, ended = info.get("episode_statistics"), info.get("_episode_statistics")
    if statistics is None or ended is None:
        return []
    return [
        {name: float(values[stream]) for name, values in statistics.items()}
        for stream in np.flatnonzero(ended & active)
    ]
