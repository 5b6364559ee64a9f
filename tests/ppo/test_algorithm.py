import math
from dataclasses import replace

import pytest
import torch

from ppo.algorithm import PPO, TrainingDiverged, explained, scheduled_rate, surrogate, value_error
from ppo.config import PPOConfig
from ppo.policy import ActorCritic
from ppo.rollout import RolloutBuffer, RolloutCollector
from tests.ppo.toys import NETWORK, SPEC, ToyEnv, ToyRace, cpu

CONFIG = PPOConfig(
    num_envs=2, num_steps=16, epochs=2, minibatches=2, micro_batch=64, learning_rate=1e-3,
    network=NETWORK,
)  # fmt: skip


def setup(config=CONFIG, env=None, save_batch=lambda rows: "somewhere"):
    env = env or ToyEnv(length=(5, 3), terminate=[1])
    torch.manual_seed(0)
    policy = ActorCritic(SPEC, config.network)
    generator = torch.Generator().manual_seed(0)
    algorithm = PPO(cpu(), policy, config, generator, save_batch)
    buffer = RolloutBuffer(config.num_steps, env.num_envs, SPEC, 3, torch.device("cpu"))
    collector = RolloutCollector(env, SPEC, policy, buffer, torch.Generator().manual_seed(1))
    collector.collect()
    collector.finish(config.gamma, config.lam, None)
    return algorithm, collector


def weights(algorithm):
    return torch.cat([p.detach().flatten() for p in algorithm.policy.parameters()])


def test_surrogate_by_hand():
    ratio = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5])
    advantage = torch.tensor([2.0, 2.0, -2.0, 2.0, -2.0])
    # Clipped only where that makes the objective smaller.
    expected = torch.tensor([-2.0, -2.4, 3.0, -1.0, 1.6])
    torch.testing.assert_close(surrogate(ratio.log(), advantage, 0.2), expected)


def test_value_error_by_hand():
    value, old, target = torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([2.0])
    assert value_error(value, old, target, None).item() == 0.5
    # Clipped to 1.5: error 0.5, smaller than the unclipped 1. The larger one counts.
    assert value_error(value, old, target, 0.5).item() == 0.5
    assert value_error(torch.tensor([2.0]), old, target, 0.5).item() == 0.125


def test_the_ratio_is_one_before_the_first_step():
    algorithm, collector = setup()
    algorithm.set_learning_rate(0.0)
    metrics = algorithm.update(collector.buffer)
    # Exactly 1 for the same batch (test_policy); here the batches are others than in collection,
    # and matrix products of another shape round differently.
    assert metrics["first_ratio_error"] < 2e-6
    assert abs(metrics["approx_kl"]) < 1e-9
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize("micro_batch", [1, 5, 16])
def test_micro_batches_change_nothing_but_speed(micro_batch):
    whole, collector = setup()
    parts, same = setup(replace(CONFIG, micro_batch=micro_batch))
    first, second = whole.update(collector.buffer), parts.update(same.buffer)
    # Adam turns rounding differences of gradients near 0 into steps of up to the learning rate.
    assert (weights(parts) - weights(whole)).abs().mean() < 1e-5
    assert second == pytest.approx(first, rel=1e-3, abs=1e-4)


def test_rows_of_waiting_agents_do_not_matter():
    results = []
    for garbage in (0.0, math.nan):
        algorithm, collector = setup(env=ToyRace(length=(5, 3)))
        buffer = collector.buffer
        assert not buffer.active.all()
        for name in ("u", "log_prob", "value", "reward", "advantage", "target"):
            getattr(buffer, name)[~buffer.active] = garbage
        algorithm.update(buffer)
        results.append(weights(algorithm))
    assert torch.equal(*results)
    assert torch.isfinite(results[0]).all()


def test_every_active_row_is_seen_once_per_epoch(monkeypatch):
    algorithm, collector = setup(replace(CONFIG, minibatches=3, epochs=2, micro_batch=4))
    samples = []
    module = algorithm.module
    monkeypatch.setattr(
        algorithm, "module", lambda pixels, u, noise: samples.append(u) or module(pixels, u, noise)
    )
    monkeypatch.setattr(algorithm.fabric, "no_backward_sync", lambda *_, **__: torch.no_grad())
    monkeypatch.setattr(algorithm.fabric, "backward", lambda loss: None)
    monkeypatch.setattr(algorithm, "_step", lambda: None)
    algorithm.update(collector.buffer)
    rows = sorted(torch.cat(samples)[:, 0].tolist())
    assert rows == sorted(collector.buffer.flat("u")[:, 0].tolist() * 2)


def test_advantages_are_normalised_per_minibatch():
    scaled, collector = setup()
    plain, same = setup()
    same.buffer.advantage.mul_(1000).add_(77)
    scaled.update(collector.buffer)
    plain.update(same.buffer)
    assert (weights(plain) - weights(scaled)).abs().mean() < 1e-5


def test_target_kl_stops_the_epochs():
    config = replace(CONFIG, learning_rate=0.05, epochs=10)
    free, collector = setup(config)
    bound, same = setup(replace(config, target_kl=1e-4))
    assert free.update(collector.buffer)["stopped_early"] == 0
    metrics = bound.update(same.buffer)
    assert metrics["stopped_early"] == 1
    assert 0 < metrics["approx_kl"] <= 1.5e-4 or metrics["approx_kl"] == 0


def test_gradients_are_clipped_to_the_global_norm(monkeypatch):
    algorithm, collector = setup(replace(CONFIG, max_grad_norm=1e-3))
    norms = []

    def step():
        norms.append(torch.cat([p.grad.flatten() for p in algorithm.policy.parameters()]).norm())

    monkeypatch.setattr(algorithm.optimiser, "step", step)
    metrics = algorithm.update(collector.buffer)
    assert metrics["grad_norm"] > 1e-2
    assert max(norms).item() == pytest.approx(1e-3, rel=1e-2)


def test_the_entropy_bonus_widens_the_policy():
    network = replace(NETWORK, log_std_max=0.5, log_std_final=None)
    results = []
    for coefficient in (0.0, 1.0):
        config = replace(CONFIG, entropy_coefficient=coefficient, network=network)
        algorithm, collector = setup(config)
        before = algorithm.policy.log_std.detach().clone()
        algorithm.update(collector.buffer)
        results.append((algorithm.policy.log_std - before).min().item())
    assert results[1] > 3e-3 > results[0]


def test_no_step_leaves_the_noise_outside_its_limits():
    network = replace(NETWORK, log_std_min=-1.1, log_std_max=-0.9, log_std_final=None)
    config = replace(CONFIG, learning_rate=0.5, entropy_coefficient=1.0, network=network)
    algorithm, collector = setup(config)
    algorithm.update(collector.buffer)
    assert algorithm.policy.log_std.max().item() == pytest.approx(-0.9)


class TestNonFinite:
    def test_a_bad_minibatch_is_skipped_and_saved(self):
        saved = []
        algorithm, collector = setup(save_batch=lambda rows: saved.append(rows))
        collector.buffer.target[3, 0] = math.nan
        metrics = algorithm.update(collector.buffer)
        assert metrics["skipped_steps"] == 2  # the row is in one minibatch of each epoch
        assert torch.isfinite(weights(algorithm)).all()
        assert len(saved) == 2
        assert saved[0]["target"].isnan().sum() == 1
        assert saved[0]["pixels"].dtype == torch.uint8

    def test_an_infinite_loss_is_one_too(self):
        algorithm, collector = setup()
        collector.buffer.target[:] = 1e30
        before = weights(algorithm)
        with pytest.raises(TrainingDiverged, match=r"5 optimiser steps in a row.*somewhere"):
            for _ in range(9):
                algorithm.update(collector.buffer)
        assert torch.equal(weights(algorithm), before)

    def test_good_steps_in_between_start_the_count_afresh(self):
        config = replace(CONFIG, minibatches=1, epochs=1, max_nonfinite=2)
        algorithm, collector = setup(config)
        target = collector.buffer.target
        good = target.clone()
        for _ in range(3):
            target[3, 0] = math.nan
            algorithm.update(collector.buffer)
            target.copy_(good)
            algorithm.update(collector.buffer)
        target[3, 0] = math.nan
        algorithm.update(collector.buffer)
        with pytest.raises(TrainingDiverged, match="2 optimiser steps"):
            algorithm.update(collector.buffer)


class TestLearningRate:
    def test_linear(self):
        config = PPOConfig(learning_rate=1.0, lr_schedule="linear", lr_final=0.1)
        rates = [scheduled_rate(config, elapsed, 0.0, None) for elapsed in (0, 0.5, 1, 2)]
        assert rates == pytest.approx([1.0, 0.55, 0.1, 0.1])

    def test_constant(self):
        config = PPOConfig(learning_rate=0.3, lr_schedule="constant")
        assert scheduled_rate(config, 0.9, 0.1, 5.0) == 0.3

    @pytest.mark.parametrize(
        ("kl", "expected"),
        [(None, 1e-3), (0.01, 1e-3), (0.03, 1e-3 / 1.5), (0.001, 1.5e-3)],
    )
    def test_adaptive(self, kl, expected):
        config = PPOConfig(lr_schedule="adaptive", desired_kl=0.01)
        assert scheduled_rate(config, 0.5, 1e-3, kl) == pytest.approx(expected)

    def test_adaptive_stays_inside_limits(self):
        config = PPOConfig(lr_schedule="adaptive", desired_kl=0.01)
        assert scheduled_rate(config, 0.5, 1e-2, 0.0001) == 1e-2
        assert scheduled_rate(config, 0.5, 1e-5, 9.0) == 1e-5


def test_explained_variance():
    _, collector = setup()
    buffer = collector.buffer
    buffer.target[:] = torch.randn(buffer.target.shape, generator=torch.Generator().manual_seed(0))
    buffer.value[:] = buffer.target + 5
    assert explained(buffer) == pytest.approx(1, abs=1e-5)
    buffer.value[:] = 0
    assert explained(buffer) == pytest.approx(0, abs=1e-5)


def test_it_learns_what_can_be_learned():
    config = replace(CONFIG, num_steps=64, epochs=4, learning_rate=3e-3, entropy_coefficient=0.0)
    algorithm, collector = setup(config, env=ToyEnv(length=(7, 5, 9, 6)))
    rewards = []
    for _ in range(25):
        rewards.append(collector.buffer.reward.mean().item())
        algorithm.update(collector.buffer)
        collector.collect()
        collector.finish(0.0, 0.95, None)
    # Steering at random pays about 0.4, always straight 0.5, what the frame asks for 1.
    assert rewards[0] < 0.5
    assert rewards[-1] > 0.7
