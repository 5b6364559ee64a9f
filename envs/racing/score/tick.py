"""Scores one tick of one car: its quantities, whether it ends the episode, reward and metrics."""

from __future__ import annotations

from typing import NamedTuple

from envs.racing.config import EnvConfig
from envs.racing.score.endings import EndingConfig, Limits, decide_ending, make_limits
from envs.racing.score.metrics import count
from envs.racing.score.quantities import measure
from envs.racing.score.terms import Coefficients, RewardConfig, make_coefficients, pay
from envs.racing.sim.kernel import kernel


class Rules(NamedTuple):
    """The rules for scoring a car.

    Attributes:
        laps: laps by arc length to the finish; 0 is CarRacing's finish, where every tile is
            touched.
        limits: what ends the episode.
        coefficients: coefficients of the reward.
    """

    laps: float
    limits: Limits
    coefficients: Coefficients


def make_rules(config: EnvConfig, reward: RewardConfig, endings: EndingConfig) -> Rules:
    """The rules of a configuration, in the form that kernels take."""
    return Rules(
        laps=float(config.laps) if config.preset == "race" else 0.0,
        limits=make_limits(config.max_ticks, endings),
        coefficients=make_coefficients(reward),
    )


@kernel(inline="always", counted=False)
def score_tick(car, wheels, track, before, action, rules, neighbours, terms):
    """Score the tick that a car has just completed.

    Args:
        before: `quantities.remember(car)` from before the tick.
        action: (3,) controls of the tick.
        rules: `Rules`.
        neighbours: the car's view of the others, see `sim.neighbours`.
        terms: (len(TERMS),) float64, added to.

    Returns:
        Why the episode ended, a code of `endings`.
    """
    quantities = measure(car, wheels, track, before, action, rules.laps, neighbours)
    ending = decide_ending(car, quantities, rules.limits)
    reward = pay(terms, rules.coefficients, quantities, ending)
    count(car, quantities, ending, reward)
    return ending
