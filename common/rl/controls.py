"""Turns decisions into steer, gas and brake: one pedal or two, and actions held for some ticks.

PPO, data collection, dreams and an actor in imagination share this module, so that a decision means
the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from common.rl.policy import TelemetrySpec

if TYPE_CHECKING:
    from torch import Tensor

ACTION_SIZE = 3
"""Numbers of the environment's action: steer [-1, 1], gas and brake [0, 1]."""

CONTROLS = {
    "one": {"steer": (-1.0, 1.0), "pedal": (-1.0, 1.0)},
    "two": {"steer": (-1.0, 1.0), "gas": (0.0, 1.0), "brake": (0.0, 1.0)},
}
"""Number of pedals -> the controls that a policy decides, with their bounds."""


def press(controls: Tensor) -> Tensor:
    """The action (..., 3), steer, gas and brake, that `controls` (..., 2 or 3) stand for.

    With one pedal, a positive value is the gas, and the square of a negative value is the brake.
    The square makes the brake weak near zero. Otherwise the noise of training would cost speed, and
    the deterministic driver would be faster than the trained one.
    """
    if controls.shape[-1] == ACTION_SIZE:
        return controls
    import torch  # here, because drivers without a network do not need it

    steer, pedal = controls.unbind(-1)
    return torch.stack([steer, pedal.clamp(min=0), (-pedal).clamp(min=0).square()], -1)


def ticks_since_decision(
    previous: np.ndarray, is_first: np.ndarray, repeat: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which cars decide at this tick, if every action is held for `repeat` ticks.

    Args:
        previous: (n,) int64, ticks since the last decision, at the tick before.
        is_first: (n,) bool; a car decides at the first tick of an episode.

    Returns:
        (n,) ticks since the last decision, 0 for cars that decide now; (n,) bool, which cars
        decide now.
    """
    ticks = np.where(is_first, 0, (previous + 1) % repeat)
    return ticks, ticks == 0


class Recorded:
    """A policy that plays recorded actions, (ticks, 3), and then keeps the last one.

    Every car plays them from the start of its episode; the carry is the tick, (n,) int64.
    """

    def __init__(self, actions: Any) -> None:
        self.spec = TelemetrySpec()
        self._actions = np.asarray(actions, np.float32).reshape(-1, ACTION_SIZE)
        if not len(self._actions):
            raise ValueError("there are no recorded actions to play")

    def initial(self, n: int, seeds: Any = None) -> np.ndarray:
        """See `common.rl.policy.Policy`; nothing here is random."""
        return np.zeros(n, np.int64)

    def act(
        self,
        carry: np.ndarray,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The recorded action of every car's tick."""
        tick = np.where(is_first, 0, carry)
        return self._actions[np.minimum(tick, len(self._actions) - 1)], tick + 1
