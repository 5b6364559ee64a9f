"""A policy asked at every engine tick, from whole frames: it decides when its time has come.

Recordings have a row for every tick, while most policies hold an action for several. `PerTick`
stands between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.rl.controls import ticks_since_decision
from common.rl.policy import Carry, ObservationSpec, Policy, TelemetrySpec, index, put
from envs.racing.pixels.adapter import FrameAdapter, push


class PerTickCarry(NamedTuple):
    """What `PerTick` remembers of n cars.

    Attributes:
        policy: the carry of the policy that decides.
        stack: (n, frame_stack, ...) uint8, the frames of its last decisions; empty if it reads
            telemetry.
        ticks: (n,) int64, ticks since the last decision.
        action: (n, 3) float32, what is held.
    """

    policy: Carry
    stack: np.ndarray
    ticks: np.ndarray
    action: np.ndarray


class PerTick:
    """Drives tick by tick with a policy that decides every `policy.spec.action_repeat` ticks.

    Its observations are 96 x 96 RGB frames (or the same telemetry as `policy`'s), and it does for
    the policy what the engine does in training: shrink, grey, stack, hold the action.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._repeat = policy.spec.action_repeat
        if isinstance(policy.spec, TelemetrySpec):
            self.spec = TelemetrySpec(policy.spec.names)
            self._adapter, self._stack_shape = None, ()
        else:
            spec = policy.spec
            self.spec = ObservationSpec()
            self._adapter = FrameAdapter(spec)
            colours = () if spec.grey else (3,)
            self._stack_shape = (spec.frame_stack, spec.size, spec.size, *colours)

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> PerTickCarry:
        """See `common.rl.policy.Policy`."""
        return PerTickCarry(
            self._policy.initial(n, seeds),
            np.zeros((n, *self._stack_shape), np.uint8),
            np.zeros(n, np.int64),
            np.zeros((n, 3), np.float32),
        )

    def act(
        self,
        carry: PerTickCarry,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, PerTickCarry]:
        """The action of the next tick; see `common.rl.policy.Policy`."""
        ticks, due = ticks_since_decision(carry.ticks, is_first, self._repeat)
        rows = np.flatnonzero(due)
        if not len(rows):
            return carry.action, carry._replace(ticks=ticks)
        stack, action = carry.stack, carry.action.copy()
        if self._adapter is None:
            observed = observation[rows]
        else:
            stack = stack.copy()
            for row in rows:
                push(stack[row], self._adapter.convert(observation[row]), fill=is_first[row])
            observed = stack[rows].reshape(len(rows), *self._policy.spec.shape)
        inner = index(carry.policy, rows)
        action[rows], inner = self._policy.act(inner, observed, is_first[rows], deterministic)
        return action, PerTickCarry(put(carry.policy, rows, inner), stack, ticks, action)
