"""Scripted drivers behind the contract of `common.rl.policy`, and wrappers round any policy.

May import: `common`, `envs.racing.sim`, `envs.racing.pixels`.
"""

from envs.racing.drivers.controller import CentrelineDriver
from envs.racing.drivers.noise import ActionNoise
from envs.racing.drivers.per_tick import PerTick
from envs.racing.drivers.scenarios import SCENARIOS, ScenarioDriver, make_scenario

__all__ = [
    "SCENARIOS",
    "ActionNoise",
    "CentrelineDriver",
    "PerTick",
    "ScenarioDriver",
    "make_scenario",
]
