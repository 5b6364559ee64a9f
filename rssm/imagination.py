"""Running ahead in latent space, without frames: by recorded actions or by a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rssm.model.core import State
from rssm.model.heads import CONTINUE, REWARD

if TYPE_CHECKING:
    from rssm.model.world_model import WorldModel

Policy = Callable[[State], Tensor]
"""Actions (B, actions) in a state (B, ...)."""


@dataclass(frozen=True)
class Imagined:
    """A future of H steps; row t is what action t led to.

    Attributes:
        state: (B, H, ...).
        actions: (B, H, actions).
        predictions: (B, H) by head name: reward, telemetry, and the probabilities of going on
            and of being off the road.
    """

    state: State
    actions: Tensor
    predictions: dict[str, Tensor]

    @property
    def reward(self) -> Tensor:
        """(B, H)."""
        return self.predictions[REWARD]

    @property
    def proceed(self) -> Tensor:
        """(B, H), the probability that the episode goes on."""
        return self.predictions[CONTINUE]


def imagine(
    model: WorldModel,
    state: State,
    actions: Tensor | Policy,
    horizon: int | None = None,
    *,
    noise: Tensor | None = None,
    sample: bool = True,
) -> Imagined:
    """The future that the model expects from `state`, by its prior alone.

    Args:
        state: (B, ...).
        actions: (B, H, actions), or a policy, which then needs `horizon`.
        horizon: number of steps H; by default as many as there are actions.
        noise: (B, H, ...) as `core.latent.noise` makes it; drawn from torch's global generator by
            default.
        sample: draw the stochastic state from the prior rather than take its mode.

    Raises:
        ValueError: a horizon that does not fit the actions.
    """
    state, taken = run_ahead(model, state, actions, horizon, noise=noise, sample=sample)
    return Imagined(state, taken, model.heads.predict(state.features))


def run_ahead(
    model: WorldModel,
    state: State,
    actions: Tensor | Policy,
    horizon: int | None = None,
    *,
    noise: Tensor | None = None,
    sample: bool = True,
) -> tuple[State, Tensor]:
    """States (B, H, ...) and actions (B, H, actions) of `imagine`, with nothing read from them."""
    given = None if callable(actions) else actions
    if given is not None:
        horizon = given.shape[1] if horizon is None else horizon
        if not 1 <= horizon <= given.shape[1]:
            raise ValueError(f"horizon is 1 to {given.shape[1]}, the actions given, not {horizon}")
    elif horizon is None or horizon < 1:
        raise ValueError("imagining with a policy needs a horizon of at least 1")
    core = model.core
    if sample and noise is None:
        noise = core.latent.noise((len(state.deter), horizon)).to(state.deter.device)
    deters, stochs, taken = [], [], []
    for t in range(horizon):
        action = actions(state) if given is None else given[:, t]
        deter = core.step(state, action)
        statistics = core.prior(deter)
        if sample:
            stoch = core.latent.sample(statistics, noise[:, t])
        else:
            stoch = core.latent.mode(statistics)
        state = State(deter, stoch)
        deters.append(deter)
        stochs.append(stoch)
        taken.append(action)
    return State(torch.stack(deters, 1), torch.stack(stochs, 1)), torch.stack(taken, 1)
