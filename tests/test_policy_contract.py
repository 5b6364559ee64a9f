"""Every policy keeps the contract of `common.rl.policy`: cars are strangers, carries are values."""

import numpy as np
import pytest
import torch

from common.keyboard import KeyboardDriver
from common.rl.controls import Recorded
from common.rl.policy import ObservationSpec, index, load_state_dict, put, state_dict
from envs.racing.drivers import SCENARIOS, ActionNoise, CentrelineDriver, PerTick, make_scenario
from ppo.config import PolicyConfig
from ppo.evaluate import Driver
from ppo.policy import ActorCritic
from tests.policies import Counting

CARS, DECISIONS = 11, 12
SEEDS = [70 + 3 * car for car in range(CARS)]


def trained():
    torch.manual_seed(0)
    spec = ObservationSpec(size=64, grey=True, frame_stack=2, action_repeat=3)
    network = PolicyConfig(channels=(4, 8), kernels=(8, 4), strides=(8, 4), hidden=(16,))
    return Driver(ActorCritic(spec, network), spec)


def keyboard():
    """A person who changes keys between decisions is no function of the carry: two keys stay."""
    pygame = pytest.importorskip("pygame")
    driver = KeyboardDriver(pygame)
    for key in (pygame.K_LEFT, pygame.K_w):
        driver.handle(pygame.event.Event(pygame.KEYDOWN, key=key))
    return driver


POLICIES = {
    "ppo": trained,
    "ppo, tick by tick": lambda: PerTick(trained()),
    "ppo, noisy": lambda: ActionNoise(PerTick(trained()), 0.3),
    "centreline": lambda: CentrelineDriver(repeat=2),
    "centreline, tick by tick": lambda: PerTick(CentrelineDriver(repeat=2)),
    "keyboard": keyboard,
    "recorded": lambda: Recorded(np.random.default_rng(0).uniform(0, 1, (7, 3))),
    "counting": Counting,
    **{name: (lambda name=name: make_scenario(name)) for name in SCENARIOS},
}
RANDOM = {"ppo, noisy", *SCENARIOS}
"""Their actions are random even where a policy is asked for its most likely ones."""


def experience(spec):
    """Observations and episode starts of DECISIONS decisions."""
    rng = np.random.default_rng(1)
    shape = (DECISIONS, CARS, *spec.shape)
    if isinstance(spec, ObservationSpec):
        observations = rng.integers(0, 256, shape, np.uint8)
    else:
        observations = rng.normal(0, 1, shape).astype(np.float32)
        for column, name in enumerate(spec.names):
            if name == "speed":
                observations[..., column] = 30 + 10 * observations[..., column]
    is_first = rng.random((DECISIONS, CARS)) < 0.15
    is_first[0] = True
    return observations, is_first


def drive(policy, carry, observations, is_first, deterministic=True):
    """Actions (decisions, n, 3) and the last carry."""
    actions = []
    for observation, first in zip(observations, is_first, strict=True):
        action, carry = policy.act(carry, observation, first, deterministic)
        actions.append(action.copy())
    return np.array(actions), carry


@pytest.fixture(params=POLICIES)
def name(request):
    return request.param


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_car_is_driven_alike_in_any_company(name, deterministic):
    policy = POLICIES[name]()
    observations, is_first = experience(policy.spec)
    everyone, _ = drive(policy, policy.initial(CARS, SEEDS), observations, is_first, deterministic)
    assert everyone.shape == (DECISIONS, CARS, 3) and np.issubdtype(everyone.dtype, np.floating)
    assert np.abs(everyone[..., 0]).max() <= 1
    assert everyone[..., 1:].min() >= 0 and everyone[..., 1:].max() <= 1
    for cars in ([4], [10, 2, 7], list(range(CARS))[::-1]):
        carry = policy.initial(len(cars), [SEEDS[car] for car in cars])
        some, _ = drive(policy, carry, observations[:, cars], is_first[:, cars], deterministic)
        assert np.array_equal(some, everyone[:, cars]), cars


def test_carries_are_values_that_are_saved_split_and_joined(name, tmp_path):
    policy = POLICIES[name]()
    observations, is_first = experience(policy.spec)
    carry = policy.initial(CARS, SEEDS)
    _, middle = drive(policy, carry, observations[:5], is_first[:5], False)
    saved = state_dict(middle)
    assert all(len(array) == CARS for array in saved.values())
    straight, _ = drive(policy, middle, observations[5:], is_first[5:], False)
    for key, array in state_dict(middle).items():
        assert np.array_equal(array, saved[key]), f"{key} was changed in place"

    np.savez(tmp_path / "carry.npz", **saved)
    other = POLICIES[name]()  # as after a restart of the process
    with np.load(tmp_path / "carry.npz", allow_pickle=False) as file:
        restored = load_state_dict(other.initial(CARS), dict(file))
    again, _ = drive(other, restored, observations[5:], is_first[5:], False)
    assert np.array_equal(again, straight)

    cars = np.array([8, 0])
    part, _ = drive(policy, index(middle, cars), observations[5:, cars], is_first[5:, cars], False)
    assert np.array_equal(part, straight[:, cars])
    mixed = put(policy.initial(CARS, SEEDS), cars, index(middle, cars))
    mixed, _ = drive(policy, mixed, observations[5:], is_first[5:], False)
    assert np.array_equal(mixed[:, cars], straight[:, cars])


def test_only_seeds_and_decisions_are_random(name):
    """The same seed draws the same again, another seed or a second episode something else."""
    policy = POLICIES[name]()
    observations, is_first = experience(policy.spec)
    is_first[1:] = False
    one, _ = drive(policy, policy.initial(CARS, SEEDS), observations, is_first)
    two, later = drive(policy, policy.initial(CARS, SEEDS), observations, is_first)
    other = policy.initial(CARS, [seed + 1 for seed in SEEDS])
    other, _ = drive(policy, other, observations, is_first)
    second, _ = drive(policy, later, observations, is_first)
    assert np.array_equal(one, two)
    assert np.array_equal(one, other) == (name not in RANDOM)
    assert np.array_equal(one, second) == (name not in RANDOM)


def test_sampling_draws_by_seed_and_decision():
    policy = trained()
    frames = np.repeat(np.random.default_rng(0).integers(0, 256, (1, 2, 64, 64), np.uint8), 3, 0)
    first = np.ones(3, bool)
    carry = policy.initial(3, [5, 5, 6])
    one, later = policy.act(carry, frames, first, False)
    two, _ = policy.act(later, frames, first, False)
    assert np.array_equal(one[0], one[1]) and not np.array_equal(one[0], one[2])
    assert not np.array_equal(one[0], two[0])
    mean, _ = policy.act(carry, frames, first, True)
    assert np.array_equal(mean[0], mean[2])
