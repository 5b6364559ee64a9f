"""The batched environment against hostile hands: snapshots, seeds, first resets."""

import gymnasium
import numpy as np
import pytest

from common.errors import UserError
from envs.racing import EnvConfig, RacingVectorEnv


def test_a_snapshot_goes_only_where_it_belongs():
    judged = RacingVectorEnv(2, split=None, track_seeds=[5, 6])
    with pytest.raises(UserError, match=r"reset\(\) before snapshot"):
        judged.snapshot()
    judged.reset()
    state = judged.snapshot()
    training = RacingVectorEnv(2, split="train")
    with pytest.raises(UserError, match="track seed 5 belongs to the test split"):
        training.restore(state)
    other = RacingVectorEnv(2, EnvConfig(action_repeat=2), split=None)
    with pytest.raises(UserError, match="another environment: action_repeat=1, not 2"):
        other.restore(state)
    with pytest.raises(UserError, match="lacks 'cars'"):
        judged.restore({name: value for name, value in state.items() if name != "cars"})
    for env in (judged, training, other):
        env.close()


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", [None, 3]])
def test_a_seed_that_is_none_is_refused(seed):
    env = RacingVectorEnv(2, split=None)
    with pytest.raises(UserError, match="a seed is a whole number"):
        env.reset(seed=seed)
    env.close()


@pytest.mark.parametrize(
    ("name", "value"), [("max_ticks", 10.5), ("track_pool", True), ("laps", "2")]
)
def test_whole_numbers_are_whole(name, value):
    with pytest.raises(ValueError, match=f"{name}: expected a whole number"):
        EnvConfig(**{name: value})


@pytest.mark.parametrize("mask", [[True, False], [False, False]])
def test_the_first_reset_starts_every_world(mask):
    env = RacingVectorEnv(2, split=None, autoreset=False)
    with pytest.raises(UserError, match="first reset starts every world"):
        env.reset(options={"reset_mask": np.array(mask)})
    with pytest.raises(UserError, match=r"reset\(\) before step"):
        env.step(np.zeros((2, 3)))
    env.close()


@pytest.mark.parametrize("action", ["left", {"steer": 1.0}, [1j, 0, 0]])
def test_an_action_is_of_real_numbers(action):
    single = gymnasium.make("racing/CarRacing-v0", disable_env_checker=True)
    single.reset(seed=1)
    batched = RacingVectorEnv(1, preset="carracing")
    batched.reset(seed=1)
    with pytest.raises(ValueError, match=r"racing: an action: actions are (real )?numbers, not"):
        single.step(action)
    with pytest.raises(ValueError, match=r"carracing\): actions are (real )?numbers, not"):
        batched.step([action])
    for env in (single, batched):
        env.close()


def test_a_configuration_is_one():
    with pytest.raises(UserError, match="config is an EnvConfig, not 3"):
        RacingVectorEnv(2, 3)


def test_ticks_count_what_really_ran():
    env = RacingVectorEnv(2, EnvConfig(max_ticks=6, action_repeat=4), autoreset=False)
    env.reset()
    *_, info = env.step(np.zeros((2, 3)))
    assert info["ticks"].tolist() == [4, 4]
    *_, info = env.step(np.zeros((2, 3)))
    assert info["ticks"].tolist() == [2, 2]
    *_, info = env.step(np.zeros((2, 3)))
    assert info["ticks"].tolist() == [0, 0]
    env.close()


def test_a_damaged_snapshot_changes_nothing():
    env = RacingVectorEnv(2, split=None, track_seeds=[3, 4])
    env.reset()
    state = env.snapshot()
    env.step(np.tile([0.0, 1.0, 0.0], (2, 1)))
    now = env.snapshot()
    for name, value in [
        ("schedule", np.zeros(0, np.uint8)),
        ("schedule", np.frombuffer(b'[[1, 0, 0, 5, "up"], [1, 0, 0, 5, "cw"]]', np.uint8)),
        ("schedule", np.frombuffer(b'[[1, 0, -1, 5, "cw"], [1, 0, 0, 5, "cw"]]', np.uint8)),
        ("schedule", np.frombuffer(b'[[1, 0, 0, 5, "cw"]]', np.uint8)),
        ("frames", state["frames"][:, :3]),
        ("settings", np.frombuffer(b"{{", np.uint8)),
        ("cars", state["cars"][:1]),
    ]:
        with pytest.raises(UserError, match="snapshot"):
            env.restore(state | {name: value})
    with pytest.raises(UserError, match="damaged"):
        env.restore(None)
    for name, value in env.snapshot().items():
        np.testing.assert_array_equal(value, now[name])
    env.close()


@pytest.mark.parametrize("num_envs", ["4", 4.0, True, 0, -3])
def test_a_number_of_environments_is_a_whole_number(num_envs):
    with pytest.raises(UserError, match="num_envs"):
        RacingVectorEnv(num_envs)


@pytest.mark.parametrize("seeds", ["12345", [10000.7], [], [True]])
def test_odd_track_seeds_are_refused(seeds):
    with pytest.raises(UserError, match=r"list of track seeds|a seed is a whole number"):
        RacingVectorEnv(1, track_seeds=seeds)
