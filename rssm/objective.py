"""The world model's objective, as pure functions (Hafner et al. 2019, 2021, 2023)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from common.schema import config_class
from rssm.config import MOTION, REGRESSED
from rssm.model.heads import CONTINUE, OFF, REWARD

Weight = Annotated[float, Field(ge=0, le=1e6)]


@config_class
class LossConfig:
    """Weights of the parts of the loss.

    Attributes:
        image: of the squared error summed over a frame's pixels and channels, in [0, 1] units. At
            64 x 64 the papers use 1 (a Gaussian with variance 1/2); (64 / 96)^2 keeps the picture's
            weight against the KL.
        reward, proceed, telemetry, off_track: of the heads; telemetry is per regressed name.
        dynamics, representation: of the KL that trains the prior and of the one that trains the
            posterior; their ratio is the papers' balance.
        free_nats: KL per row below which there is nothing to gain.
        heads: weights of single heads by name, such as {progress_delta: 2}, instead of those above.
        perceptual: of the squared distance between the encoder's features of decoded and true
            frames, per feature; the encoder does not learn from it.
        image_every: one row in this many is decoded, each in its turn from update to update.
            Neighbours look alike and decoding is half of the work of an update, so that the time
            goes further with more updates of fewer pictures.
        overshoot: of the losses of pictures and heads on what the prior alone makes of the next
            rows, against their own weights; 0 for none. One step ahead, which the KL trains, says
            little about what becomes of a speed in fifteen. Heads alone would do for telemetry, but
            then what is told and what is shown come apart.
        overshoot_rows: how far.
        kl_anneal: updates over which the weight of both KLs rises from 0 to 1; 0 for none.
    """

    image: Weight = (64 / 96) ** 2
    reward: Weight = 1.0
    proceed: Weight = 1.0
    telemetry: Weight = 1.0
    off_track: Weight = 1.0
    dynamics: Weight = 1.0
    representation: Weight = 0.1
    free_nats: Weight = 1.0
    kl_anneal: Annotated[int, Field(ge=0, le=10**6)] = 0
    heads: dict[str, Weight] = field(default_factory=dict)
    perceptual: Weight = 0.0
    image_every: Annotated[int, Field(ge=1, le=64)] = 1
    overshoot: Weight = 0.0
    overshoot_rows: Annotated[int, Field(ge=1, le=1000)] = 15

    def __post_init__(self) -> None:
        weights = ("image", "reward", "proceed", "telemetry", "off_track", "dynamics",
                   "representation", "perceptual")  # fmt: skip
        if not any(getattr(self, name) for name in weights) and not any(self.heads.values()):
            raise ValueError(f"{', '.join(weights)} are all 0: nothing is learnt")
        known = (REWARD, CONTINUE, OFF, *REGRESSED, *MOTION)
        for name in self.heads:
            if name not in known:
                raise ValueError(f"heads has {name!r}; there are {', '.join(known)}")

    def of_head(self, name: str) -> float:
        """Weight of a head's loss."""
        common = {REWARD: self.reward, CONTINUE: self.proceed, OFF: self.off_track}
        return self.heads.get(name, common.get(name, self.telemetry))

    def kl_scale(self, update: int) -> float:
        """Weight of both KLs in update number `update`, from 0 on."""
        return min((update + 1) / self.kl_anneal, 1.0) if self.kl_anneal else 1.0


def kl_losses(
    kl: Callable[[Tensor, Tensor], Tensor], posterior: Tensor, prior: Tensor, free_nats: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Dynamics loss, representation loss, and the KL itself, each (...).

    dynamics = max(free, KL(sg(posterior) || prior)) trains the prior, representation =
    max(free, KL(posterior || sg(prior))) the posterior.
    """
    dynamics = kl(posterior.detach(), prior)
    representation = kl(posterior, prior.detach())
    return (
        dynamics.clamp(min=free_nats),
        representation.clamp(min=free_nats),
        dynamics.detach(),
    )


def weighted_sum(losses: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Sum over the parts of weight x mean."""
    parts = [weights[name] * loss.mean() for name, loss in losses.items() if weights[name]]
    return torch.stack(parts).sum()
