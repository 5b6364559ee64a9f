"""The engine: the same for any batch and any threads, and restorable."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.telemetry import TELEMETRY
from envs.racing import EnvConfig, RacingVectorEnv
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import actions_of, place

SEEDS = [10_000, 10_001, 10_002, 10_003, 10_004, 10_005, 10_006, 10_007]


def streams(worlds: int, steps: int, **options) -> list[str]:
    """SHA-256 of all that each world shows during a rollout through several episodes."""
    config = EnvConfig(max_ticks=steps // 4, track_pool=2, track_reuse=2, **options)
    env = RacingVectorEnv(worlds, config, split=None, seed=3)
    digests = [hashlib.sha256() for _ in range(worlds)]
    episodes = np.zeros(worlds, int)

    def note(observation, *arrays):
        for w, digest in enumerate(digests):
            digest.update(observation[w].tobytes())
            for array in arrays:
                digest.update(np.ascontiguousarray(array[w]).tobytes())

    observation, info = env.reset(seed=SEEDS[:worlds])
    note(observation, *(info[name] for name in TELEMETRY))
    actions = np.stack([actions_of(w, steps) for w in range(worlds)], 1)
    for action in actions:
        observation, reward, terminated, truncated, info = env.step(action)
        note(observation, reward, terminated, truncated, *(info[name] for name in TELEMETRY))
        if "final_obs" in info:
            episodes += info["_final_obs"]
            for w in np.flatnonzero(info["_final_obs"]):
                digests[w].update(info["final_obs"][w].tobytes())
                digests[w].update(info["episode_statistics"]["return"][w].tobytes())
    assert (episodes > 1).all()
    env.close()
    return [digest.hexdigest() for digest in digests]


def test_a_rollout_is_the_same_for_any_threads_and_any_batch():
    reference = streams(8, 1000)
    assert len(set(reference)) == 8
    assert streams(8, 1000) == reference, "not even twice the same"
    assert streams(8, 1000, threads=2) == reference
    assert streams(1, 1000) == reference[:1]
    assert streams(3, 1000, threads=2) == reference[:3]


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "carracing"},
        {"grey": True, "frame_stack": 4, "action_repeat": 3},
        {"size": 64, "direction": "both", "tracks": "procedural", "random_start": 0.5},
    ],
    ids=["carracing", "grey-stack", "procedural-64"],
)
def test_a_rollout_of_any_kind_is_the_same_for_any_threads_and_batch(options):
    reference = streams(3, 300, **options)
    assert streams(3, 300, threads=2, **options) == reference
    assert streams(1, 300, **options) == reference[:1]


def lively(env: RacingVectorEnv, steps: int, first: int = 0) -> list[np.ndarray]:
    """Everything that some steps return, as arrays."""
    outputs = []
    for t in range(first, first + steps):
        action = np.stack([actions_of(w, first + steps)[t] for w in range(env.num_envs)])
        observation, reward, terminated, truncated, info = env.step(action)
        outputs += [observation.copy(), reward, terminated, truncated, info["active"]]
        outputs += [info[name] for name in TELEMETRY]
        outputs += list(info["reward_terms"].values())
        if "episode_statistics" in info:
            outputs += [info["_episode_statistics"], *info["episode_statistics"].values()]
            outputs += [frame for frame in info["final_obs"] if frame is not None]
    return outputs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preset": "carracing"},
        {"grey": True, "frame_stack": 3, "action_repeat": 2, "direction": "both"},
        {"num_agents": 3, "frame_stack": 2, "random_start": 0.5},
    ],
    ids=["race", "carracing", "stack", "agents"],
)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same", "other-env"])
def test_a_snapshot_continues_bit_by_bit(options, elsewhere):
    config = EnvConfig(max_ticks=60, **options)
    env = RacingVectorEnv(6, config, seed=11)
    env.reset()
    lively(env, 45)
    state = env.snapshot()
    shown = state["frames"].copy()
    expected = lively(env, 60, 45)  # through the end of the episodes, onto new tracks
    other = env
    if elsewhere:
        other = RacingVectorEnv(6, config, seed=999)
        other.reset()
        lively(other, 7)
    observation = other.restore(state)
    assert np.array_equal(observation, shown)
    got = lively(other, 60, 45)
    assert len(got) == len(expected)
    for one, two in zip(expected, got, strict=True):
        assert np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    assert np.array_equal(state["frames"], shown), "the snapshot is the caller's to keep"
    env.close()
    other.close()


def test_a_snapshot_of_other_settings_is_refused():
    env, other = RacingVectorEnv(2, seed=1), RacingVectorEnv(3, seed=1)
    env.reset()
    other.reset()
    with pytest.raises(UserError, match="num_envs=2, not 3"):
        other.restore(env.snapshot())
    env.close()
    other.close()


@pytest.mark.parametrize("preset", ["race", "carracing"])
def test_a_repeated_action_is_so_many_single_steps(preset):
    repeat = 4
    single = RacingVectorEnv(3, EnvConfig(preset=preset), track_seeds=SEEDS[:3])
    repeated = RacingVectorEnv(
        3, EnvConfig(preset=preset, action_repeat=repeat), track_seeds=SEEDS[:3]
    )
    single.reset()
    repeated.reset()
    for t in range(60):
        action = np.stack([actions_of(w, 60)[t] for w in range(3)])
        total, moved = np.zeros(3), np.zeros(3)
        for _ in range(repeat):
            frame, reward, _, _, info = single.step(action)
            total += reward
            moved += info["progress_delta"]
        frames, rewards, _, _, infos = repeated.step(action)
        assert np.array_equal(frames, frame)
        assert np.allclose(rewards, total, atol=1e-4)
        assert np.allclose(infos["progress_delta"], moved, atol=1e-4)
        for name in TELEMETRY:
            if name != "progress_delta":
                assert np.array_equal(infos[name], info[name]), name
    single.close()
    repeated.close()


def test_an_ended_agent_keeps_its_slot_and_waits():
    env = RacingVectorEnv(6, EnvConfig(num_agents=3, max_ticks=50), track_seeds=SEEDS[:4])
    _, info = env.reset()
    assert info["world_id"].tolist() == [0, 0, 0, 1, 1, 1]
    assert info["agent_id"].tolist() == [0, 1, 2, 0, 1, 2]
    assert info["active"].all()
    still = np.zeros((6, 3), np.float32)
    place(env.engine, PLAYFIELD + 5, 0.0, 0.0, world=0, agent=1)
    _, reward, terminated, truncated, info = env.step(still)
    assert terminated.tolist() == [False, True, False, False, False, False]
    assert not truncated.any()
    assert info["active"].tolist() == [True, False, True, True, True, True]
    assert info["_final_obs"].tolist() == terminated.tolist()
    assert info["final_obs"][1].shape == (96, 96, 3) and info["final_obs"][0] is None
    frozen = {name: info[name][1] for name in ("x", "y", "heading")}
    seeds = info["track_seed"].copy()
    moving = still + np.array([0.3, 0.8, 0], np.float32)
    for _ in range(48):
        _, reward, terminated, truncated, info = env.step(moving)
        assert not terminated.any() and not truncated.any()
        assert reward[1] == 0 and not info["active"][1]
        assert all(info[name][1] == value for name, value in frozen.items())
        assert not any(term[1] for term in info["reward_terms"].values())
        assert "episode_statistics" not in info
    _, reward, terminated, truncated, info = env.step(moving)
    assert truncated.tolist() == [True, False, True, True, True, True]
    assert not terminated.any()
    assert info["_episode_statistics"].tolist() == truncated.tolist(), "each agent's once"
    assert info["episode_statistics"]["length"][[0, 2]].tolist() == [50, 50]
    assert info["active"].all(), "the world starts again when all of its agents have ended"
    assert (info["track_seed"] != seeds).all()
    env.close()


PEDAL = st.floats(0, 1, width=32)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.floats(-1, 1, width=32), PEDAL, PEDAL, st.integers(1, 40)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(["race", "carracing"]),
)
def test_any_driving_keeps_everything_finite(script, preset):
    env = property_env(preset)
    env.reset(seed=SEEDS[:2])
    for steer, gas, brake, ticks in script:
        for _ in range(ticks):
            action = np.tile(np.array([steer, gas, brake], np.float32), (2, 1))
            observation, reward, _, _, info = env.step(action)
            assert np.isfinite(reward).all() and (np.abs(reward) <= 1000).all()
            for name in TELEMETRY:
                assert np.isfinite(info[name]).all(), name
            assert (info["speed"] <= 100.001).all()
            assert (np.abs(info["steer"]) < 0.47).all()
            assert ((info["off_track"] >= 0) & (info["off_track"] <= 1)).all()
        assert observation.dtype == np.uint8
        assert observation[:, :84].any((1, 2, 3)).all(), "no ground above the indicators"
    cars = env.engine.cars
    assert all(np.isfinite(cars[name]).all() for name in cars.dtype.names)
    assert ((cars["s"] >= 0) & (cars["s"] < [[t.track.length] for t in env.engine.tracks])).all()


ENVS: dict[str, RacingVectorEnv] = {}


def property_env(preset: str) -> RacingVectorEnv:
    if preset not in ENVS:
        ENVS[preset] = RacingVectorEnv(2, EnvConfig(preset=preset, max_ticks=300), split=None)
    return ENVS[preset]


@settings(max_examples=20)
@given(st.integers(0, 80), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_any_snapshot_continues_alike(before, after, seed):
    env = property_env("race")
    env.reset(seed=SEEDS[:2])
    rng = np.random.default_rng(seed)
    actions = rng.uniform([-1, 0, 0], [1, 1, 1], (before + after, 2, 3)).astype(np.float32)
    for action in actions[:before]:
        env.step(action)
    state = env.snapshot()
    runs = []
    for _ in range(2):
        env.restore(state)
        shown = [np.copy(env.step(action)[0]) for action in actions[before:]]
        runs.append((np.stack(shown), env.engine.cars.copy(), env.engine.wheels.copy()))
    assert np.array_equal(runs[0][0], runs[1][0])
    for kind in (1, 2):
        for name in runs[0][kind].dtype.names:
            assert np.array_equal(runs[0][kind][name], runs[1][kind][name]), name
