import gymnasium
import numpy as np
import pytest
import torch

from common.rl.scaling import ReturnScaler
from ppo.policy import ActorCritic
from ppo.rollout import RolloutBuffer, RolloutCollector
from tests.ppo.toys import NETWORK, SPEC, ToyEnv, ToyRace

CPU = torch.device("cpu")


def collector(env, num_steps=8, spec=SPEC):
    torch.manual_seed(0)
    policy = ActorCritic(spec, NETWORK)
    buffer = RolloutBuffer(num_steps, env.num_envs, spec, 3, CPU)
    return RolloutCollector(env, spec, policy, buffer, torch.Generator().manual_seed(0))


def level(frames):
    return frames.float().mean().item()


def test_rows_are_laid_out_by_step_and_stream():
    driver = collector(ToyEnv(length=(5, 3)))
    stats = driver.collect()
    buffer = driver.buffer
    steps = (buffer.pixels[..., 0, 0, 0] % 100 // 10).T.tolist()
    assert steps == [[0, 1, 2, 3, 4, 0, 1, 2], [0, 1, 2, 0, 1, 2, 0, 1]]
    assert buffer.done.T.nonzero().tolist() == [[0, 4], [1, 2], [1, 5]]
    assert not buffer.terminated.any()
    assert buffer.active.all()
    assert stats.decisions == 16
    assert stats.ticks == 32  # action_repeat is 2
    assert sorted(episode["length"] for episode in stats.episodes) == [3, 3, 5]
    assert stats.reward_terms["steer"] == pytest.approx(stats.reward, rel=1e-5)
    assert stats.reward == pytest.approx(buffer.reward.sum().item())


def test_ticks_are_those_that_ran_before_an_episode_ended():
    stats = collector(ToyEnv(length=(5, 3), last_ticks=1)).collect()
    assert (stats.decisions, stats.ticks) == (16, 29)  # three endings, one tick short each


def test_a_rollout_goes_on_where_the_last_one_stopped():
    long, short = collector(ToyEnv(), 8), collector(ToyEnv(), 4)
    long.collect()
    parts = []
    for _ in range(2):
        short.collect()
        parts.append([getattr(short.buffer, name).clone() for name in ("pixels", "u", "reward")])
    for name, first, second in zip(("pixels", "u", "reward"), *parts, strict=True):
        assert torch.equal(getattr(long.buffer, name), torch.cat([first, second])), name


def test_actions_are_what_u_squashes_to():
    driver = collector(ToyEnv())
    driver.collect()
    u, action = driver.buffer.flat("u"), driver.buffer.flat("action")
    expected = torch.stack([u[:, 0].tanh(), *(0.5 + 0.5 * u[:, 1:].tanh()).T], -1)
    torch.testing.assert_close(action, expected)


def test_truncation_bootstraps_from_the_final_observation():
    env = ToyEnv(length=(5, 3), terminate=[1])
    driver = collector(env, num_steps=6)
    # The value of a frame is its brightness, and tells which frame was asked about.
    driver.policy.state_value = lambda frames: frames.float().mean((1, 2, 3))
    driver.collect()
    buffer = driver.buffer
    buffer.value[:] = buffer.pixels.float().mean((2, 3, 4))
    following = buffer.next_values(driver.policy.state_value, driver.pixels)
    # Within an episode: the next row's frame. After the last row: the frame not yet stored.
    assert torch.equal(following[:4, 0], buffer.value[1:5, 0])
    assert following[5, 0].item() == level(driver.pixels[0])
    # Stream 0 is truncated by its fifth step: its own last frame shows step 5, the next row 0.
    final = following[4, 0].item()
    assert final % 100 == 50
    assert buffer.value[5, 0].item() % 100 == 0
    driver.finish(gamma=0.5, lam=0.5, scaler=None)
    expected = buffer.reward[4, 0] + 0.5 * final - buffer.value[4, 0]
    torch.testing.assert_close(buffer.advantage[4, 0], expected)
    # Stream 1 terminates by its third step: worth only the reward, and nothing is kept of it.
    torch.testing.assert_close(buffer.advantage[2, 1], buffer.reward[2, 1] - buffer.value[2, 1])
    assert len(buffer._finals) == 1


def test_without_bootstrap_a_truncation_is_worth_its_reward_only():
    driver = collector(ToyEnv(length=(5, 3), terminate=[1]), num_steps=6)
    driver.bootstrap_truncation = False
    driver.collect()
    driver.finish(gamma=0.5, lam=0.5, scaler=None)
    buffer = driver.buffer
    expected = buffer.reward[4, 0] - buffer.value[4, 0]
    torch.testing.assert_close(buffer.advantage[4, 0], expected)
    assert not buffer._finals


def test_an_ending_of_the_last_rollout_is_forgotten():
    driver = collector(ToyEnv(length=(5,)), num_steps=6)
    driver.policy.state_value = lambda frames: frames.float().mean((1, 2, 3))
    for ending in (4, 3):  # steps 0-4 and 5-9 are the episodes, rows 4 and then 3 their last
        driver.collect()
        assert driver.buffer.done[:, 0].nonzero().tolist() == [[ending]]
    following = driver.buffer.next_values(driver.policy.state_value, driver.pixels)
    assert following[4, 0] == driver.buffer.value[5, 0]


def test_targets_and_reward_scaling():
    driver = collector(ToyEnv())
    driver.collect()
    raw = driver.buffer.reward.clone()
    scaler = ReturnScaler(2, 0.9)
    driver.finish(0.9, 0.0, scaler)
    buffer = driver.buffer
    assert scaler.scale != pytest.approx(1, rel=0.01)
    assert torch.equal(buffer.reward, raw)
    # lambda = 0: the target is the one-step return in scaled units.
    expected = raw[0] * scaler.scale + 0.9 * buffer.value[1]
    torch.testing.assert_close(buffer.target[0], expected)


def test_inactive_agents_are_no_experience():
    driver = collector(ToyRace(length=(5, 3)), num_steps=10)
    stats = driver.collect()
    buffer = driver.buffer
    # Agent 1 ends after three steps and waits two for agent 0; then the world starts again.
    assert buffer.active[:, 0].all()
    assert buffer.active[:, 1].tolist() == [True] * 3 + [False] * 2 + [True] * 3 + [False] * 2
    assert stats.decisions == 16
    assert stats.ticks == 32
    assert buffer.reward.max() < 2  # the million that a waiting slot reports is left out
    assert stats.reward < 20
    driver.finish(0.9, 0.9, ReturnScaler(2, 0.9))
    assert buffer.active_rows().tolist() == buffer.active.flatten().nonzero().flatten().tolist()
    assert buffer.terminated[2, 1] and buffer.done[2, 1]
    scaled = driver.buffer.target[2, 1].item()
    assert abs(scaled) < 10
    assert len(stats.episodes) == 4


def test_waiting_rows_change_no_other_rows_advantage():
    driver = collector(ToyRace(length=(5, 3)), num_steps=10)
    driver.collect()
    buffer = driver.buffer
    following = torch.randn(10, 2)
    buffer.compute_advantages(following, 0.9, 0.9)
    first = buffer.advantage[buffer.active].clone()
    buffer.reward[~buffer.active] = 1e9
    buffer.value[~buffer.active] = -1e9
    buffer.compute_advantages(following, 0.9, 0.9)
    assert torch.equal(buffer.advantage[buffer.active], first)


def test_another_autoreset_mode_is_refused():
    env = ToyEnv()
    env.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
    with pytest.raises(ValueError, match="NEXT_STEP, not SAME_STEP"):
        collector(env)


def test_frames_are_copied_from_the_environments_buffer():
    env = ToyEnv()
    driver = collector(env)
    driver.collect()
    copy = driver.pixels.clone()
    env.frames[:] = np.uint8(77)
    assert torch.equal(driver.pixels, copy)
