"""The starting grid of several cars, which do not feel each other."""

import numpy as np

from common.telemetry import TELEMETRY
from envs.racing import EnvConfig, RacingVectorEnv
from tests.envs.racing.driving import actions_of

SEEDS = [10_000, 10_001, 10_002, 10_003, 10_004, 10_005, 10_006, 10_007]


def test_agents_start_apart_and_on_the_road():
    env = RacingVectorEnv(16, EnvConfig(num_agents=16), track_seeds=SEEDS[:1])
    _, info = env.reset()
    assert (info["off_track"] == 0).all()
    xy = np.column_stack([info["x"], info["y"]])
    apart = np.linalg.norm(xy[:, None] - xy, axis=-1) + 99 * np.eye(16)
    assert apart.min() > 5
    assert (info["progress"] == 0).all()
    env.close()


def test_a_car_does_not_feel_the_others():
    """Contacts come later; until then the first car drives as if it were alone."""
    alone = RacingVectorEnv(1, EnvConfig(), track_seeds=SEEDS[:1])
    crowd = RacingVectorEnv(3, EnvConfig(num_agents=3), track_seeds=SEEDS[:1])
    alone.reset()
    crowd.reset()
    for t in range(100):
        action = np.stack([actions_of(w, 100)[t] for w in range(3)])
        one = alone.step(action[:1])[4]
        many = crowd.step(action)[4]
        for name in TELEMETRY:
            assert one[name][0] == many[name][0]
    alone.close()
    crowd.close()
