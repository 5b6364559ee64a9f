"""The engine: the same for any batch and any threads, restorable, and a car that drives."""

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from envs.racing import EnvConfig, RacingVectorEnv
from envs.racing.engine import TELEMETRY, Engine
from envs.racing.pixels.render import LUMINANCE
from envs.racing.sim.track import PLAYFIELD
from tests.envs.racing.driving import engine_on, follow, idle, painted, place, put_at

SEEDS = [10_000, 10_001, 10_002, 10_003, 10_004, 10_005, 10_006, 10_007]


def actions_of(world: int, steps: int) -> np.ndarray:
    """(steps, 3) lively actions that belong to a world, held for a few ticks each."""
    rng = np.random.default_rng(world)
    raw = rng.uniform([-1, 0, -1], [1, 1, 0.6], (steps // 8 + 1, 3))
    return np.repeat(np.clip(raw, [-1, 0, 0], 1), 8, axis=0)[:steps]


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
    kept = []
    for t in range(first, first + steps):
        action = np.stack([actions_of(w, first + steps)[t] for w in range(env.num_envs)])
        observation, reward, terminated, truncated, info = env.step(action)
        kept += [observation.copy(), reward, terminated, truncated, info["active"]]
        kept += [info[name] for name in TELEMETRY]
        kept += list(info["reward_terms"].values())
        if "episode_statistics" in info:
            kept += [info["_episode_statistics"], *info["episode_statistics"].values()]
            kept += [frame for frame in info["final_obs"] if frame is not None]
    return kept


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


@pytest.mark.parametrize("grey", [True, False])
def test_a_stack_holds_the_last_frames_oldest_first(grey):
    plain = RacingVectorEnv(2, EnvConfig(grey=grey), track_seeds=SEEDS[:2])
    stacked = RacingVectorEnv(2, EnvConfig(grey=grey, frame_stack=3), track_seeds=SEEDS[:2])
    frame, _ = plain.reset()
    stack, _ = stacked.reset()
    shape = (96, 96) if grey else (96, 96, 3)
    assert stack.shape == (2, 3, *shape)
    history = [frame.reshape(2, *shape).copy()] * 3
    assert np.array_equal(stack, np.stack(history, 1)), "a reset fills the stack"
    for t in range(10):
        action = np.stack([actions_of(w, 10)[t] for w in range(2)])
        history = [*history[1:], plain.step(action)[0].reshape(2, *shape).copy()]
        stack = stacked.step(action)[0]
        assert np.array_equal(stack, np.stack(history, 1))
    assert not np.array_equal(stack[:, 0], stack[:, 2])
    plain.close()
    stacked.close()


@pytest.mark.parametrize("preset", ["race", "carracing"])
def test_grey_is_the_luminance(preset):
    frames = []
    for grey in (False, True):
        env = RacingVectorEnv(2, EnvConfig(preset=preset, grey=grey), track_seeds=SEEDS[:2])
        env.reset()
        shown = []
        for t in range(80):
            action = np.stack([actions_of(w, 80)[t] for w in range(2)])
            shown.append(env.step(action)[0].copy())
        frames.append(np.stack(shown).reshape(80, 2, 96, 96, -1).astype(float))
        env.close()
    difference = np.abs(frames[0] @ LUMINANCE - frames[1][..., 0])
    # Only where two indicator bars share a column may clamping make more than a grey level.
    assert (difference > 1.01).mean() < 3e-4
    assert difference.max() < 3.1


def test_a_small_frame_is_the_large_one_shrunk():
    import cv2

    frames = []
    for size in (96, 64):
        env = RacingVectorEnv(2, EnvConfig(size=size), track_seeds=SEEDS[:2])
        env.reset()
        for t in range(60):
            action = np.stack([actions_of(w, 80)[t] for w in range(2)])
            observation = env.step(action)[0]
        assert observation.shape == (2, size, size, 3)
        frames.append(observation.copy())
        env.close()
    for large, small in zip(*frames, strict=True):
        shrunk = cv2.resize(large, (64, 64), interpolation=cv2.INTER_AREA).astype(float)
        error = np.abs(shrunk - small).mean()
        assert error < 3
        for shift in (-1, 1):
            for axis in (0, 1):
                assert np.abs(shrunk - np.roll(small, shift, axis)).mean() > error, "off by a pixel"


def test_the_callers_buffer_is_drawn_into():
    env = RacingVectorEnv(2, EnvConfig(frame_stack=2, grey=True), track_seeds=SEEDS[:2])
    twin = RacingVectorEnv(2, EnvConfig(frame_stack=2, grey=True), track_seeds=SEEDS[:2])
    rollout = np.zeros((21, 2, 2, 96, 96), np.uint8)
    env.set_buffer(rollout[0])
    observation, _ = env.reset()
    assert observation is rollout[0] or np.shares_memory(observation, rollout[0])
    expected = [twin.reset()[0].copy()]
    for t in range(20):
        action = np.stack([actions_of(w, 20)[t] for w in range(2)])
        env.set_buffer(rollout[t + 1])
        observation = env.step(action)[0]
        assert np.shares_memory(observation, rollout[t + 1])
        expected.append(twin.step(action)[0].copy())
    assert np.array_equal(rollout, np.stack(expected)), "stacks continue from buffer to buffer"
    env.close()
    twin.close()


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros((2, 96, 96, 3), np.float32),
        np.zeros((2, 64, 64, 3), np.uint8),
        np.zeros((96, 96, 3, 2), np.uint8).transpose(3, 0, 1, 2),
    ],
    ids=["type", "shape", "order"],
)
def test_a_misfit_buffer_is_refused(buffer):
    env = RacingVectorEnv(2, seed=1)
    with pytest.raises(ValueError, match=r"preset=race.*\(2, 96, 96, 3\)"):
        env.set_buffer(buffer)
    env.close()


def drive(engine: Engine, ticks: int, steer=0.0, gas=0.0, brake=0.0):
    for _ in range(ticks):
        engine.step(np.array([[[steer, gas, brake]]], np.float64))
    return engine.cars[0, 0]


def test_positive_steering_turns_right():
    for steer in (0.5, -0.5):
        engine = engine_on(painted(0))
        put_at(engine, 0.0, speed=20.0)
        before = engine.telemetry()[0, 0].copy()
        car = drive(engine, 20, steer=steer)
        after = engine.telemetry()[0, 0]
        turned = after[TELEMETRY.index("heading")] - before[TELEMETRY.index("heading")]
        assert turned * steer < 0 and abs(turned) > 0.1, "heading falls when steering right"
        right = math.cos(before[10]) * (after[8] - before[8])
        right += math.sin(before[10]) * (after[9] - before[9])
        assert right * steer > 0, "and the car goes there"
        assert after[TELEMETRY.index("steer")] * steer < 0, "wheels turn with the car"
        assert car["yaw_rate"] * steer < 0


def test_gas_drives_and_brakes_stop():
    engine = engine_on(painted(0))
    speeds = [float(drive(engine, 10, gas=0.5)["speed"]) for _ in range(5)]
    assert np.all(np.diff(speeds) > 0) and speeds[-1] > 10
    top = speeds[-1]
    coasting = float(drive(engine, 10)["speed"])
    assert 0.9 * top < coasting <= top * 1.01
    braking = float(drive(engine, 10, brake=0.8)["speed"])
    assert braking < 0.8 * coasting
    assert drive(engine, 80, brake=1.0)["speed"] < 0.1
    assert (engine.wheels["omega"] == 0).all() or np.abs(engine.wheels["omega"]).max() < 0.5


def test_grass_grips_less():
    stopped = []
    for x, y in ((None, None), (PLAYFIELD - 150, PLAYFIELD - 30)):
        engine = engine_on(painted(0))
        put_at(engine, 0.0, speed=30.0)
        if x is not None:
            place(engine, x, y, 0.0, speed=30.0)
        ticks = 0
        while drive(engine, 1, brake=1.0)["speed"] > 0.5:
            ticks += 1
        stopped.append(ticks)
    assert stopped[1] > 1.4 * stopped[0]


def test_friction_is_an_option():
    ticks = []
    for grip in (0.5, 1.0, 2.0):
        engine = engine_on(painted(0), road_friction=grip)
        put_at(engine, 0.0, speed=30.0)
        count = 0
        while drive(engine, 1, brake=1.0)["speed"] > 0.5:
            count += 1
        ticks.append(count)
    assert ticks[0] > 1.6 * ticks[1] > 1.6 * 1.6 * ticks[2]


def test_a_driver_laps_every_kind_of_track():
    worlds = [
        painted(0),
        painted(0, "cw"),
        painted(2, "ccw", "procedural", 0.0),
        painted(2, "cw", "procedural", 1.0),
    ]
    engine = engine_on(*worlds, laps=1)
    for _ in range(2500):
        engine.step(follow(engine, 45.0))
        if not engine.cars["active"].any():
            break
    assert (engine.cars["finish_tick"] > 0).all()
    assert (engine.cars["off_ticks"] < 0.05 * engine.cars["tick"]).all()


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


def test_telemetry_has_its_units():
    engine = engine_on(painted(5))
    track = engine.tracks[0].track
    put_at(engine, 100.0, 2.0, speed=30.0)
    before = engine.telemetry()[0, 0].copy()
    engine.step(idle(engine))
    row = dict(zip(TELEMETRY, engine.telemetry()[0, 0], strict=True))
    assert row["speed"] == pytest.approx(30, abs=0.5)
    moved = math.hypot(row["x"] - before[8], row["y"] - before[9])
    assert moved == pytest.approx(30 / 50, abs=0.02)
    assert row["lateral_offset"] == pytest.approx(2.0, abs=0.1)
    assert row["off_track"] == 0
    assert row["progress"] == pytest.approx(row["progress_delta"] / track.length)
    place(engine, PLAYFIELD - 20, PLAYFIELD - 20, 1.0)
    engine.step(idle(engine))
    assert engine.telemetry()[0, 0, TELEMETRY.index("off_track")] == 1
    # Two wheels over the left edge.
    put_at(engine, 100.0, track.half_width + 0.1)
    engine.step(idle(engine))
    assert engine.telemetry()[0, 0, TELEMETRY.index("off_track")] in (0.5, 0.25)


def test_corner_angle_is_the_turn_of_the_road_ahead():
    for direction in ("ccw", "cw"):
        engine = engine_on(painted(0, direction))
        track = engine.tracks[0].track
        m = len(track.centreline)
        for s in np.linspace(0, track.length, 40, endpoint=False):
            put_at(engine, s)
            engine.step(idle(engine))
            here = engine.cars["s"][0, 0] / track.length * m
            tx, ty = track.centreline[round(here) % m, 2:4]
            ux, uy = track.centreline[round(here + 21 / track.length * m) % m, 2:4]
            expected = math.atan2(tx * uy - ty * ux, tx * ux + ty * uy)
            got = engine.telemetry()[0, 0, TELEMETRY.index("corner_angle")]
            assert got == pytest.approx(expected, abs=0.11)


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
    for k in (1, 2):
        for name in runs[0][k].dtype.names:
            assert np.array_equal(runs[0][k][name], runs[1][k][name]), name
