"""Noise on a policy's actions, correlated in time, as a hand on a wheel is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.rl.noise import Draws, initial_draws
from common.rl.policy import Carry, Policy
from envs.racing.drivers.draws import BatchRandom, CarRandom

_STREAM = 2  # of a car's draws; drivers have others


class NoiseCarry(NamedTuple):
    """What `ActionNoise` remembers of n cars.

    Attributes:
        policy: the carry of the policy that it disturbs.
        draws: where the cars are in their random sequences.
        state: (n, 3) float64, the processes.
    """

    policy: Carry
    draws: Draws
    state: np.ndarray


class ActionNoise:
    """A policy whose actions are another policy's, disturbed, so that episodes differ.

    Steering gets an additive AR(1) process of standard deviation `scale`; the pedals are scaled by
    its exponential, so a pedal that is not touched stays untouched.

    Args:
        policy: what decides.
        scale: 0 disturbs nothing.
        batch_seed: draw for all cars from one sequence with this seed; see `drivers.draws`.
    """

    memory = 0.9
    """Correlation from one decision to the next."""
    step = 2.0**-14
    """Actions are multiples of it: processors differ in the last bits of a sum, and a car that is
    driven by them is soon elsewhere."""

    def __init__(self, policy: Policy, scale: float, batch_seed: int | None = None) -> None:
        self._policy, self._scale = policy, scale
        self.spec = policy.spec
        self._batch = None if batch_seed is None else BatchRandom(np.random.default_rng(batch_seed))

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> NoiseCarry:
        """See `common.rl.policy.Policy`."""
        return NoiseCarry(self._policy.initial(n, seeds), initial_draws(n, seeds), np.zeros((n, 3)))

    def act(
        self,
        carry: NoiseCarry,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, NoiseCarry]:
        """Actions (n, 3) float32 within their bounds; see `common.rl.policy.Policy`.

        `deterministic` is the other policy's: the noise is there in any case.
        """
        actions, inner = self._policy.act(carry.policy, observation, is_first, deterministic)
        random = self._batch or CarRandom(carry.draws, _STREAM)
        fresh = random.normal(np.ones(len(actions), bool), 3)
        state = np.where(is_first[:, None], 0.0, carry.state) * self.memory
        state += self._scale * np.sqrt(1 - self.memory**2) * fresh
        steer = np.clip(actions[:, :1] + state[:, :1], -1.0, 1.0)
        pedals = np.clip(actions[:, 1:] * np.exp(state[:, 1:]), 0.0, 1.0)
        steps = np.round(np.concatenate([steer, pedals], 1) / self.step)
        disturbed = (steps * self.step + 0.0).astype(np.float32)  # no negative zeros
        return disturbed, NoiseCarry(inner, carry.draws.advance(), state)
