"""Squashed and clipped Gaussians."""

import math

import numpy as np
import pytest
import torch

from common.rl.distributions import ClippedGaussian, SquashedGaussian

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


def gaussian(mean, std, low=-1.0, high=1.0, dtype=torch.float64):
    make = lambda x: torch.as_tensor(x, dtype=dtype).reshape(-1)  # noqa: E731
    return SquashedGaussian(make(mean), make(std).log(), make(low), make(high))


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
        action = torch.tensor([0.1, 0.4, 0.05])
        mean = SquashedGaussian(LOW, LOW, LOW, HIGH).unsquash(action)
        torch.testing.assert_close(SquashedGaussian(mean, mean, LOW, HIGH).mode(), action)

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
