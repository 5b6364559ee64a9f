"""What is read from the latent state: reward, continuation, telemetry, off-track probability.

Regression targets are standardised with statistics of the training split, which live in the
checkpoint, and squashed by symlog (Hafner et al. 2023): bends and stops are rare and large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.schema import config_class
from rssm.config import MOTION, REGRESSED

REWARD = "reward"
CONTINUE = "continue"
OFF = "off"
"""Names of the heads that do not regress telemetry; OFF is all four wheels off the road."""

BINS = 101
BOUND = 4.0
"""Two-hot bins, evenly over symlog values of +-BOUND: +-53 standard deviations."""


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|)."""
    return torch.sign(x) * torch.log1p(x.abs())


def symexp(x: Tensor) -> Tensor:
    """The inverse of `symlog`."""
    return torch.sign(x) * torch.expm1(x.abs())


def two_hot(x: Tensor, bins: Tensor) -> Tensor:
    """(..., len(bins)) weights, of the two bins around x, whose mean is x (clipped to the bins)."""
    x = x.clamp(bins[0], bins[-1]).unsqueeze(-1)
    width = bins[1] - bins[0]
    return (1 - (x - bins).abs() / width).clamp(min=0)


@config_class
class HeadConfig:
    """Which heads there are and how they learn.

    Attributes:
        telemetry: names among `REGRESSED`; None for every one that the data has.
        motion: also regress how the car moved (`MOTION`), where the data has its pose.
        off_track: the off-track head; None where the data has its label.
        regression: symlog (squared error) or twohot (cross-entropy over bins).
    """

    telemetry: tuple[str, ...] | None = None
    motion: bool = False
    off_track: bool | None = None
    regression: Literal["symlog", "twohot"] = "symlog"

    def __post_init__(self) -> None:
        for name in self.telemetry or ():
            if name not in REGRESSED:
                raise ValueError(f"telemetry has {name!r}; there are {', '.join(REGRESSED)}")
        if self.telemetry is not None and len(set(self.telemetry)) < len(self.telemetry):
            raise ValueError("telemetry names a head twice")


class Heads(nn.Module):
    """One MLP each for reward, continuation and telemetry.

    Args:
        features: length of a latent state.
        seen: how much of it, from the front, the telemetry heads see.
        units, layers: of each MLP.
        telemetry: names to regress.
        off: whether there is an off-track head.
        regression: as in `HeadConfig`.
    """

    def __init__(
        self,
        features: int,
        seen: int,
        units: int,
        layers: int,
        telemetry: tuple[str, ...],
        off: bool,
        regression: str,
    ) -> None:
        super().__init__()
        self.telemetry, self.has_off = telemetry, off
        self.regressed = (REWARD, *telemetry)
        self.width = BINS if regression == "twohot" else 1
        self.reward = mlp(features, units, layers, self.width)
        self.proceed = mlp(features, units, layers, 1)
        outputs = len(telemetry) * self.width + off
        self.seen = seen
        self.measure = mlp(seen, units, layers, outputs) if outputs else None
        self.register_buffer("mean", torch.zeros(len(self.regressed)))
        self.register_buffer("std", torch.ones(len(self.regressed)))
        self.regression = regression

    @property
    def targets(self) -> tuple[tuple[str, ...], bool]:
        """Telemetry that is regressed, and whether there is an off-track head."""
        return self.telemetry, self.has_off

    def set_statistics(self, statistics: Mapping[str, tuple[float, float]]) -> None:
        """Standardise with these (mean, standard deviation) by name, from the training split."""
        for i, name in enumerate(self.regressed):
            mean, std = statistics[name]
            self.mean[i], self.std[i] = mean, max(std, 1e-6)

    def _bins(self) -> Tensor:
        return torch.linspace(-BOUND, BOUND, BINS, device=self.mean.device)

    def _squashed(self, raw: Raw) -> Tensor:
        """(..., regressed), the expected value before symexp."""
        if self.width > 1:
            return (functional.softmax(raw.values, -1) * self._bins()).sum(-1)
        return raw.values.squeeze(-1)

    def forward(self, features: Tensor) -> Raw:
        """Raw outputs for latents (..., features)."""
        off = None
        values = [self.reward(features)]
        if self.measure is not None:
            measured = self.measure(features[..., : self.seen])
            if self.has_off:
                measured, off = measured[..., :-1], measured[..., -1]
            values.append(measured)
        values = torch.cat(values, -1).unflatten(-1, (len(self.regressed), self.width))
        return Raw(values, self.proceed(features).squeeze(-1), off)

    def predict(self, features: Tensor) -> dict[str, Tensor]:
        """Predictions (...) by name, in the data's units; CONTINUE and OFF are probabilities."""
        raw = self(features)
        values = symexp(self._squashed(raw)) * self.std + self.mean
        predicted = dict(zip(self.regressed, values.unbind(-1), strict=True))
        predicted[CONTINUE] = torch.sigmoid(raw.proceed)
        if raw.off is not None:
            predicted[OFF] = torch.sigmoid(raw.off)
        return predicted

    def motion(self, features: Tensor) -> Tensor:
        """(..., 3), the motion (`MOTION`) read from latents, in standard deviations."""
        places = [self.regressed.index(name) for name in MOTION]
        return self._squashed(self(features))[..., places]

    def losses(self, features: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss (...) per head, in nats or squared standard deviations.

        targets: (...) by name, in the units of the data; CONTINUE and OFF are 0 or 1.
        """
        raw = self(features)
        wanted = torch.stack([targets[name] for name in self.regressed], -1)
        wanted = symlog((wanted - self.mean) / self.std)
        if self.width > 1:
            log_probs = functional.log_softmax(raw.values, -1)
            errors = -(two_hot(wanted, self._bins()) * log_probs).sum(-1)
        else:
            errors = 0.5 * (raw.values.squeeze(-1) - wanted).square()
        losses = dict(zip(self.regressed, errors.unbind(-1), strict=True))
        logistic = functional.binary_cross_entropy_with_logits
        losses[CONTINUE] = logistic(raw.proceed, targets[CONTINUE], reduction="none")
        if raw.off is not None:
            losses[OFF] = logistic(raw.off, targets[OFF], reduction="none")
        return losses


@dataclass(frozen=True)
class Raw:
    """Outputs of the networks: values (..., regressed, width), logits (...)."""

    values: Tensor
    proceed: Tensor
    off: Tensor | None


def mlp(inputs: int, units: int, layers: int, outputs: int) -> nn.Sequential:
    """Linear, LayerNorm, SiLU, `layers` times, and a linear output that begins at zero."""
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(inputs, units, bias=False), nn.LayerNorm(units), nn.SiLU()]
        inputs = units
    last = nn.Linear(inputs, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*parts, last)
