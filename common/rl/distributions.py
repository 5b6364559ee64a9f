"""Distributions over bounded actions."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True)
class SquashedGaussian:
    """A diagonal Gaussian over u whose sample becomes the action low + (high - low)(tanh(u) + 1)/2.

    `mean` is (..., actions); `log_std`, `low` and `high` broadcast against it. Keep u, not the
    action: tanh cannot be inverted in float32 beyond |u| of about 8. `log_prob` is the density of
    the *action*, in nats, and integrates to 1 over the box.
    """

    mean: Tensor
    log_std: Tensor
    low: Tensor
    high: Tensor

    def sample(self, noise: Tensor) -> Tensor:
        """u for standard normal `noise` shaped like `mean`; differentiable (reparametrised)."""
        return self.mean + self.log_std.exp() * noise

    def squash(self, u: Tensor) -> Tensor:
        """The action that u stands for; always inside [low, high], whatever the rounding."""
        action = self.low + (self.high - self.low) * 0.5 * (torch.tanh(u) + 1)
        return torch.clamp(action, self.low, self.high)

    def mode(self) -> Tensor:
        """The deterministic action: the squashed mean."""
        return self.squash(self.mean)

    def log_prob(self, u: Tensor) -> Tensor:
        """Log density of the action that u stands for, (...).

        log N(u) - sum log(1 - tanh(u)^2) - sum log((high - low)/2), with log(1 - tanh(u)^2) =
        2 (log 2 - u - softplus(-2u)), exact at any u (Haarnoja et al. 2018, appendix C, in the
        form that does not cancel).
        """
        squashing = 2 * (math.log(2) - u - functional.softplus(-2 * u))
        return (self._gaussian(u) - squashing).sum(-1)

    def entropy(self, noise: Tensor) -> Tensor:
        """One-sample Monte-Carlo estimate of the action's differential entropy, (...).

        Reparametrised, so its gradient is an unbiased estimate of the entropy's gradient. (The
        entropy of the Gaussian before squashing is another quantity: it grows without bound,
        while this one cannot exceed the log volume of the box.)
        """
        return -self.log_prob(self.sample(noise))

    def unsquash(self, action: Tensor) -> Tensor:
        """The u that stands for `action`, strictly inside (low, high)."""
        return torch.atanh(self._centred(action))

    def _gaussian(self, u: Tensor) -> Tensor:
        """Log density of u in each dimension, in units of the action."""
        z = (u - self.mean) * torch.exp(-self.log_std)
        scale = torch.log((self.high - self.low) * 0.5)
        return -0.5 * z.square() - self.log_std - _HALF_LOG_TWO_PI - scale

    def _centred(self, action: Tensor) -> Tensor:
        return 2 * (action - self.low) / (self.high - self.low) - 1


class ClippedGaussian(SquashedGaussian):
    """A Gaussian whose sample is cut off at the bounds, as in most PPO code.

    The action is low + (high - low)(clip(u, -1, 1) + 1)/2 and the density is that of u before the
    cut: samples beyond a bound count as different actions, although the car gets the same one.
    """

    def squash(self, u: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * 0.5 * (u.clamp(-1, 1) + 1)

    def log_prob(self, u: Tensor) -> Tensor:
        return self._gaussian(u).sum(-1)

    def unsquash(self, action: Tensor) -> Tensor:
        return self._centred(action)
