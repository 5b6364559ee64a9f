"""Running statistics of rewards and returns, and the scaling of rewards by them."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from common.rl.returns import EPSILON


@dataclass
class RunningMoments:
    """Mean and variance of all values so far, in float64, merged batch by batch (Chan et al. 1979).

    `squares` is the sum of squared deviations from the mean.
    """

    count: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def update(self, x: Tensor) -> None:
        """Add every element of `x`; an empty tensor changes nothing."""
        if x.numel():
            x = x.double()
            mean = x.mean()
            squares = (x - mean).square().sum()
            self.merge(RunningMoments(float(x.numel()), mean.item(), squares.item()))

    def merge(self, other: "RunningMoments") -> None:
        """Merge in everything that `other` has counted."""
        if not other.count:
            return
        total = self.count + other.count
        shift = other.mean - self.mean
        self.squares += other.squares + shift * shift * self.count * other.count / total
        self.mean += shift * other.count / total
        self.count = total

    @property
    def std(self) -> float:
        """Population standard deviation; 1 with fewer than two elements."""
        return math.sqrt(self.squares / self.count) if self.count > 1 else 1.0

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        self.count, self.mean, self.squares = (
            float(state[name]) for name in ("count", "mean", "squares")
        )


class ReturnScaler:
    """Divides rewards by the running standard deviation of discounted returns.

    For each stream, R = gamma R + r, which restarts at 0 after the end of an episode. The standard
    deviation is over every R of every active row so far. (Gymnasium's NormalizeReward computes the
    same, but is wrong under SAME_STEP autoreset.) A rollout is added first and then scaled by one
    number, so its advantages are comparable. No mean is subtracted, because that would change the
    task.

    `gather` takes the moments of this process for one rollout and returns those of all processes,
    in rank order, so that every process uses the same scale. By default there is one process.
    """

    def __init__(
        self,
        n_streams: int,
        gamma: float,
        gather: Callable[[RunningMoments], Iterable[RunningMoments]] = lambda moments: [moments],
    ) -> None:
        self.gamma, self.gather = gamma, gather
        self.moments = RunningMoments()
        self.running = torch.zeros(n_streams, dtype=torch.float64)

    def update(self, reward: Tensor, done: Tensor, active: Tensor) -> None:
        """Add a rollout: `reward`, `done` and `active` are (T, n_streams)."""
        returns = torch.empty_like(reward, dtype=torch.float64, device="cpu")
        reward, alive, active = reward.double().cpu(), ~done.cpu(), active.cpu()
        for t in range(len(reward)):
            # An inactive row has no reward and no return.
            self.running = torch.where(active[t], self.gamma * self.running + reward[t], 0.0)
            returns[t] = self.running
            self.running = self.running * alive[t]
        rollout = RunningMoments()
        rollout.update(returns[active])
        for part in self.gather(rollout):
            self.moments.merge(part)

    @property
    def scale(self) -> float:
        """The factor for rewards."""
        return 1.0 / (self.moments.std + EPSILON)

    def state_dict(self) -> dict[str, Any]:
        return {"moments": self.moments.state_dict(), "running": self.running.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moments.load_state_dict(state["moments"])
        self.running = state["running"].clone()
