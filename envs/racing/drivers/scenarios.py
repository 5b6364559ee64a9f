"""Seven ways to drive that a policy trained for speed shows too rarely, each under its own name."""

from __future__ import annotations

from typing import Any

import numpy as np

from common.errors import UserError
from envs.racing.sim.dynamics import DT
from envs.racing.sim.track import HALF_WIDTH

BEND = 0.35
"""|corner_angle| (rad over the next 21 units) from which on a driver says that it is in a bend."""


class ActionNoise:
    """Disturbs actions so that episodes differ: correlated in time, as a hand on a wheel is.

    Steering gets an additive AR(1) process of standard deviation `scale`; the pedals are scaled by
    its exponential, so a pedal that is not touched stays untouched.

    Args:
        num_envs: cars.
        seed: of the noise.
        scale: 0 disturbs nothing.
    """

    memory = 0.9
    """Correlation from one tick to the next."""
    step = 2.0**-14
    """Actions are multiples of it: processors differ in the last bits of a sum, and a car that is
    driven by them is soon elsewhere."""

    def __init__(self, num_envs: int, seed: int, scale: float) -> None:
        self._rng = np.random.default_rng(seed)
        self._scale = scale
        self._state = np.zeros((num_envs, 3))

    def disturb(self, actions: np.ndarray, is_first: np.ndarray) -> np.ndarray:
        """Actions (n, 3) float32 within their bounds; `is_first` (n,) bool forgets the past."""
        self._state[is_first] = 0.0
        fresh = self._scale * np.sqrt(1 - self.memory**2)
        self._state *= self.memory
        self._state += fresh * self._rng.standard_normal(self._state.shape)
        steer = np.clip(actions[:, :1] + self._state[:, :1], -1.0, 1.0)
        pedals = np.clip(actions[:, 1:] * np.exp(self._state[:, 1:]), 0.0, 1.0)
        whole = np.round(np.concatenate([steer, pedals], 1) / self.step)
        return (whole * self.step + 0.0).astype(np.float32)  # no negative zeros


class ScenarioDriver:
    """Follows a line beside the centreline of every car of a batch and finds back from anywhere.

    Unlike `CentrelineDriver`, it knows the way that the car moves relative to the road (from
    lateral drift and progress), so a car that spun or left the road turns round and returns. What
    a scenario changes is the line (`_line`) and the pedals (`_goal`, `_pedals`).

    Args:
        num_envs: cars.
        seed: of the episodes' draws and of the noise.
        noise: scale of `ActionNoise`.
        pace: factor on all speeds; above 1.1 the bends become too fast for the grip.
        half_width: of the road, units.
    """

    speed, corner_speed = 50.0, 34.0
    """units/s on a straight, and at a heading change of one radian over the next 21 units."""
    line_gain = 0.06
    """rad of heading for every unit beside the line."""

    def __init__(
        self,
        num_envs: int,
        seed: int = 0,
        noise: float = 0.1,
        pace: float = 1.0,
        half_width: float = HALF_WIDTH,
    ) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self._noise = ActionNoise(num_envs, seed, noise)
        self._half_width = half_width
        self._pace, self._own_pace = pace, np.full(num_envs, pace)
        self._tick = np.zeros(num_envs, np.int64)
        self._lateral = np.zeros(num_envs)

    def act(self, info: dict[str, Any], is_first: np.ndarray) -> np.ndarray:
        """(n, 3) float32 actions for one engine tick.

        Args:
            info: telemetry arrays of length n.
            is_first: (n,) bool, cars whose episode starts with this telemetry.
        """
        lateral, corner = info["lateral_offset"], info["corner_angle"]
        self._tick = np.where(is_first, 0, self._tick + 1)
        self._lateral = np.where(is_first, lateral, self._lateral)
        if is_first.any():
            self._own_pace[is_first] = self._pace * self._rng.uniform(0.9, 1.1, is_first.sum())
            self._begin(is_first)
        course = np.arctan2(lateral - self._lateral, info["progress_delta"])
        course = np.where(info["speed"] < 1.0, 0.0, course)  # standing still it is rounding
        self._lateral = lateral.copy()
        wanted = np.clip(self.line_gain * (self._line(info) - lateral), -0.5, 0.5)
        left = 0.55 * corner + wanted - course
        missing = self._own_pace * self._goal(info) - info["speed"]
        gas = np.clip(0.1 * missing, 0.0, 0.6)
        brake = np.clip(-0.03 * (missing + 5.0), 0.0, 0.4)
        lost = np.abs(course) > 1.0
        gas, brake = self._pedals(info, gas, brake)
        gas = np.where(lost & (info["speed"] > 15.0), 0.0, gas)  # power would keep it spinning
        actions = np.stack([np.clip(-left, -1.0, 1.0), gas, brake], 1)
        return self._noise.disturb(actions, is_first)

    def _begin(self, which: np.ndarray) -> None:
        """Draw what is special about the episodes that start in `which`, (n,) bool."""

    def _line(self, info: dict[str, Any]) -> np.ndarray | float:
        """Lateral offset to drive at, units."""
        return 0.0

    def _goal(self, info: dict[str, Any]) -> np.ndarray | float:
        """Speed to drive at, units/s."""
        turn = np.clip(np.abs(info["corner_angle"]), 0.0, 1.0)
        return self.speed + (self.corner_speed - self.speed) * turn

    def _pedals(
        self, info: dict[str, Any], gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gas and brake, (n,) each, given those that hold the goal."""
        return gas, brake


class SustainedTurn(ScenarioDriver):
    """Carries one speed through bends and straights alike."""

    speed = corner_speed = 42.0


class TurnExit(ScenarioDriver):
    """Slow into a bend, as much gas as the grip allows as soon as it opens."""

    speed, corner_speed = 62.0, 28.0

    def __init__(self, num_envs: int, *args: Any, **options: Any) -> None:
        super().__init__(num_envs, *args, **options)
        self._sharpest = np.zeros(num_envs)

    def _begin(self, which: np.ndarray) -> None:
        self._sharpest[which] = 0.0

    def _pedals(
        self, info: dict[str, Any], gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        bend = np.abs(info["corner_angle"])
        # The memory of a bend fades within a second of its end.
        self._sharpest = np.maximum(bend, 0.97 * self._sharpest)
        opening = (self._sharpest > BEND) & (bend < 0.7 * self._sharpest)
        return np.where(opening, 0.5, gas), np.where(opening, 0.0, brake)


class SteeringReversal(ScenarioDriver):
    """Weaves from one side of the road to the other."""

    speed, corner_speed = 45.0, 32.0
    line_gain = 0.12

    def __init__(self, num_envs: int, *args: Any, **options: Any) -> None:
        super().__init__(num_envs, *args, **options)
        self._period, self._phase = np.ones(num_envs), np.zeros(num_envs)

    def _begin(self, which: np.ndarray) -> None:
        self._period[which] = self._rng.uniform(1.4, 2.2, which.sum()) / DT
        self._phase[which] = self._rng.uniform(0.0, 2 * np.pi, which.sum())

    def _line(self, info: dict[str, Any]) -> np.ndarray:
        swing = np.sin(2 * np.pi * self._tick / self._period + self._phase)
        return 0.6 * self._half_width * swing


class ThrottleLift(ScenarioDriver):
    """Full gas on the straight; lifts at a bend's entry, rolls through it and never brakes."""

    speed = corner_speed = 55.0
    slowest = 25.0
    """units/s; below, it keeps rolling with a little gas."""

    def _pedals(
        self, info: dict[str, Any], gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lift = (np.abs(info["corner_angle"]) > 0.25) & (info["speed"] > self.slowest)
        return np.where(lift, 0.0, gas), np.zeros_like(brake)


class BrakeInTurn(ScenarioDriver):
    """Arrives at a bend with speed and brakes while it turns."""

    speed = corner_speed = 52.0
    slowest = 28.0

    def _pedals(
        self, info: dict[str, Any], gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        bend = np.abs(info["corner_angle"]) > BEND
        slow = info["speed"] < self.slowest
        gas = np.where(bend & ~slow, 0.0, gas)
        return gas, np.where(bend & ~slow, 0.12, 0.0)


class OffTrackRecovery(ScenarioDriver):
    """Leaves the road on purpose, on either side, and comes back."""

    speed, corner_speed = 40.0, 28.0
    line_gain = 0.1
    away, home = (0.9, 1.6), (1.5, 3.5)
    """Seconds that an excursion lasts, and between two; drawn anew every time."""

    def __init__(self, num_envs: int, *args: Any, **options: Any) -> None:
        super().__init__(num_envs, *args, **options)
        self._until = np.zeros(num_envs)
        self._side = np.zeros(num_envs)

    def _begin(self, which: np.ndarray) -> None:
        self._side[which] = 0.0
        self._until[which] = self._rng.uniform(*self.home, which.sum()) / DT

    def _line(self, info: dict[str, Any]) -> np.ndarray:
        due = self._tick >= self._until
        for outward in (False, True):
            which = due & ((self._side == 0.0) == outward)
            count = int(which.sum())
            sides = self._rng.choice([-1.0, 1.0], count) if outward else np.zeros(count)
            seconds = self._rng.uniform(*(self.away if outward else self.home), count)
            self._side[which] = sides
            self._until[which] = self._tick[which] + seconds / DT
            due &= ~which
        return self._side * (self._half_width + 6.0)


class NearEdge(ScenarioDriver):
    """Drives along one edge of the road, and now and then changes to the other."""

    speed, corner_speed = 38.0, 26.0
    line_gain = 0.12
    stay = (5.0, 12.0)
    """Seconds along one edge."""

    def __init__(self, num_envs: int, *args: Any, **options: Any) -> None:
        super().__init__(num_envs, *args, **options)
        self._side, self._until = np.ones(num_envs), np.zeros(num_envs)

    def _begin(self, which: np.ndarray) -> None:
        self._side[which] = self._rng.choice([-1.0, 1.0], which.sum())
        self._until[which] = self._rng.uniform(*self.stay, which.sum()) / DT

    def _line(self, info: dict[str, Any]) -> np.ndarray:
        due = self._tick >= self._until
        self._side[due] *= -1.0
        self._until[due] = self._tick[due] + self._rng.uniform(*self.stay, due.sum()) / DT
        return 0.75 * self._half_width * self._side


SCENARIOS: dict[str, type[ScenarioDriver]] = {
    "sustained_turn": SustainedTurn,
    "turn_exit": TurnExit,
    "steering_reversal": SteeringReversal,
    "throttle_lift": ThrottleLift,
    "brake_in_turn": BrakeInTurn,
    "off_track_recovery": OffTrackRecovery,
    "near_edge": NearEdge,
}


def make_scenario(name: str, num_envs: int, **options: Any) -> ScenarioDriver:
    """The driver called `name`; `UserError` for another name. Options as `ScenarioDriver`'s."""
    if name not in SCENARIOS:
        raise UserError(f"a scenario is one of {', '.join(SCENARIOS)}, not {name!r}")
    return SCENARIOS[name](num_envs, **options)
