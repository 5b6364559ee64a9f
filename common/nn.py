"""The torch mathematics that more than one trainer uses: devices, squashed Gaussians, returns.

The only module in `common` that imports torch. Everything here is a pure function or a small
object over tensors; nothing knows about a world, a policy or a run.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.errors import ConfigError

EPSILON = 1e-8
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def choose_device(name: str = "auto") -> torch.device:
    """The device called `name`; `auto` takes CUDA, then Apple's MPS, then the CPU.

    Raises `ConfigError` for an unknown name and for a device that this machine lacks.
    """
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        name = "cuda" if cuda else "mps" if mps else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: {name!r} is not auto, cpu, cuda, cuda:<index> or mps") from None
    if device.type == "cuda" and not cuda:
        raise ConfigError(f"device: {name} was asked for, but torch finds no CUDA GPU here")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device: {name} does not exist; GPUs: {torch.cuda.device_count()}")
    if device.type == "mps" and not mps:
        raise ConfigError("device: mps was asked for, but torch finds no Apple GPU here")
    if device.type not in ("cpu", "cuda", "mps"):
        raise ConfigError(f"device: {name!r} is not auto, cpu, cuda, cuda:<index> or mps")
    return device


def orthogonal(layer: nn.Module, gain: float = math.sqrt(2), bias: float = 0.0) -> nn.Module:
    """Initialise a linear or convolutional `layer` orthogonally (Saxe et al. 2013); returns it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.constant_(layer.bias, bias)
    return layer


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
        Gaussian's entropy is not the squashed one's: it grows without bound, this cannot exceed
        the log volume of the box.)
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
    """A Gaussian whose sample is cut off at the bounds, as most PPO code has it.

    The action is low + (high - low)(clip(u, -1, 1) + 1)/2 and the density that of u before the cut:
    samples beyond a bound count as different actions although the world sees the same one.
    """

    def squash(self, u: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * 0.5 * (u.clamp(-1, 1) + 1)

    def log_prob(self, u: Tensor) -> Tensor:
        return self._gaussian(u).sum(-1)

    def unsquash(self, action: Tensor) -> Tensor:
        return self._centred(action)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    done: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Generalised advantage estimates (Schulman et al. 2016), all arguments and result (T, ...).

    `next_value[t]` is the value of the state that step t really led to: of the episode's own last
    observation where `done[t]`, not of the next episode's first. Two masks: a terminated state is
    worth nothing, `delta = r + gamma (1 - terminated) V' - V`; no sum crosses any ending,
    `A[t] = delta[t] + gamma lam (1 - done[t]) A[t+1]`.
    """
    delta = reward + gamma * next_value * ~terminated - value
    decay = gamma * lam * (~done).to(delta.dtype)
    advantage = torch.empty_like(delta)
    following = torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        following = delta[t] + decay[t] * following
        advantage[t] = following
    return advantage


def standardise(x: Tensor) -> Tensor:
    """(x - mean) / std over all elements; the std is the population's, so one element gives 0."""
    return (x - x.mean()) / (x.std(correction=0) + EPSILON)


@dataclass
class RunningMoments:
    """Mean and variance of everything seen, in float64, merged batch by batch (Chan et al. 1979).

    `squares` is the sum of squared deviations from the mean.
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def update(self, x: Tensor) -> None:
        """Take in every element of `x`; an empty one changes nothing."""
        if x.numel():
            x = x.double()
            mean = x.mean()
            squares = (x - mean).square().sum()
            self.merge(RunningMoments(float(x.numel()), mean.item(), squares.item()))

    def merge(self, other: "RunningMoments") -> None:
        """Take in everything that `other` has seen."""
        if not other.count:
            return
        total = self.count + other.count
        shift = other.mean - self.mean
        self.squares += other.squares + shift * shift * self.count * other.count / total
        self.mean += shift * other.count / total
        self.count = total

    @property
    def std(self) -> float:
        """Population standard deviation; 1 while fewer than two elements were seen."""
        return math.sqrt(self.squares / self.count) if self.count > 1 else 1.0

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.count, self.mean, self.squares = (
            float(state[name]) for name in ("count", "mean", "squares")
        )


class ReturnScaler:
    """Divides rewards by the running standard deviation of discounted returns.

    Per stream R = gamma R + r, started afresh after an ending; the std is over every R of every
    active row so far (the quantity of Gymnasium's NormalizeReward, which mishandles SAME_STEP
    autoreset). One rollout is taken in first and then scaled by a single number, so advantages
    inside it are comparable. No mean is subtracted: that would change the task.

    `gather` turns one process's moments of a rollout into those of all processes, in rank order,
    so that every process scales alike; by default there is only one.
    """

    def __init__(
        self,
        n_streams: int,
        gamma: float,
        gather: Callable[[RunningMoments], Iterable[RunningMoments]] = lambda own: [own],
    ) -> None:
        self.gamma, self.gather = gamma, gather
        self.moments = RunningMoments()
        self.running = torch.zeros(n_streams, dtype=torch.float64)

    def update(self, reward: Tensor, done: Tensor, active: Tensor) -> None:
        """Take in a rollout: `reward`, `done` and `active` are (T, n_streams)."""
        returns = torch.empty_like(reward, dtype=torch.float64, device="cpu")
        reward, alive, active = reward.double().cpu(), ~done.cpu(), active.cpu()
        for t in range(len(reward)):
            # An inactive row earns nothing and discounts nothing.
            self.running = torch.where(active[t], self.gamma * self.running + reward[t], 0.0)
            returns[t] = self.running
            self.running = self.running * alive[t]
        rollout = RunningMoments()
        rollout.update(returns[active])
        for part in self.gather(rollout):
            self.moments.merge(part)

    @property
    def scale(self) -> float:
        """What to multiply rewards by."""
        return 1.0 / (self.moments.std + EPSILON)

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self.moments.state_dict(), "running": self.running.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state["moments"])
        self.running = state["running"].clone()
