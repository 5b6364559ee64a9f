import errno
import math
import os

import numpy as np
import pytest
import torch

from common.errors import ConfigError
from common.nn import (
    ClippedGaussian,
    ReturnScaler,
    RunningMoments,
    SquashedGaussian,
    choose_device,
    gae,
    save_rejected,
    set_threads,
    standardise,
)

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


def gaussian(mean, std, low=-1.0, high=1.0, dtype=torch.float64):
    make = lambda x: torch.as_tensor(x, dtype=dtype).reshape(-1)  # noqa: E731
    return SquashedGaussian(make(mean), make(std).log(), make(low), make(high))


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)[:, None]


class TestGae:
    """gamma = 0.5, lambda = 0.5, so that decay is 0.25 and every number below is exact."""

    def gae(self, reward, value, next_value, terminated, done):
        return gae(
            column(*reward), column(*value), column(*next_value),
            flags(*terminated), flags(*done), 0.5, 0.5,
        ).flatten().tolist()  # fmt: skip

    def test_episode_goes_on(self):
        # delta = [1 + 1 - 1, 2 + 2 - 2, 3 + 4 - 4] = [1, 2, 3]
        # A2 = 3, A1 = 2 + 3/4, A0 = 1 + 2.75/4
        result = self.gae([1, 2, 3], [1, 2, 4], [2, 4, 8], [0, 0, 0], [0, 0, 0])
        assert result == [1.6875, 2.75, 3.0]

    def test_termination_is_worth_nothing_and_cuts_the_sum(self):
        # delta1 = 2 - 2 = 0 whatever V' says; nothing of row 2 reaches row 1.
        result = self.gae([1, 2, 3], [1, 2, 4], [2, 1e9, 8], [0, 1, 0], [0, 1, 0])
        assert result == [1.0, 0.0, 3.0]

    def test_truncation_bootstraps_from_its_own_end_and_cuts_the_sum(self):
        # The final observation is worth 6: delta1 = 2 + 3 - 2 = 3, and A1 = delta1.
        result = self.gae([1, 2, 3], [1, 2, 4], [2, 6, 8], [0, 0, 0], [0, 1, 0])
        assert result == [1.75, 3.0, 3.0]

    def test_endings_in_the_last_row(self):
        assert self.gae([3], [4], [8], [0], [1]) == [3.0]
        assert self.gae([3], [4], [8], [1], [1]) == [-1.0]

    def test_streams_do_not_mix_and_the_definition_holds(self):
        generator = torch.Generator().manual_seed(0)
        shape, gamma, lam = (12, 4), 0.97, 0.9
        reward, value, following = torch.randn(3, *shape, generator=generator).double()
        done = torch.rand(shape, generator=generator) < 0.3
        terminated = done & (torch.rand(shape, generator=generator) < 0.5)
        result = gae(reward, value, following, terminated, done, gamma, lam)
        for n in range(shape[1]):
            for t in range(shape[0]):
                expected, weight = 0.0, 1.0
                for k in range(t, shape[0]):
                    bootstrap = 0.0 if terminated[k, n] else gamma * following[k, n].item()
                    expected += weight * (reward[k, n].item() + bootstrap - value[k, n].item())
                    if done[k, n]:
                        break
                    weight *= gamma * lam
                assert result[t, n].item() == pytest.approx(expected, abs=1e-12)


class TestSquashedGaussian:
    @pytest.mark.parametrize("mean", [-1.5, 0.0, 2.0])
    @pytest.mark.parametrize("std", [0.05, 0.6, 1.6])
    @pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 1.0), (-3.0, 0.5)])
    def test_density_integrates_to_one(self, mean, std, bounds):
        distribution = gaussian(mean, std, *bounds)
        u = torch.linspace(mean - 9 * std, mean + 9 * std, 200_001, dtype=torch.float64)[:, None]
        # The area under the density of the action, over the action itself.
        low, high = bounds
        action = low + (high - low) * (np.tanh(u.numpy()) + 1) / 2
        density = distribution.log_prob(u).exp().numpy()
        assert np.trapezoid(density, action[:, 0]) == pytest.approx(1, abs=1e-5)

    def test_density_in_three_dimensions_is_the_product(self):
        mean, std = torch.tensor([0.3, -0.2, -1.4]), torch.tensor([0.6, 0.5, 0.7])
        joint = SquashedGaussian(mean, std.log(), LOW, HIGH)
        u = torch.tensor([[0.1, 0.4, -2.0]])
        parts = sum(
            gaussian(mean[i], std[i], LOW[i], HIGH[i], torch.float32).log_prob(u[:, i : i + 1])
            for i in range(3)
        )
        torch.testing.assert_close(joint.log_prob(u), parts)

    @pytest.mark.parametrize("u", [0.0, 0.5, -3.0, 8.0, -8.0, 10.0, 19.0, -50.0, 1e4])
    def test_log_probability_is_exact_and_finite_at_extreme_actions(self, u):
        mean, std = 0.25, 0.5
        result = gaussian(mean, std, 0.0, 1.0, torch.float32).log_prob(torch.tensor([u])).item()
        # log(1 - tanh(u)^2) = log 4 - 2|u| - 2 log(1 + e^(-2|u|)), in float64.
        jacobian = math.log(4) - 2 * abs(u) - 2 * math.log1p(math.exp(-2 * abs(u)))
        normal = -0.5 * ((u - mean) / std) ** 2 - math.log(std) - 0.5 * math.log(2 * math.pi)
        expected = normal - jacobian - math.log(0.5)
        assert math.isfinite(result)
        assert result == pytest.approx(expected, rel=1e-6, abs=1e-5)

    def test_actions_stay_inside_the_box(self):
        distribution = SquashedGaussian(torch.zeros(3), torch.zeros(3), LOW, HIGH)
        for u in (-1e6, -20.0, 20.0, 1e6):
            action = distribution.squash(torch.full((3,), u))
            assert (action >= LOW).all() and (action <= HIGH).all()
        assert distribution.squash(torch.full((3,), 50.0)).tolist() == HIGH.tolist()
        assert distribution.squash(torch.full((3,), -50.0)).tolist() == LOW.tolist()

    def test_mode_is_the_squashed_mean(self):
        wanted = torch.tensor([0.1, 0.4, 0.05])
        mean = SquashedGaussian(LOW, LOW, LOW, HIGH).unsquash(wanted)
        torch.testing.assert_close(SquashedGaussian(mean, mean, LOW, HIGH).mode(), wanted)

    def test_entropy_and_its_gradient_agree_with_integration(self):
        def integral(log_std: float) -> float:
            distribution = gaussian(0.4, math.exp(log_std), 0.0, 1.0)
            u = torch.linspace(-12, 12, 40_001, dtype=torch.float64)[:, None]
            action = (np.tanh(u.numpy())[:, 0] + 1) / 2
            log_density = distribution.log_prob(u).numpy()
            return np.trapezoid(-np.exp(log_density) * log_density, action)

        log_std = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)
        one = torch.ones(1, dtype=torch.float64)
        distribution = SquashedGaussian(0.4 * one, log_std, 0 * one, one)
        noise = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(0)).double()
        entropy = distribution.entropy(noise).mean()
        entropy.backward()
        slope = (integral(0.201) - integral(0.199)) / 0.002
        assert entropy.item() == pytest.approx(integral(0.2), abs=0.01)
        # The Gaussian's own slope would be 1: beyond some width, tanh makes the entropy fall.
        assert log_std.grad.item() == pytest.approx(slope, abs=0.02)
        assert abs(slope - 1) > 0.2

    def test_sampling_is_reparametrised(self):
        mean = torch.zeros(2, requires_grad=True)
        u = SquashedGaussian(mean, torch.zeros(2), -torch.ones(2), torch.ones(2)).sample(
            torch.tensor([1.0, -2.0])
        )
        assert u.tolist() == [1.0, -2.0]
        u.sum().backward()
        assert mean.grad.tolist() == [1.0, 1.0]


class TestClippedGaussian:
    def test_actions_are_cut_off_and_the_density_is_not(self):
        mean = torch.tensor([0.5], dtype=torch.float64)
        low, high = torch.zeros_like(mean), torch.full_like(mean, 2.0)
        distribution = ClippedGaussian(mean, mean.log(), low, high)
        u = torch.tensor([[-3.0], [0.25], [1.0], [4.0]], dtype=torch.float64)
        assert distribution.squash(u).flatten().tolist() == [0.0, 1.25, 2.0, 2.0]
        normal = torch.distributions.Normal(1.5, 0.5)  # of the action before the cut: mean 1 + 0.5
        torch.testing.assert_close(distribution.log_prob(u), normal.log_prob(1 + u[:, 0]))
        torch.testing.assert_close(
            distribution.squash(distribution.unsquash(high * 0.4)), high * 0.4
        )
        exact = normal.entropy().item()
        noise = torch.randn(50_000, 1, generator=torch.Generator().manual_seed(0)).double()
        assert distribution.entropy(noise).mean().item() == pytest.approx(exact, abs=0.02)


class TestRunningMoments:
    def test_merging_batches_equals_all_at_once(self):
        data = np.random.default_rng(0).normal(1e4, 0.5, 1000)
        moments = RunningMoments()
        for part in np.split(data, [0, 1, 10, 500]):
            moments.update(torch.from_numpy(part))
        assert moments.mean == pytest.approx(data.mean(), rel=1e-12)
        assert moments.std == pytest.approx(data.std(), rel=1e-9)

    def test_no_scaling_before_there_is_a_spread(self):
        moments = RunningMoments()
        assert moments.std == 1.0
        moments.update(torch.tensor([5.0]))
        assert moments.std == 1.0

    def test_state_round_trip(self):
        moments, copy = RunningMoments(), RunningMoments()
        moments.update(torch.arange(5.0))
        copy.load_state_dict(moments.state_dict())
        assert copy == moments


class TestReturnScaler:
    def test_against_direct_computation(self):
        rng = np.random.default_rng(3)
        reward = rng.normal(2, 3, (40, 3)).astype(np.float32)
        done = rng.random((40, 3)) < 0.2
        active = rng.random((40, 3)) < 0.8
        returns = []
        for n in range(3):
            running = 0.0
            for t in range(40):
                if not active[t, n]:
                    running = 0.0
                    continue
                running = 0.9 * running + float(reward[t, n])
                returns.append(running)
                if done[t, n]:
                    running = 0.0
        scaler = ReturnScaler(3, 0.9)
        for part in (slice(0, 25), slice(25, 40)):  # streams go on from one rollout to the next
            scaler.update(*(torch.from_numpy(x[part]) for x in (reward, done, active)))
        assert scaler.scale == pytest.approx(1 / np.std(returns), rel=1e-6)

    def test_processes_share_one_scale(self):
        reward = torch.randn(8, 2, generator=torch.Generator().manual_seed(0))
        other = RunningMoments()
        other.update(torch.tensor([100.0, -100.0]))
        none, all_ = torch.zeros(8, 2, dtype=torch.bool), torch.ones(8, 2, dtype=torch.bool)
        scaler = ReturnScaler(2, 0.9, gather=lambda own: [own, other])
        scaler.update(reward, none, all_)
        assert scaler.moments.count == 18
        assert scaler.moments.std > 30


def test_standardise():
    x = standardise(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert x.mean().item() == pytest.approx(0, abs=1e-6)
    assert x.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert standardise(torch.tensor([7.0])).tolist() == [0.0]


class TestChooseDevice:
    def test_cpu(self):
        assert choose_device("cpu") == torch.device("cpu")
        assert choose_device("auto").type in ("cpu", "cuda", "mps")

    @pytest.mark.parametrize("name", ["gpu", "cuda:x", "meta", ""])
    def test_unknown_names_are_refused(self, name):
        with pytest.raises(ConfigError, match="device"):
            choose_device(name)

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_missing_gpu_is_said(self):
        with pytest.raises(ConfigError, match="no CUDA GPU"):
            choose_device("cuda")

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_gpu_that_does_not_exist_is_said(self):
        with pytest.raises(ConfigError, match="does not exist"):
            choose_device("cuda:99")


def test_a_disk_without_room_does_not_hide_why_a_batch_was_kept(tmp_path, monkeypatch):
    rows = {"reward": torch.tensor([math.nan])}
    kept = save_rejected(tmp_path / "a" / "batch.pt", rows)
    assert torch.load(kept, weights_only=True)["reward"].isnan().all()

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("common.nn.atomic_write_bytes", full)
    told = save_rejected(tmp_path / "b.pt", rows)
    assert told == f"{tmp_path}/b.pt (which could not be written: {os.strerror(errno.ENOSPC)})"


def test_threads_without_number_are_refused():
    with pytest.raises(ConfigError, match="threads is at most 1024, not 100000"):
        set_threads(100_000)
