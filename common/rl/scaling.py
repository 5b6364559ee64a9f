"""Running statistics of rewards and returns, and the scaling that they give."""

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
        """Take in every element of `x`; an empty one changes nothing."""
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
        gather: Callable[[RunningMoments], Iterable[RunningMoments]] = lambda moments: [moments],
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
