"""What an episode may be, and that everything else is refused by name."""

from dataclasses import replace

import numpy as np
import pytest

from common.errors import UserError
from replay.schema import ShardInfo, columns, stored_seed
from tests.replay.counters import ATTRIBUTES, attributes, episode


@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_right_episode_passes(length):
    item = episode(3, length)
    assert len(item) == length
    assert item.arrays.keys() == columns().keys()
    assert item.arrays["is_first"].tolist() == [True] + [False] * (length - 1)


@pytest.mark.parametrize(
    ("changed", "value", "message"),
    [
        ("observation", np.zeros((5, 96, 96, 3), np.float32), "observation is an array of uint8"),
        ("observation", np.zeros((5, 64, 64, 3), np.uint8), r"observation has shape \(5, 96"),
        ("observation", np.zeros((0, 96, 96, 3), np.uint8), "no rows"),
        ("action", np.zeros((5, 3)), "action is an array of float32, not float64"),
        ("action", np.zeros((5, 2), np.float32), r"action has shape \(5, 3\), not \(5, 2\)"),
        ("action", np.zeros((4, 3), np.float32), r"action has shape \(5, 3\), not \(4, 3\)"),
        ("action", np.ones((5, 3), np.float32), "action of the first row is not 0"),
        ("action", np.float32([[0] * 3] * 4 + [[0, np.nan, 0]]), "action is not finite in row 4"),
        ("reward", [0.0] * 5, "reward is an array of float32, not list"),
        ("reward", np.ones(5, np.float32), "reward of the first row is not 0"),
        ("reward", np.float32([0, 0, np.inf, 0, 0]), "reward is not finite in row 2"),
        ("terminated", np.zeros(5, np.uint8), "terminated is an array of bool, not uint8"),
        ("terminated", np.array([0, 0, 1, 0, 0], bool), "terminated is True before the last row"),
        ("truncated", np.array([1, 0, 0, 0, 0], bool), "truncated is True before the last row"),
        ("direction", 2, "direction is 0"),
        ("scenario", "", "scenario's name has 1 to 64"),
        ("scenario", "x" * 65, "scenario's name has 1 to 64"),
    ],
)
def test_a_wrong_array_is_named(changed, value, message):
    with pytest.raises(UserError, match=message):
        replace(episode(0, 5), **{changed: value})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("speed", np.float32([0, 1, np.nan, 3, 4]), "telemetry/speed is not finite in row 2"),
        ("steer", np.zeros(5), "telemetry/steer is an array of float32, not float64"),
        ("x", np.zeros(4, np.float32), r"telemetry/x has shape \(5,\), not \(4,\)"),
        ("sped", np.zeros(5, np.float32), "'sped' is not one of .*did you mean 'speed'"),
    ],
)
def test_wrong_telemetry_is_named(name, value, message):
    item = episode(0, 5)
    with pytest.raises(UserError, match=message):
        replace(item, telemetry=item.telemetry | {name: value})


def test_the_end_of_an_episode_without_a_step_is_refused():
    with pytest.raises(UserError, match="without a step"):
        replace(episode(0, 1), terminated=np.array([True]))


@pytest.mark.parametrize("seed", [-1, 0, 2**32 - 1, 2**63 - 1])
def test_a_seed_of_up_to_63_bits_is_kept(seed):
    assert stored_seed(seed) == seed


def test_larger_seeds_are_kept_apart_in_64_bits():
    stored = [stored_seed(seed) for seed in (*range(2**63, 2**63 + 50), 2**64, 10**40)]
    assert len(set(stored)) == 52
    assert all(-(2**63) <= number < -1 for number in stored)
    assert stored_seed(2**64) == stored[50], "the same in every process"


def test_attributes_are_checked():
    with pytest.raises(ValueError, match="action_repeat"):
        attributes(action_repeat=0)
    with pytest.raises(ValueError, match="sped"):
        attributes(telemetry=("sped",))


@pytest.mark.parametrize("episodes", [(), ((0, 4, 1, 0, "a"),), ((1, 5, 1, 0, "a"),)])
def test_a_line_whose_episodes_do_not_fill_the_shard_is_refused(episodes):
    with pytest.raises(ValueError, match="episodes"):
        ShardInfo("s", "0", 1, 5, episodes, "train", 1, "now", ATTRIBUTES)
