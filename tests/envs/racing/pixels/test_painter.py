"""Frames of a batch: stacks, grey, sizes and the caller's buffer."""

import numpy as np
import pytest

from envs.racing import EnvConfig, RacingVectorEnv
from envs.racing.pixels.render import LUMINANCE
from tests.envs.racing.driving import actions_of

SEEDS = [10_000, 10_001, 10_002, 10_003, 10_004, 10_005, 10_006, 10_007]


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
