"""Frames from outside become what the engine itself would have shown a policy."""

import numpy as np
import pytest

from envs.racing import EnvConfig, ObservationSpec, RacingVectorEnv
from envs.racing.pixels.adapter import SCORE_TOP, SCORE_WIDTH, FrameAdapter, FrameStack

SEED = 3
REPEAT = 4
ACTIONS = [(0.0, 0.6, 0.0)] * 12 + [(-0.5, 0.3, 0.0)] * 10 + [(0.8, 0.1, 0.2)] * 10


def engine_frames(**options):
    """The observations of a fixed drive, copied, the reset's first."""
    config = EnvConfig(action_repeat=REPEAT, **options)
    env = RacingVectorEnv(1, config, split=None, track_seeds=[SEED], autoreset=False)
    observations = [env.reset()[0][0].copy()]
    for action in ACTIONS:
        observations.append(env.step(np.array([action]))[0][0].copy())
    env.close()
    return observations


def adapted(adapter, frames):
    return [adapter.reset(frames[0]), *(adapter.push(frame) for frame in frames[1:])]


@pytest.fixture(scope="module")
def frames():
    return engine_frames()


@pytest.mark.parametrize("stack", [1, 2, 4])
def test_rgb_stacks_equal_the_engines(frames, stack):
    spec = ObservationSpec(frame_stack=stack, action_repeat=REPEAT)
    adapted_frames = adapted(FrameAdapter(spec), frames)
    for observation, expected in zip(adapted_frames, engine_frames(frame_stack=stack), strict=True):
        assert observation.dtype == np.uint8
        np.testing.assert_array_equal(observation, expected)
    assert (adapted_frames[5] != adapted_frames[20]).any()


def test_grey_stacks_equal_the_engines_up_to_rounding(frames):
    spec = ObservationSpec(grey=True, frame_stack=3, action_repeat=REPEAT)
    adapted_frames = np.array(adapted(FrameAdapter(spec), frames)).astype(int)
    engines = np.array(engine_frames(grey=True, frame_stack=3)).astype(int)
    assert adapted_frames.shape == engines.shape == (len(ACTIONS) + 1, *spec.shape)
    difference = np.abs(adapted_frames - engines)
    # Where colours blend, and in the indicators, the engine works in grey from the start.
    assert difference.max() <= 3
    assert (difference > 0).mean() < 0.02


def test_small_frames_are_close_to_the_engines(frames):
    spec = ObservationSpec(size=64, grey=True, action_repeat=REPEAT)
    adapted_frames = np.array(adapted(FrameAdapter(spec), frames)).astype(int)
    engines = np.array(engine_frames(size=64, grey=True)).astype(int)
    assert adapted_frames.shape == engines.shape
    # Both are area averages, of 96 x 96 pixels here and of the finer texture there.
    assert np.abs(adapted_frames - engines).mean() < 2.0
    rgb = adapted(FrameAdapter(ObservationSpec(size=64)), frames)
    assert np.abs(np.array(rgb) - np.array(engine_frames(size=64)).astype(int)).mean() < 2.5


def test_a_reset_forgets_the_last_episode(frames):
    adapter = FrameAdapter(ObservationSpec(frame_stack=3))
    adapted(adapter, frames[:5])
    observation = adapter.reset(frames[20])
    np.testing.assert_array_equal(observation, np.stack([frames[20]] * 3))


def test_observations_belong_to_the_caller(frames):
    adapter = FrameAdapter(ObservationSpec(frame_stack=2))
    first = adapter.reset(frames[0])
    first[:] = 0
    np.testing.assert_array_equal(adapter.push(frames[9])[0], frames[0])


def test_the_score_box_is_blackened_and_nothing_else():
    frame = np.full((96, 96, 3), 200, np.uint8)
    observation = FrameAdapter(ObservationSpec(), mask_score=True).reset(frame)
    black = observation == 0
    assert black[SCORE_TOP:, :SCORE_WIDTH].all()
    assert black.sum() == (96 - SCORE_TOP) * SCORE_WIDTH * 3
    assert (frame == 200).all()


@pytest.mark.parity
def test_no_score_of_the_real_carracing_can_be_seen():
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("Box2D")
    env = gymnasium.make("CarRacing-v3").unwrapped
    env.reset(seed=SEED)
    for _ in range(60):
        frame = env.step(np.array([-0.3, 0.6, 0.0]))[0]
    adapter = FrameAdapter(ObservationSpec(), mask_score=True)
    shown, masked = [], []
    for score in (-150, -99, -1, 0, 8, 88, 444, 888, 999):
        env.reward = float(score)
        shown.append(env._render("state_pixels"))
        masked.append(adapter.reset(shown[-1]))
    env.close()
    differs = (np.array(shown) != shown[0]).any((0, 3))
    assert differs[SCORE_TOP:, : SCORE_WIDTH - 1].any() and not differs[:, SCORE_WIDTH:].any()
    assert (np.array(masked) == masked[0]).all()
    # The bars of speed and wheels, right beside it, are untouched.
    assert (frame[SCORE_TOP:, SCORE_WIDTH : SCORE_WIDTH + 3] > 100).any()
    np.testing.assert_array_equal(masked[0][:, SCORE_WIDTH:], shown[0][:, SCORE_WIDTH:])


@pytest.mark.parametrize(
    "frame",
    [
        np.zeros((96, 96), np.uint8),
        np.zeros((1, 96, 96, 3), np.uint8),
        np.zeros((64, 64, 3), np.uint8),
        np.zeros((96, 96, 3), np.float32),
        None,
    ],
)
def test_other_frames_are_refused(frame):
    with pytest.raises(ValueError, match=r"frames are uint8 \(96, 96, 3\), not "):
        FrameAdapter(ObservationSpec()).reset(frame)


def test_an_episode_begins_with_a_reset():
    with pytest.raises(RuntimeError, match="reset"):
        FrameAdapter(ObservationSpec()).push(np.zeros((96, 96, 3), np.uint8))
    with pytest.raises(ValueError, match=r"uint8 \(64, 64\), not uint8 \(96, 96\)"):
        FrameStack(ObservationSpec(size=64, grey=True)).reset(np.zeros((96, 96), np.uint8))
