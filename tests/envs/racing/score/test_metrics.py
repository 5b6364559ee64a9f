"""What an episode is reported by."""

import pytest

from envs.racing import RewardConfig
from tests.envs.racing.driving import engine_on, follow, painted


def test_the_native_return_is_carracings_whatever_is_rewarded():
    native = RewardConfig.native()
    shaped = RewardConfig(progress=5.0, off_track=-3.0, time=0.0)
    plain = engine_on(painted(2), reward=native)
    other = engine_on(painted(2), reward=shaped)
    total = 0.0
    for _ in range(300):
        action = follow(plain, 50.0)
        plain.step(action)
        other.step(action)
        total += plain.rewards[0, 0]
    assert other.cars["native_return"][0, 0] == pytest.approx(total)
    assert plain.cars["native_return"][0, 0] == pytest.approx(total)
    assert other.cars["episode_return"][0, 0] != pytest.approx(total)
