"""The forms of the environment, each with a function that resets it and tells the track seeds."""

import gymnasium
import numpy as np

import envs.racing  # noqa: F401  registers the ids
from envs.racing import RacingVectorEnv
from envs.racing.parallel_env import RacingParallelEnv

IDS = ["racing/CarRacing-v0", "racing/Race-v0"]
GAS = np.array([0.1, 0.6, 0.0], np.float32)


def single(**options):
    env = gymnasium.make(IDS[1], **options).unwrapped
    return env, lambda seed=None: [env.reset(seed=seed)[1]["track_seed"]]


def several(**options):
    env = RacingVectorEnv(3, preset="race", **options)
    return env, lambda seed=None: env.reset(seed=seed)[1]["track_seed"].tolist()


def parallel(**options):
    env = RacingParallelEnv(2, **options)
    return env, lambda seed=None: [env.reset(seed=seed)[1]["car_0"]["track_seed"]]
