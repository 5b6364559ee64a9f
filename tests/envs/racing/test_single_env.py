"""The registered ids as others meet them: Gymnasium's and PettingZoo's own checkers."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from pettingzoo.test import parallel_api_test

import envs.racing  # noqa: F401  registers the ids
from common.errors import UserError
from envs.racing.parallel_env import RacingParallelEnv
from envs.racing.sim.track import carracing_points

IDS = ["racing/CarRacing-v0", "racing/Race-v0"]


@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker_passes(env_id):
    env = gymnasium.make(env_id, render_mode="rgb_array").unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not.*symmetric.*")  # pedals start at 0
        warnings.filterwarnings("ignore", message=".*render fps.*")
        check_env(env)
    env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_a_seed_names_the_track_of_carracing(env_id):
    env = gymnasium.make(env_id)
    env.reset(seed=7)
    track = env.unwrapped._vector.engine.tracks[0].track
    np.testing.assert_array_equal(track.points, carracing_points(7))
    env.close()


def test_the_same_seed_gives_the_same_episode():
    frames = []
    for _ in range(2):
        env = gymnasium.make("racing/Race-v0")
        env.reset(seed=3)
        for _ in range(20):
            frame, *_ = env.step(np.array([0.2, 0.6, 0.0], np.float32))
        frames.append(frame)
        env.close()
    np.testing.assert_array_equal(*frames)


def test_an_episode_ends_with_its_statistics():
    env = gymnasium.make("racing/Race-v0", max_ticks=30)
    env.reset(seed=1)
    for _ in range(30):
        _, _, terminated, truncated, info = env.step(np.array([0.0, 0.5, 0.0], np.float32))
    assert truncated and not terminated
    assert info["episode_statistics"]["length"] == 30
    assert info["episode_statistics"]["progress"] > 0
    assert info["progress"] == pytest.approx(info["episode_statistics"]["progress"], rel=1e-5)
    env.close()


def test_an_episode_that_is_over_takes_no_steps():
    env = gymnasium.make("racing/Race-v0", max_ticks=1).unwrapped
    env.reset(seed=1)
    *_, truncated, _ = env.step(np.zeros(3))
    assert truncated
    with pytest.raises(UserError, match="episode is over"):
        env.step(np.zeros(3))
    env.reset()
    env.step(np.zeros(3))
    env.close()


def test_every_live_car_needs_an_action():
    env = RacingParallelEnv(2)
    env.reset(seed=1)
    for actions in ({"car_0": np.zeros(3)}, {f"car_{i}": np.zeros(3) for i in range(3)}):
        with pytest.raises(UserError, match="one action for each"):
            env.step(actions)
    env.close()


def test_the_vector_form_is_registered():
    env = gymnasium.make_vec("racing/CarRacing-v0", num_envs=3, seed=5)
    observation, _ = env.reset()
    assert observation.shape == (3, 96, 96, 3)
    env.close()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"colour": "blue"}, "colour"),
        ({"size": 97}, "97"),
        ({"grey": "false"}, "grey: expected true or false"),
        ({"num_agents": 2}, "num_agents=2"),
        ({"render_mode": "hologram"}, "hologram"),
        ({"preset": "carracing", "direction": "cw"}, "direction"),
        ({"reward": {"speeding": 1.0}}, "speeding"),
        ({"endings": {"stuck_limit": -1}}, "stuck_limit"),
    ],
)
def test_bad_options_are_named(options, complaint):
    with pytest.raises(UserError, match=complaint):
        gymnasium.make("racing/Race-v0", **options)


def test_bad_actions_are_named():
    env = gymnasium.make("racing/Race-v0", disable_env_checker=True)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"gas.*nan"):
        env.step(np.array([0.0, np.nan, 0.0], np.float32))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        env.step(np.zeros(2, np.float32))
    env.close()


def test_pettingzoos_checker_passes():
    parallel_api_test(RacingParallelEnv(3), num_cycles=60)


def test_a_car_sees_the_one_ahead():
    env = RacingParallelEnv(2)
    frames, infos = env.reset(seed=4)
    ahead = np.array([infos["car_0"][name] - infos["car_1"][name] for name in ("x", "y")])
    heading = infos["car_1"]["heading"]
    right = ahead @ (np.cos(heading), np.sin(heading))
    up = ahead @ (-np.sin(heading), np.cos(heading))
    row, column = round(72 - up * 16.2 * 96 / 800), round(48 + right * 16.2 * 96 / 1000)
    around = frames["car_1"][row - 4 : row + 5, column - 2 : column + 3].reshape(-1, 3)
    # The rival's hull is a colour that neither road, grass nor the own red car has.
    colour = env._vector.engine.renderer.rivals[0]
    assert np.abs(around - colour).max(1).min() < 40
    env.close()
