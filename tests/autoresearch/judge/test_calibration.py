"""Error rates of the gates, measured on noise whose truth is known."""

import dataclasses

import numpy as np
import pytest

from autoresearch.config import Gates, Guard, Measure
from autoresearch.judge.calibration import Noise, best_of_three, simulate

GATES = Gates(
    Measure("progress", 1, 2.0), guards=(Guard(Measure("off_track_rate", -1), 0.1, 0.4),), cap=100
)


SMALL = {"campaigns": 300, "generations": 2, "candidates": 2, "seed": 0}


@pytest.fixture(scope="module")
def noise():
    """Runs whose luck is a tenth of a lap, on tracks that differ by as much."""
    rng = np.random.default_rng(0)
    seeds, tracks = rng.normal(0, 0.1, (24, 1)), rng.normal(0, 0.1, (1, 100))
    primary = (0.5 + seeds + tracks + rng.normal(0, 0.1, (24, 100))).clip(0, 1)
    return Noise(primary, {"off_track_rate": np.full((24, 100), 0.02)}, 60.0)


def test_luck_is_hardly_ever_promoted(noise):
    rates = simulate(noise, GATES, effect=0.0, **SMALL)
    assert rates["promoted"]["mean"] <= 0.03 and rates["promoted"]["n"] == 300
    assert rates["screened"]["mean"] > 0.2  # lucky checkpoints are better checkpoints
    assert rates["runs"] >= 6 and rates["minutes"] == pytest.approx(rates["runs"])


def test_a_large_effect_is_found(noise):
    rates = simulate(noise, GATES, effect=0.3, **SMALL)
    assert rates["promoted"]["mean"] > 0.8


def test_a_gain_bought_with_grass_is_not_promoted(noise):
    grass = dataclasses.replace(noise, guards={"off_track_rate": np.full((24, 100), 0.5)})
    assert simulate(grass, GATES, effect=0.3, **SMALL)["promoted"]["mean"] == 0


def test_the_best_of_three_promotes_luck_more_often_than_not(noise):
    rates = best_of_three(noise, effect=0.0, trials=4000, seed=0)
    assert rates["promoted"]["mean"] > 0.5 and rates["inflation"] > 0.02
