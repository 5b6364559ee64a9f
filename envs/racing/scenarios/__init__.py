"""Scripted drivers that each show one kind of driving, as recipes for replay data sets.

A package, because `evaluate.EVALUATOR_HASH` covers the modules beside it, and these measure
nothing.
"""

from envs.racing.scenarios.drivers import (
    SCENARIOS,
    ActionNoise,
    ScenarioDriver,
    make_scenario,
)

__all__ = ["SCENARIOS", "ActionNoise", "ScenarioDriver", "make_scenario"]
