"""A scripted driver that steers by telemetry: for benchmarks, tests and replay recipes."""

from __future__ import annotations

from typing import Any

import numpy as np

from envs.racing.sim.dynamics import DT


class CentrelineDriver:
    """Follows the centreline of every car of a batch, slowing down for what comes.

    Args:
        speed: units/s on a straight.
        corner_speed: units/s at a heading change of one radian over the next 21 units.
        repeat: engine ticks between two calls.
    """

    def __init__(self, speed: float = 60.0, corner_speed: float = 30.0, repeat: int = 1) -> None:
        self.speed = speed
        self.corner_speed = corner_speed
        self._seconds = repeat * DT
        self._lateral: np.ndarray | None = None

    def reset(self) -> None:
        """Forget the last step: call it when episodes start."""
        self._lateral = None

    def act(self, info: dict[str, Any]) -> np.ndarray:
        """(n, 3) float32 actions from an info with telemetry arrays of length n."""
        lateral, corner, speed = info["lateral_offset"], info["corner_angle"], info["speed"]
        previous = lateral if self._lateral is None else self._lateral
        self._lateral = lateral.copy()
        # Drift across the road over the distance driven is the sine of the heading error.
        drift = (lateral - previous) / np.maximum(speed * self._seconds, 0.2)
        # A jump of the offset is a new episode, not drift.
        drift = np.where(np.abs(lateral - previous) > 3.0, 0.0, np.clip(drift, -0.7, 0.7))
        left = 0.55 * corner - 0.06 * lateral - 1.0 * drift
        turn = np.clip(np.abs(corner), 0.0, 1.0)
        goal = self.speed + (self.corner_speed - self.speed) * turn
        gas = np.clip(0.1 * (goal - speed), 0.0, 0.6)
        brake = np.clip(0.03 * (speed - goal - 5.0), 0.0, 0.4)
        return np.stack([np.clip(-left, -1, 1), gas, brake], 1).astype(np.float32)
