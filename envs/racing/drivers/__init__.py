"""Scripted drivers that each show one kind of driving, as recipes for replay data sets.

May import: `common`, `envs.racing.sim`.
"""

from envs.racing.drivers.scenarios import (
    SCENARIOS,
    ActionNoise,
    ScenarioDriver,
    make_scenario,
)

__all__ = ["SCENARIOS", "ActionNoise", "ScenarioDriver", "make_scenario"]
