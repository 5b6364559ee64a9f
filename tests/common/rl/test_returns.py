"""Advantages."""

import pytest
import torch

from common.rl.returns import gae, lambda_returns, standardise

LOW = torch.tensor([-1.0, 0.0, 0.0])
HIGH = torch.tensor([1.0, 1.0, 1.0])


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)[:, None]


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


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
                for step in range(t, shape[0]):
                    bootstrap = 0.0 if terminated[step, n] else gamma * following[step, n].item()
                    expected += weight * (
                        reward[step, n].item() + bootstrap - value[step, n].item()
                    )
                    if done[step, n]:
                        break
                    weight *= gamma * lam
                assert result[t, n].item() == pytest.approx(expected, abs=1e-12)


def test_standardise():
    x = standardise(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert x.mean().item() == pytest.approx(0, abs=1e-6)
    assert x.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert standardise(torch.tensor([7.0])).tolist() == [0.0]


def test_lambda_returns_are_the_papers_mixture_of_n_step_returns():
    """R = (1 - lam) sum lam^(n-1) R_n + lam^(H-1) R_H, with R_n by a plain loop."""
    generator = torch.Generator().manual_seed(0)
    horizon, gamma, lam = 5, 0.97, 0.8
    reward, value, continue_prob = torch.rand(
        3, horizon, 2, generator=generator, dtype=torch.float64
    )
    computed = lambda_returns(reward, value, continue_prob, gamma, lam)
    for t in range(horizon):
        n_step = []
        for n in range(1, horizon - t + 1):
            total, discount = torch.zeros(2, dtype=torch.float64), torch.ones(2).double()
            for step in range(t, t + n):
                total = total + discount * reward[step]
                discount = discount * gamma * continue_prob[step]
            n_step.append(total + discount * value[t + n - 1])
        steps = len(n_step)
        mixed = sum((1 - lam) * lam ** (n - 1) * n_step[n - 1] for n in range(1, steps))
        torch.testing.assert_close(computed[t], mixed + lam ** (steps - 1) * n_step[-1])


def test_lambda_returns_agree_with_gae_where_continuation_is_certain_or_over():
    generator = torch.Generator().manual_seed(1)
    reward, value, next_value = torch.rand(3, 6, 4, generator=generator)
    next_value[:-1] = value[1:]
    ended = torch.zeros(6, 4, dtype=torch.bool)
    ended[2, 1] = True
    advantage = gae(reward, value, next_value, ended, ended, 0.99, 0.95)
    returns = lambda_returns(reward, next_value, (~ended).float(), 0.99, 0.95)
    torch.testing.assert_close(returns, advantage + value)


def test_lambda_returns_pass_gradients_to_rewards_values_and_continuation():
    parts = torch.rand(3, 4, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(lambda_returns(*parts, 0.9, 0.9).sum(), parts)
    assert (slope != 0).all()
