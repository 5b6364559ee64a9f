"""Running ahead in latent space, without frames: by recorded actions or by a policy."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rssm.model.core import Core, State
from rssm.model.heads import Predictions


class LatentPolicy(Protocol):
    """A policy that acts on the model's states, as `common.rl.policy` has policies act on frames.

    Gradients flow through `act`, if its action has any.
    """

    def initial(self, n: int) -> Any:
        """The carry of `n` cars before their first decision."""

    def act(
        self, carry: Any, observation: State, is_first: Tensor, deterministic: bool
    ) -> tuple[Tensor, Any]:
        """Actions (B, actions) in states (B, ...), and the carry for the next decision."""


class Rollout(NamedTuple):
    """States along H imagined steps.

    Attributes:
        start: (B, ...), the state before the first action.
        state: (B, H, ...); row t is what action t led to.
        actions: (B, H, actions).
        carry: of the policy after the last action; None where actions were recorded.
    """

    start: State
    state: State
    actions: Tensor
    carry: Any


class Imagined(NamedTuple):
    """A future of H steps. Row t of everything but `start` and `states` is what action t led to.

    Attributes:
        start: (B, ...), the state before the first action.
        state: (B, H, ...).
        actions: (B, H, actions).
        reward: (B, H).
        continue_prob: (B, H), the probability that the episode goes on.
        telemetry: (B, H) by name, in the data's units.
        off_prob: (B, H), the probability that all wheels are off the road; None without that head.
        frames: (B, H, size, size, channels) float in [0, 1], if they were asked for.
        carry: of the policy after the last action, to imagine on from; None without a policy.
    """

    start: State
    state: State
    actions: Tensor
    reward: Tensor
    continue_prob: Tensor
    telemetry: dict[str, Tensor]
    off_prob: Tensor | None
    frames: Tensor | None
    carry: Any

    @property
    def states(self) -> State:
        """(B, H + 1, ...), `start` and the states that it led to: those that an actor and a critic
        look at. Action t is taken in row t and leads to row t + 1."""
        pairs = zip(self.start, self.state, strict=True)
        return State(*(torch.cat((first.unsqueeze(1), rest), 1) for first, rest in pairs))

    @property
    def predictions(self) -> Predictions:
        """What the heads predict, as they return it."""
        return Predictions(self.reward, self.continue_prob, self.telemetry, self.off_prob)


def roll_out(
    core: Core,
    state: State,
    actions: Tensor | LatentPolicy,
    horizon: int | None = None,
    *,
    noise: Tensor | None = None,
    sample: bool = True,
    carry: Any = None,
    deterministic: bool = False,
) -> Rollout:
    """Run ahead from `state` by the prior alone.

    Args:
        core: of the world model.
        state: (B, ...).
        actions: (B, H, actions), or a policy, which then needs `horizon`.
        horizon: number of steps H; by default as many as there are actions.
        noise: (B, H, ...) as `core.latent.noise` makes it; drawn from torch's global generator by
            default.
        sample: draw the stochastic state from the prior rather than take its mode.
        carry: of the policy, from an earlier rollout; a fresh one by default.
        deterministic: the policy's most likely action rather than a sample.

    Raises:
        ValueError: a horizon that does not fit the actions.
    """
    recorded = actions if isinstance(actions, Tensor) else None
    count = len(state.deter)
    if recorded is not None:
        horizon = recorded.shape[1] if horizon is None else horizon
        if not 1 <= horizon <= recorded.shape[1]:
            raise ValueError(
                f"horizon is 1 to {recorded.shape[1]}, the number of actions, not {horizon}"
            )
    elif horizon is None or horizon < 1:
        raise ValueError("imagining with a policy needs a horizon of at least 1")
    if sample and noise is None:
        noise = core.latent.noise((count, horizon)).to(state.deter.device)
    is_first = torch.zeros(count, dtype=torch.bool, device=state.deter.device)
    if recorded is None and carry is None:
        carry, is_first = actions.initial(count), ~is_first
    start, deters, stochs, acted = state, [], [], []
    for t in range(horizon):
        if recorded is None:
            action, carry = actions.act(carry, state, is_first, deterministic)
            is_first = torch.zeros_like(is_first)
        else:
            action = recorded[:, t]
        deter = core.step(state, action)
        statistics = core.prior(deter)
        if sample:
            stoch = core.latent.sample(statistics, noise[:, t])
        else:
            stoch = core.latent.mode(statistics)
        state = State(deter, stoch)
        deters.append(deter)
        stochs.append(stoch)
        acted.append(action)
    states = State(torch.stack(deters, 1), torch.stack(stochs, 1))
    return Rollout(start, states, torch.stack(acted, 1), carry)
