"""Environments are pickled and copied at any time, and the copy goes on bit by bit."""

import copy
import functools
import pickle

import gymnasium
import numpy as np
import pytest

from common.errors import UserError
from envs.racing import EnvConfig, RacingVectorEnv
from envs.racing.parallel_env import RacingParallelEnv
from tests.envs.racing.forms import GAS, IDS


def bare(config=None):
    return RacingVectorEnv(4, config or EnvConfig(max_ticks=9, track_pool=2, threads=2), seed=3)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
@pytest.mark.parametrize("kind", ["vector", "race of four", "single", "parallel"])
def test_a_copy_in_mid_episode_continues_bit_by_bit(kind, copied):
    if kind in ("vector", "race of four"):
        agents = 1 if kind == "vector" else 4
        env = bare(EnvConfig(max_ticks=9, frame_stack=2, grey=True, num_agents=agents, threads=2))
        env.reset(seed=4)
        actions = np.stack([GAS] * 4)
        step = lambda e: e.step(actions)  # noqa: E731
    elif kind == "single":
        env = gymnasium.make(IDS[0], max_ticks=9)
        env.reset(seed=2**64)
        step = lambda e: e.step(GAS)  # noqa: E731
    else:
        env = RacingParallelEnv(3, max_ticks=50)
        env.reset(seed=4)
        step = lambda e: e.step({agent: GAS for agent in e.agents})  # noqa: E731
    for _ in range(5):
        step(env)
    twin = copied(env)
    for _ in range(4 if kind in ("single", "parallel") else 14):
        result, twin_result = step(env), step(twin)
        result, twin_result = pickle.dumps(result[:-1]), pickle.dumps(twin_result[:-1])
        assert result == twin_result
    assert str(step(env) if kind == "parallel" else env.reset()[1]) == str(
        step(twin) if kind == "parallel" else twin.reset()[1]
    )
    env.close()
    twin.reset(seed=1)
    step(twin)
    twin.close()


def test_copies_of_fresh_and_of_closed_environments_are_the_same():
    env = bare()
    fresh = copy.deepcopy(env)
    np.testing.assert_array_equal(env.reset()[0], fresh.reset()[0])
    env.close()
    fresh.close()
    with pytest.raises(UserError, match=r"step\(\) after close\(\)"):
        copy.deepcopy(env).step(np.stack([GAS] * 4))


def test_gymnasiums_processes_drive_it():
    # A new process knows the id by the module that registers it.
    make = functools.partial(gymnasium.make, f"envs.racing:{IDS[1]}", max_ticks=3)
    env = gymnasium.vector.AsyncVectorEnv([make, make], context="spawn")
    twin = gymnasium.vector.SyncVectorEnv([make, make])
    np.testing.assert_array_equal(env.reset(seed=1)[0], twin.reset(seed=1)[0])
    for _ in range(5):
        result, twin_result = env.step(np.stack([GAS] * 2)), twin.step(np.stack([GAS] * 2))
        for a, b in zip(result[:-1], twin_result[:-1], strict=True):
            np.testing.assert_array_equal(a, b)
    env.close()
    twin.close()
