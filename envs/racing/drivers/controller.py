"""A scripted driver that follows the middle of the road: for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from common.rl.policy import TelemetrySpec
from envs.racing.sim.dynamics import DT


class CentrelineDriver:
    """Follows the centreline of every car of a batch, slowing down for what comes.

    The carry is the lateral offset at the decision before, (n,) float32.

    Args:
        speed: units/s on a straight.
        corner_speed: units/s at a heading change of one radian over the next 21 units.
        repeat: engine ticks between two decisions.
    """

    def __init__(self, speed: float = 60.0, corner_speed: float = 30.0, repeat: int = 1) -> None:
        self.spec = TelemetrySpec(("lateral_offset", "corner_angle", "speed"), repeat)
        self.speed = speed
        self.corner_speed = corner_speed

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> np.ndarray:
        """See `common.rl.policy.Policy`; nothing here is random."""
        return np.zeros(n, np.float32)

    def act(
        self,
        carry: np.ndarray,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Actions (n, 3) float32; see `common.rl.policy.Policy`."""
        lateral, corner, speed = self.spec.split(observation).values()
        change = lateral - np.where(is_first, lateral, carry)
        # Drift across the road over the distance driven is the sine of the heading error.
        drift = change / np.maximum(speed * self.spec.action_repeat * DT, 0.2)
        # A jump of the offset is another part of the road coming nearest, not drift.
        drift = np.where(np.abs(change) > 3.0, 0.0, np.clip(drift, -0.7, 0.7))
        left = 0.55 * corner - 0.06 * lateral - 1.0 * drift
        goal = self.speed + (self.corner_speed - self.speed) * np.clip(np.abs(corner), 0.0, 1.0)
        gas = np.clip(0.1 * (goal - speed), 0.0, 0.6)
        brake = np.clip(0.03 * (speed - goal - 5.0), 0.0, 0.4)
        actions = np.stack([np.clip(-left, -1, 1), gas, brake], 1).astype(np.float32)
        return actions, lateral
