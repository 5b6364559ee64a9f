"""Seven ways to drive that a policy trained for speed shows too rarely, each under its own name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from common.errors import UserError
from common.rl.noise import Draws, initial_draws
from common.rl.policy import TelemetrySpec
from envs.racing.drivers.draws import BatchRandom, CarRandom, Random
from envs.racing.drivers.noise import ActionNoise
from envs.racing.sim.dynamics import DT
from envs.racing.sim.track import HALF_WIDTH

BEND = 0.35
"""|corner_angle| (rad over the next 21 units) from which on a driver treats the road as a bend."""

_STREAM = 1  # of a car's draws; the noise on its actions has another


class ScenarioCarry(NamedTuple):
    """What a scenario remembers of n cars, (n,) each.

    Attributes:
        draws: where the cars are in their random sequences.
        tick: of the episode, -1 before the first.
        lateral: offset from the centreline a tick ago, units.
        pace: factor on the speeds of this episode.
        memory: what the scenario itself remembers, by name.
    """

    draws: Draws
    tick: np.ndarray
    lateral: np.ndarray
    pace: np.ndarray
    memory: dict[str, np.ndarray]


@dataclass
class Moment:
    """What a scenario decides by, for n cars.

    Attributes:
        telemetry: (n,) values by name.
        tick: (n,) of the episode.
        memory: (n,) arrays by name, to read and to write.
        random: draws of this decision.
    """

    telemetry: dict[str, np.ndarray]
    tick: np.ndarray
    memory: dict[str, np.ndarray]
    random: Random

    @property
    def bend(self) -> np.ndarray:
        """|corner_angle|, rad."""
        return np.abs(self.telemetry["corner_angle"])


class ScenarioDriver:
    """Follows a line beside the centreline of every car and finds back from anywhere.

    Unlike `CentrelineDriver`, it knows the way that the car moves relative to the road (from
    lateral drift and progress), so a car that spun or left the road turns round and returns. What
    a scenario changes is the line (`_line`) and the pedals (`_target_speed`, `_pedals`). It decides
    every tick.

    Args:
        pace: factor on all speeds; above 1.1 the bends become too fast for the grip.
        half_width: of the road, units.
        batch_seed: draw for all cars from one sequence with this seed; see `drivers.draws`.
    """

    spec = TelemetrySpec(("lateral_offset", "corner_angle", "progress_delta", "speed"))

    speed, corner_speed = 50.0, 34.0
    """units/s on a straight, and at a heading change of one radian over the next 21 units."""
    line_gain = 0.06
    """rad of heading for every unit beside the line."""
    remembers: ClassVar[dict[str, float]] = {}
    """Names of the scenario's memory, and its values before the first episode."""

    def __init__(
        self,
        pace: float = 1.0,
        half_width: float = HALF_WIDTH,
        batch_seed: int | None = None,
    ) -> None:
        self._pace, self._half_width = pace, half_width
        self._batch: BatchRandom | None = None
        if batch_seed is not None:
            self._batch = BatchRandom(np.random.default_rng([batch_seed, 1]))

    def initial(self, n: int, seeds: Sequence[int] | None = None) -> ScenarioCarry:
        """See `common.rl.policy.Policy`."""
        return ScenarioCarry(
            initial_draws(n, seeds),
            np.full(n, -1, np.int64),
            np.zeros(n, np.float32),
            np.full(n, self._pace, np.float64),
            {name: np.full(n, value) for name, value in self.remembers.items()},
        )

    def act(
        self,
        carry: ScenarioCarry,
        observation: np.ndarray,
        is_first: np.ndarray,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, ScenarioCarry]:
        """Actions (n, 3) float64 for one tick; see `common.rl.policy.Policy`.

        An episode's draws are made in any case, `deterministic` or not.
        """
        now = Moment(
            self.spec.split(observation),
            np.where(is_first, 0, carry.tick + 1),
            {name: values.copy() for name, values in carry.memory.items()},
            self._batch or CarRandom(carry.draws, _STREAM),
        )
        lateral, corner, progress, speed = (now.telemetry[name] for name in self.spec.names)
        previous = np.where(is_first, lateral, carry.lateral)
        pace = carry.pace.copy()
        if is_first.any():
            pace[is_first] = self._pace * now.random.uniform(is_first, 0.9, 1.1)
            self._begin(is_first, now)
        course = np.arctan2(lateral - previous, progress)
        course = np.where(speed < 1.0, 0.0, course)  # standing still it is rounding
        back_to_line = np.clip(self.line_gain * (self._line(now) - lateral), -0.5, 0.5)
        left = 0.55 * corner + back_to_line - course
        too_slow = pace * self._target_speed(now) - speed
        gas = np.clip(0.1 * too_slow, 0.0, 0.6)
        brake = np.clip(-0.03 * (too_slow + 5.0), 0.0, 0.4)
        gas, brake = self._pedals(now, gas, brake)
        lost = np.abs(course) > 1.0
        gas = np.where(lost & (speed > 15.0), 0.0, gas)  # power would keep it spinning
        actions = np.stack([np.clip(-left, -1.0, 1.0), gas, brake], 1)
        draws = carry.draws.advance()
        return actions, ScenarioCarry(draws, now.tick, lateral, pace, now.memory)

    def _begin(self, which: np.ndarray, now: Moment) -> None:
        """Draw what is special about the episodes that start in `which`, (n,) bool."""

    def _line(self, now: Moment) -> np.ndarray | float:
        """Lateral offset to drive at, units."""
        return 0.0

    def _target_speed(self, now: Moment) -> np.ndarray | float:
        """Speed to drive at, units/s."""
        return self.speed + (self.corner_speed - self.speed) * np.clip(now.bend, 0.0, 1.0)

    def _pedals(
        self, now: Moment, gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Gas and brake, (n,) each; `gas` and `brake` would hold the target speed."""
        return gas, brake


class SustainedTurn(ScenarioDriver):
    """Carries one speed through bends and straights alike."""

    speed = corner_speed = 42.0


class TurnExit(ScenarioDriver):
    """Slow into a bend, as much gas as the grip allows as soon as it opens."""

    speed, corner_speed = 62.0, 28.0
    remembers: ClassVar = {"sharpest": 0.0}

    def _begin(self, which: np.ndarray, now: Moment) -> None:
        now.memory["sharpest"][which] = 0.0

    def _pedals(
        self, now: Moment, gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        # The memory of a bend fades within a second of its end.
        sharpest = np.maximum(now.bend, 0.97 * now.memory["sharpest"])
        now.memory["sharpest"] = sharpest
        opening = (sharpest > BEND) & (now.bend < 0.7 * sharpest)
        return np.where(opening, 0.5, gas), np.where(opening, 0.0, brake)


class SteeringReversal(ScenarioDriver):
    """Weaves from one side of the road to the other."""

    speed, corner_speed = 45.0, 32.0
    line_gain = 0.12
    remembers: ClassVar = {"period": 1.0, "phase": 0.0}

    def _begin(self, which: np.ndarray, now: Moment) -> None:
        now.memory["period"][which] = now.random.uniform(which, 1.4, 2.2) / DT
        now.memory["phase"][which] = now.random.uniform(which, 0.0, 2 * np.pi)

    def _line(self, now: Moment) -> np.ndarray:
        period, phase = now.memory["period"], now.memory["phase"]
        return 0.6 * self._half_width * np.sin(2 * np.pi * now.tick / period + phase)


class ThrottleLift(ScenarioDriver):
    """Full gas on the straight; lifts at a bend's entry, rolls through it and never brakes."""

    speed = corner_speed = 55.0
    slowest = 25.0
    """units/s; below, it keeps rolling with a little gas."""

    def _pedals(
        self, now: Moment, gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        lift = (now.bend > 0.25) & (now.telemetry["speed"] > self.slowest)
        return np.where(lift, 0.0, gas), np.zeros_like(brake)


class BrakeInTurn(ScenarioDriver):
    """Arrives at a bend with speed and brakes while it turns."""

    speed = corner_speed = 52.0
    slowest = 28.0

    def _pedals(
        self, now: Moment, gas: np.ndarray, brake: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        braking = (now.bend > BEND) & ~(now.telemetry["speed"] < self.slowest)
        return np.where(braking, 0.0, gas), np.where(braking, 0.12, 0.0)


class OffTrackRecovery(ScenarioDriver):
    """Leaves the road on purpose, on either side, and comes back."""

    speed, corner_speed = 40.0, 28.0
    line_gain = 0.1
    away, home = (0.9, 1.6), (1.5, 3.5)
    """Seconds that an excursion lasts, and between two; drawn anew every time."""
    remembers: ClassVar = {"side": 0.0, "until": 0.0}

    def _begin(self, which: np.ndarray, now: Moment) -> None:
        now.memory["side"][which] = 0.0
        now.memory["until"][which] = now.random.uniform(which, *self.home) / DT

    def _line(self, now: Moment) -> np.ndarray:
        side, until = now.memory["side"], now.memory["until"]
        due = now.tick >= until
        leaving, returning = due & (side == 0.0), due & (side != 0.0)
        for which, stay in ((returning, self.home), (leaving, self.away)):
            side[which] = now.random.side(which) if stay is self.away else 0.0
            until[which] = now.tick[which] + now.random.uniform(which, *stay) / DT
        return side * (self._half_width + 6.0)


class NearEdge(ScenarioDriver):
    """Drives along one edge of the road, and now and then changes to the other."""

    speed, corner_speed = 38.0, 26.0
    line_gain = 0.12
    stay = (5.0, 12.0)
    """Seconds along one edge."""
    remembers: ClassVar = {"side": 0.0, "until": 0.0}

    def _begin(self, which: np.ndarray, now: Moment) -> None:
        now.memory["side"][which] = now.random.side(which)
        now.memory["until"][which] = now.random.uniform(which, *self.stay) / DT

    def _line(self, now: Moment) -> np.ndarray:
        side, until = now.memory["side"], now.memory["until"]
        due = now.tick >= until
        side[due] *= -1.0
        until[due] = now.tick[due] + now.random.uniform(due, *self.stay) / DT
        return 0.75 * self._half_width * side


SCENARIOS: dict[str, type[ScenarioDriver]] = {
    "sustained_turn": SustainedTurn,
    "turn_exit": TurnExit,
    "steering_reversal": SteeringReversal,
    "throttle_lift": ThrottleLift,
    "brake_in_turn": BrakeInTurn,
    "off_track_recovery": OffTrackRecovery,
    "near_edge": NearEdge,
}


def make_scenario(
    name: str, noise: float = 0.1, batch_seed: int | None = None, **options: Any
) -> ActionNoise:
    """The policy called `name`, with `ActionNoise` of scale `noise`.

    `batch_seed` is that of both; other options are `ScenarioDriver`'s. Raises `UserError` for
    another name.
    """
    if name not in SCENARIOS:
        raise UserError(f"a scenario is one of {', '.join(SCENARIOS)}, not {name!r}")
    return ActionNoise(SCENARIOS[name](batch_seed=batch_seed, **options), noise, batch_seed)
