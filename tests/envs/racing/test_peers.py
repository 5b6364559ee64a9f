"""The environments in other people's hands: Gymnasium's wrappers and vector forms, SB3, PettingZoo.

Every case is one that the real CarRacing-v3 passes.
"""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers

import envs.racing  # noqa: F401  registers the ids
from common.errors import UserError
from envs.racing import RewardConfig, parallel_env
from envs.racing.parallel_env import RacingParallelEnv
from tests.envs.racing.forms import GAS, IDS, parallel, several, single

# Statistics


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_statistics_wrapper_sees_a_natural_end(env_id):
    with wrappers.RecordEpisodeStatistics(gymnasium.make(env_id, max_ticks=12)) as env:
        for _ in range(2):
            env.reset(seed=3)
            for _ in range(12):
                *_, truncated, info = env.step(GAS)
            assert truncated and info["episode"]["l"] == 12
            assert info["episode_statistics"]["length"] == 12
            assert info["episode"]["r"] == pytest.approx(info["episode_statistics"]["return"])


@pytest.mark.parametrize("mode", [None, "sync", "async"])
def test_gymnasiums_vector_statistics_and_lists_of_infos(mode):
    env = gymnasium.make_vec(IDS[1], num_envs=2, vectorization_mode=mode, max_ticks=6)
    env = wrappers.vector.RecordEpisodeStatistics(env)
    try:
        env.reset(seed=7)
        for _ in range(6):
            *_, truncated, info = env.step(np.stack([GAS, GAS]))
        assert truncated.all() and info["episode"]["l"].tolist() == [6, 6]
    finally:
        env.close()


def test_infos_of_the_vector_form_become_a_list():
    env = wrappers.vector.DictInfoToList(gymnasium.make_vec(IDS[1], num_envs=2, max_ticks=3))
    env.reset(seed=7)
    for _ in range(3):
        infos = env.step(np.stack([GAS, GAS]))[-1]
    assert [info["episode_statistics"]["length"] for info in infos] == [3, 3]
    env.close()


def test_stable_baselines_trains_without_a_monitor():
    sb3 = pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv

    make = functools.partial(gymnasium.make, IDS[0], max_ticks=40, size=64)
    env = DummyVecEnv([make])
    model = sb3.PPO("CnnPolicy", env, n_steps=64, batch_size=64, n_epochs=1, device="cpu")
    model.learn(64)
    env.close()


def test_stable_baselines_draws_unsigned_seeds_of_32_bits():
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.env_util import make_vec_env

    env = make_vec_env(IDS[0], n_envs=2, seed=2**32 - 2, env_kwargs={"max_ticks": 5})
    env.reset()
    for _ in range(6):
        _, _, dones, infos = env.step(np.stack([GAS, GAS]))
        if dones.all():
            assert infos[0]["episode"]["l"] == 5, "Monitor's own statistics"
    env.close()


# make and make_vec


OPTIONS = {
    "grey": True,
    "frame_stack": 3,
    "size": 64,
    "action_repeat": 2,
    "reward": {"progress": 10.0, "time": -1.0},
    "render_mode": "rgb_array",
    "max_episode_steps": 4,
}


def test_make_and_make_vec_take_the_same_options_and_behave_alike():
    vector = gymnasium.make_vec(IDS[1], num_envs=3, **OPTIONS)
    frames, infos = vector.reset(seed=5)
    singles = [gymnasium.make(IDS[1], **OPTIONS) for _ in range(3)]
    for index, env in enumerate(singles):
        frame, info = env.reset(seed=5 + index)
        np.testing.assert_array_equal(frames[index], frame)
        assert infos["track_seed"][index] == info["track_seed"] == 5 + index
    for step in range(1, 5):
        frames, rewards, terminated, truncated, infos = vector.step(np.stack([GAS] * 3))
        current = frames if step < 4 else infos["final_obs"]
        pictures = None if step == 4 else vector.render()
        for index, env in enumerate(singles):
            frame, reward, end, cut, _ = env.step(GAS)
            np.testing.assert_array_equal(current[index], frame)
            assert (rewards[index], terminated[index], truncated[index]) == (
                np.float32(reward),
                end,
                cut,
            )
            if pictures is not None:
                np.testing.assert_array_equal(pictures[index], env.render())
        assert truncated.all() == (step == 4)
    for env in (vector, *singles):
        env.close()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"grye": True}, "option: 'grye' is not one of .*did you mean 'grey'"),
        ({"reward": {"tiem": 1.0}}, "reward: 'tiem' is not one of .*did you mean 'time'"),
        ({"reward": 3}, "reward: a RewardConfig or a mapping, not 3"),
        ({"render_mode": "ansi"}, "render_mode is one of rgb_array, state_pixels, not 'ansi'"),
        ({"split": "sealed"}, "sealed: 500-999"),
        ({"frame_stack": 0}, "frame_stack"),
    ],
)
def test_every_form_explains_bad_options(options, complaint):
    for make in (single, several, parallel):
        with pytest.raises(UserError, match=complaint):
            make(**options)


# Actions and endings


def test_carracing_clips_what_the_real_game_clips():
    env, twin = (gymnasium.make(IDS[0]) for _ in range(2))
    for e in (env, twin):
        e.reset(seed=3)
    for wild, tame in (
        ([5.0, 5.0, 5.0], [1, 1, 1]),
        ([-np.inf, 9.0, -3.0], [-1, 1, 0]),
        ([0.5, -1.0, 0.2], [0.5, 0, 0.2]),
    ):
        a, b = (e.step(np.array(x, np.float32)) for e, x in ((env, wild), (twin, tame)))
        np.testing.assert_array_equal(a[0], b[0])
        assert str(a[1:]) == str(b[1:])
    for bad in ([0, np.nan, 0], [0, 0], 0.5):
        with pytest.raises(ValueError, match=r"nan|shape \(3,\)"):
            env.unwrapped.step(np.array(bad))
    race = gymnasium.make(IDS[1], disable_env_checker=True)
    race.reset(seed=3)
    with pytest.raises(ValueError, match="gas of environment 0 is 5"):
        race.step(np.array([0.0, 5.0, 0.0]))


@pytest.mark.parity
def test_the_real_game_does_the_same_beyond_the_bounds():
    from envs.racing.reference.drive import make_reference

    poses = []
    for action in ([5.0, 5.0, 5.0], [1.0, 1.0, 1.0]):
        real = make_reference()
        real.reset(seed=3)
        for _ in range(20):
            real.step(np.array([0.0, 1.0, 0.0]))
        for _ in range(20):
            real.step(np.array(action))
        poses.append((*real.car.hull.position, real.car.hull.angle))
        real.close()
    np.testing.assert_allclose(*poses, atol=1e-6)


@pytest.mark.parametrize("make", [single, several, parallel])
def test_nothing_is_driven_after_close(make):
    env, reset = make(render_mode="rgb_array")
    reset(1)
    actions = {"single": GAS, "several": np.stack([GAS] * 3)}.get(make.__name__)
    if actions is None:
        actions = {agent: GAS for agent in env.agents}
    env.close()
    for use in (lambda: env.step(actions), lambda: reset(2), env.render):
        with pytest.raises(UserError, match=r"after close\(\); make another environment"):
            use()


# PettingZoo


def test_pettingzoos_own_tests():
    from pettingzoo.test import api_test, max_cycles_test, parallel_api_test, parallel_seed_test

    parallel_api_test(parallel_env.parallel_env(num_agents=3, max_cycles=20), num_cycles=60)
    parallel_seed_test(lambda: parallel_env.parallel_env(max_cycles=20), num_cycles=30)
    max_cycles_test(parallel_env)
    api_test(parallel_env.env(max_cycles=20), num_cycles=50)


def test_a_race_is_rendered_from_the_first_car_that_drives():
    env = parallel_env.parallel_env(num_agents=2, render_mode="rgb_array", max_cycles=3)
    with pytest.raises(UserError, match=r"reset\(\) before render"):
        env.render()
    env.reset(seed=1)
    picture = env.render()
    assert picture.dtype == np.uint8 and picture.shape[2] == 3
    env.agents = ["car_1"]
    assert (env.render() != picture).any()
    env.close()


def test_the_parallel_form_refuses_what_the_others_refuse():
    env = RacingParallelEnv(2, reward={"time": -2.0, "progress": 0.0}, max_cycles=2)
    for space in (env.action_space, env.observation_space):
        assert space("car_1")
        with pytest.raises(UserError, match=r"no agent 'nope'; there are \['car_0', 'car_1'\]"):
            space("nope")
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"car_1's action has shape \(3,\), not \(\)"):
        env.step({"car_0": GAS, "car_1": 0.5})
    with pytest.raises(ValueError, match="car_1's action: actions are numbers, not 'left'"):
        env.step({"car_0": GAS, "car_1": "left"})
    for wrong in ([GAS, GAS], None):
        with pytest.raises(UserError, match="step takes a mapping from car to action"):
            env.step(wrong)
    with pytest.raises(UserError, match=r"\[0, 'car_0', 'car_1'\] missing or unknown"):
        env.step({0: GAS})
    with pytest.raises(UserError, match=r"no agent \['car_0'\]"):
        env.action_space(["car_0"])
    for options, message in (
        ({"num_envs": 2}, "num_envs is called num_agents"),
        ({"max_episode_steps": 2}, "max_episode_steps is called max_cycles"),
        ({"max_cycles": "2"}, "the limit in steps is a whole number from 1 on, not '2'"),
        ({"max_cycles": 0}, "the limit in steps is a whole number from 1 on, not 0"),
    ):
        with pytest.raises(UserError, match=message):
            RacingParallelEnv(2, **options)
    _, rewards, *_ = env.step({"car_0": GAS, "car_1": GAS})
    assert rewards == {"car_0": -2.0, "car_1": -2.0}
    *_, truncated, infos = env.step({"car_0": GAS, "car_1": GAS})
    assert truncated == {"car_0": True, "car_1": True} and env.agents == []
    assert infos["car_1"]["episode_statistics"]["length"] == 2
    env.close()
    same = RacingParallelEnv(2, reward=RewardConfig(time=-2.0, progress=0.0))
    same.reset(seed=1)
    assert same.step({"car_0": GAS, "car_1": GAS})[1] == rewards
    same.close()


def test_films_need_moviepy_and_gymnasium_says_so(tmp_path):
    env = gymnasium.make(IDS[1], render_mode="rgb_array", max_ticks=5)
    try:
        import moviepy  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(gymnasium.error.DependencyNotInstalled, match=r"(?i)moviepy"):
            wrappers.RecordVideo(env, str(tmp_path))
        return
    with wrappers.RecordVideo(env, str(tmp_path)) as film:
        film.reset(seed=1)
        for _ in range(5):
            film.step(GAS)
    assert list(tmp_path.glob("*.mp4"))
