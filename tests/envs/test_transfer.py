"""A policy that was trained in our engine alone drives the real CarRacing-v3 unchanged."""

import pytest

pytest.importorskip("Box2D", reason="needs the extra `parity`")

from common.runs import ROOT
from envs.racing.evaluate import evaluate
from ppo import load_policy

CHECKPOINT = ROOT / "experiments" / "checkpoints" / "race.pt"


@pytest.mark.parity
def test_the_committed_driver_drives_the_real_carracing():
    driver = load_policy(CHECKPOINT)
    ours = evaluate(driver, [2, 3, 5], env="carracing")
    real = evaluate(driver, [2, 3, 5], env="gymnasium_carracing")
    for simulated, true in zip(ours.rows, real.rows, strict=True):
        assert true["native_return"] > 700
        assert abs(true["native_return"] - simulated["native_return"]) < 150
