"""The real CarRacing-v3: drawn only when looked at, spread over processes, as a vector environment.

Nothing of that may change what it does, so the plain one of Gymnasium is the judge.
"""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
from contextlib import closing

import gymnasium
import numpy as np
import pytest

pytest.importorskip("Box2D", reason="needs the extra `parity`")

from common.errors import UserError
from common.files import read_jsonl
from common.runs import ROOT
from envs.racing import EndingConfig, EnvConfig, ObservationSpec, RacingVectorEnv, RewardConfig
from envs.racing.drivers import CentrelineDriver
from envs.racing.evaluate import evaluate
from envs.racing.pixels.adapter import FrameAdapter
from envs.racing.reference.drive import ReferenceDrive, make_reference
from envs.racing.reference.pool import ReferencePool
from envs.racing.reference.vector_env import ReferenceVectorEnv
from tests.commands import TINY, command, last_line

pytestmark = pytest.mark.parity

SPEC = ObservationSpec(size=64, grey=True, frame_stack=2, action_repeat=4)
STATM = "/proc/self/statm"


def config(**options):
    plain = {"size": 64, "grey": True, "frame_stack": 2, "action_repeat": 4, "track_pool": 0}
    return EnvConfig(preset="gymnasium_carracing", **plain | options)


def wild(ticks, seed):
    """(ticks, 3) random actions, each held for four ticks."""
    rng = np.random.default_rng(seed)
    return rng.uniform([-1, 0, 0], [1, 1, 0.5], (ticks // 4, 3)).repeat(4, 0)


def straight(ticks, seed):
    """Gas and no steering, which leaves the playfield."""
    return np.tile([0.0, 0.7, 0.0], (ticks, 1))


def lap(ticks, seed):
    """What our driver did on our engine's copy of the track: most of a lap of the real one."""
    driver, actions = CentrelineDriver(), []
    carry, is_first = driver.initial(1), np.ones(1, bool)
    with closing(
        RacingVectorEnv(1, EnvConfig(preset="carracing"), split=None, track_seeds=[seed])
    ) as env:
        _, info = env.reset()
        for _ in range(ticks):
            action, carry = driver.act(carry, driver.spec.gather(info, 1), is_first)
            actions.append(action[0])
            _, _, _, _, info = env.step(action)
            is_first = np.zeros(1, bool)
    return np.array(actions)


def state(env):
    hull = env.car.hull
    wheels = [(w.omega, w.phase, w.joint.angle, *w.linearVelocity) for w in env.car.wheels]
    return np.array([*hull.position, hull.angle, *hull.linearVelocity, *np.ravel(wheels)])


@pytest.mark.parametrize(
    ("actions", "seed", "ticks"), [(wild, 3, 120), (straight, 8, 250), (lap, 7, 200)]
)
def test_a_drive_looked_at_now_and_then_is_the_plain_one(actions, seed, ticks):
    plain, drive = make_reference(), ReferenceDrive(1)
    drive.step(np.array([0.0, 1.0, 0.0]))  # an episode before leaves no trace
    drive.reset(seed)
    first, _ = plain.reset(seed=seed)
    np.testing.assert_array_equal(drive.frame, first)
    looked = np.random.default_rng(seed).random(ticks) < 0.25
    total = 0.0
    for look, action in zip(looked, actions(ticks, seed), strict=True):
        frame, reward, terminated, _, info = plain.step(np.asarray(action, np.float64))
        drive.step(action)
        assert (reward, terminated) == (drive.reward, drive.car["terminated"][0])
        assert drive.reward_terms.sum() == pytest.approx(reward, abs=1e-9)
        np.testing.assert_array_equal(state(drive.env), state(plain))
        if look or terminated:
            np.testing.assert_array_equal(drive.frame, frame)
        total += reward
        if terminated:
            assert not info["lap_finished"] and actions is straight and reward == -100
            break
    assert terminated == (actions is straight)
    assert drive.statistics()["native_return"] == pytest.approx(total)


class Scripted:
    """Drives a little differently for every picture, so that a difference anywhere shows."""

    spec = SPEC

    def initial(self, n, seeds=None):
        return None

    def act(self, carry, observation, is_first, deterministic=True):
        assert observation.dtype == np.uint8 and observation.shape[1:] == SPEC.shape
        steer = observation.mean((1, 2, 3)) % 1 - 0.5
        return np.stack([steer, np.full(len(steer), 0.7), np.zeros(len(steer))], 1), None


def test_the_number_of_workers_changes_nothing():
    rows = [
        evaluate(Scripted(), [3, 8, 5], env="gymnasium_carracing", max_ticks=210, threads=n).rows
        for n in (1, 2)
    ]
    assert rows[0] == rows[1]
    assert [row["seed"] for row in rows[0]] == [3, 8, 5] and rows[0][0]["ticks"] > 100


def test_a_dead_worker_is_told_and_leaves_no_other():
    pool = ReferencePool(2, SPEC, 100, workers=2)
    pool.reset([0, 1], [3, 4])
    processes = [part._process for part in pool._parts]
    os.kill(processes[1].pid, signal.SIGKILL)
    with pytest.raises(UserError, match=r"worker process .* was killed by signal 9"):
        for _ in range(2):
            pool.step([0, 1], np.zeros((2, 3)))
    assert all(process.poll() is not None for process in processes)
    with pytest.raises(UserError, match="closed"):
        pool.step([0], np.zeros((1, 3)))
    pool.close()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(stop):
    script = (
        "import time\n"
        "from envs.racing.config import ObservationSpec\n"
        "from envs.racing.reference.pool import ReferencePool\n"
        "pool = ReferencePool(2, ObservationSpec(), 100, workers=2)\n"
        "print(*[part._process.pid for part in pool._parts], flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert len(parent.stdout.readline().split()) == 2
    parent.send_signal(stop)
    _, err = parent.communicate(timeout=50)  # returns once no worker has the stream open any more
    assert err.count("Traceback") == (stop == signal.SIGINT), err


def test_a_vector_environment_is_gymnasiums_own():
    """Three cars over an episode each, against Gymnasium's vector environment."""
    seeds, ticks = [10_003, 10_004, 10_005], 80
    original = gymnasium.make_vec("CarRacing-v3", num_envs=3, vectorization_mode="sync")
    env = ReferenceVectorEnv(3, config(size=96, max_ticks=ticks), track_seeds=seeds)
    adapters = [FrameAdapter(env.config.observation, mask_score=True) for _ in seeds]
    actions = np.stack([wild(ticks, seed) for seed in seeds], 1).astype(np.float32)
    with closing(original), closing(env):
        frames, _ = original.reset(seed=seeds)
        observations, info = env.reset()
        assert info["track_seed"].tolist() == seeds
        expected = [a.reset(f) for a, f in zip(adapters, frames, strict=True)]
        np.testing.assert_array_equal(observations, expected)
        returns = np.zeros(3)
        for t in range(0, ticks, 4):
            total = np.zeros(3)
            for action in actions[t : t + 4]:
                frames, reward, terminated, _, _ = original.step(action)
                total += reward
            returns += total
            observations, rewards, ended, truncated, info = env.step(actions[t])
            np.testing.assert_array_equal(rewards, total.astype(np.float32))
            assert not (terminated.any() or ended.any()) and info["ticks"].tolist() == [4, 4, 4]
            terms = info["reward_terms"]
            assert terms.keys() == {"tile", "time", "playfield"}
            np.testing.assert_allclose(sum(terms.values()), rewards, atol=1e-4)
            expected = [a.push(f) for a, f in zip(adapters, frames, strict=True)]
            last = t + 4 == ticks
            assert truncated.tolist() == [last] * 3
            last_frames = np.stack(info["final_obs"]) if last else observations
            np.testing.assert_array_equal(last_frames, expected)
        engine = RacingVectorEnv(1, EnvConfig(preset="carracing", max_ticks=1))
        with closing(engine):
            engine.reset()
            names = engine.step(np.zeros((1, 3)))[-1]["episode_statistics"].keys()
        assert info["episode_statistics"].keys() == names and info["_episode_statistics"].all()
        np.testing.assert_allclose(info["episode_statistics"]["return"], returns)
        assert info["episode_statistics"]["length"].tolist() == [ticks] * 3


def test_training_tracks_are_drawn_and_do_not_depend_on_the_number_of_cars():
    def drawn(number, episodes=3):
        with closing(ReferenceVectorEnv(number, config(max_ticks=4), seed=5)) as env:
            _, info = env.reset()
            seeds = [info["track_seed"]]
            for _ in range(episodes - 1):
                observations, _, _, truncated, info = env.step(np.zeros((number, 3)))
                assert truncated.all() and (observations != np.stack(info["final_obs"])).any()
                seeds.append(info["track_seed"])
        return np.array(seeds)

    two = drawn(2)
    assert ((two >= 10_000) & (two <= 999_999)).all() and len(set(two.ravel())) == 6
    np.testing.assert_array_equal(drawn(1)[:, 0], two[:, 0])


def test_a_row_that_ends_within_a_step_ran_fewer_ticks():
    with closing(ReferenceVectorEnv(1, config(max_ticks=6), seed=1)) as env:
        env.reset()
        ticks = [int(env.step(np.zeros((1, 3)))[-1]["ticks"][0]) for _ in range(4)]
    assert ticks == [4, 2, 4, 2]


def test_a_restored_environment_goes_on_with_the_next_episodes():
    def following(env):
        return env.step(np.zeros((2, 3)))[-1]["track_seed"].tolist()

    with closing(ReferenceVectorEnv(2, config(max_ticks=4), seed=5)) as env:
        env.reset()
        state = env.snapshot()
        expected = following(env)
    with closing(ReferenceVectorEnv(2, config(max_ticks=8), seed=6)) as env:
        observations = env.restore(state)
        assert observations.shape == (2, *env.config.observation.shape)
        assert following(env) == expected
        for damage in ({}, {"schedule": state["schedule"][:-1]}):
            with pytest.raises(UserError, match="snapshot"):
                env.restore(damage)


def test_misuse_is_explained():
    with pytest.raises(UserError, match="track seed 7 belongs to the test split"):
        ReferenceVectorEnv(1, config(), split="train", track_seeds=[7])
    with pytest.raises(UserError, match="own reward only"):
        ReferenceVectorEnv(1, config(), RewardConfig())
    with pytest.raises(UserError, match="own endings only"):
        ReferenceVectorEnv(1, config(), endings=EndingConfig(stuck_limit=50))
    with pytest.raises(UserError, match="preset=race is for RacingVectorEnv"):
        ReferenceVectorEnv(1, EnvConfig())
    with pytest.raises(UserError, match="not this engine"):
        RacingVectorEnv(1, config())
    with pytest.raises(ValueError, match="indicators=True"):
        config(indicators=False)
    with closing(ReferenceVectorEnv(1, config(), split="train")) as env:
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="Box2D's state cannot be saved"):
                copied(env)
        with pytest.raises(UserError, match="reset"):
            env.step(np.zeros((1, 3)))
        with pytest.raises(UserError, match="track seed 3 belongs"):
            env.reset(seed=3)
        env.reset()
        with pytest.raises(ValueError, match="gas of environment 0 is nan"):
            env.step(np.array([[0, np.nan, 0]]))
        with pytest.raises(ValueError, match="shape"):
            env.step(np.zeros((1, 2)))


@pytest.mark.skipif(not os.path.exists(STATM), reason="reads resident memory from /proc")
def test_hundreds_of_episodes_do_not_grow_memory():
    def resident():
        gc.collect()
        with open(STATM) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    drive = ReferenceDrive(0)

    def use(episodes):
        for seed in range(episodes):
            drive.reset(seed)
            for _ in range(5):
                drive.step(np.array([0.1, 0.5, 0.0]))

    use(30)
    before = resident()
    use(120)
    grown = resident() - before
    assert grown < 8e6, f"{grown / 1e6:.1f} MB more after 120 episodes"


TRAIN = (
    *(text for text in TINY if not text.startswith(("total", "checkpoint", "evaluation", "env"))),
    "env=gymnasium_carracing", "env.max_ticks=40", "checkpoint_every=64", "evaluation.every=0",
    "evaluation.test_seeds=",
)  # fmt: skip


def test_a_driver_is_trained_in_it_and_resumed(tmp_path):
    arguments = (*TRAIN, "reward=native", "name=./real", "total_timesteps=128")
    numbers = last_line(command("train_ppo.py", *arguments, cwd=tmp_path))
    assert numbers["ticks"] == "128" and numbers["decisions"] == "32"
    run = tmp_path / "runs" / "real"
    row = read_jsonl(run / "metrics.jsonl")[-1]
    assert {"reward/tile", "reward/time", "reward/playfield"} <= row.keys()
    resumed = command("train_ppo.py", f"resume={run}", "total_timesteps=512", cwd=tmp_path)
    assert "cannot be saved: episodes start afresh" in resumed.stdout
    assert last_line(resumed)["ticks"] == "512"
    row = read_jsonl(run / "metrics.jsonl")[-1]
    assert row["episode/length"] == 40 and row["episode/return"] == row["episode/native_return"]


def test_other_rewards_and_a_missing_extra_are_told_before_anything_is_written(
    tmp_path, monkeypatch
):
    done = command("train_ppo.py", *TRAIN, cwd=tmp_path, expect=2)
    assert "add reward=native" in done.stderr
    monkeypatch.setattr("ppo.evaluate.find_spec", lambda name: None)
    done = command("train_ppo.py", *TRAIN, "reward=native", cwd=tmp_path, expect=2)
    assert ".[parity]" in done.stderr
    assert not list(tmp_path.iterdir())
