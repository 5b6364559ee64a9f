"""What the heads read from the latent state: reward, continuation, telemetry, off the road.

Regression targets are standardised with statistics of the training split, which live in the
checkpoint, and squashed by symlog (Hafner et al. 2023): bends and stops are rare and large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rssm.config import CONTINUE, MOTION, OFF, REWARD, HeadConfig

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


class Predictions(NamedTuple):
    """What the heads predict from latents, in the data's units.

    Attributes:
        reward: (...).
        continue_prob: (...), the probability that the episode goes on.
        telemetry: (...) by name.
        off_prob: (...), the probability that all four wheels are off the road; None without that
            head.
    """

    reward: Tensor
    continue_prob: Tensor
    telemetry: dict[str, Tensor]
    off_prob: Tensor | None

    def by_head(self) -> dict[str, Tensor]:
        """The same by the names of the heads, as a batch's targets have them."""
        named = {REWARD: self.reward, **self.telemetry, CONTINUE: self.continue_prob}
        return named if self.off_prob is None else named | {OFF: self.off_prob}


class Heads(nn.Module):
    """One MLP each for reward, continuation and telemetry.

    Args:
        features: length of a latent state.
        telemetry_features: how much of it, from the front, the telemetry heads read.
        units, layers: of each MLP.
        config: which heads there are, with `telemetry` and `off_track` chosen.
    """

    def __init__(
        self, features: int, telemetry_features: int, units: int, layers: int, config: HeadConfig
    ) -> None:
        super().__init__()
        self.telemetry, self.has_off = config.telemetry, config.off_track
        self.regressed = (REWARD, *config.telemetry)
        self.width = BINS if config.regression == "twohot" else 1
        self.reward = mlp(features, units, layers, self.width)
        self.continuation = mlp(features, units, layers, 1)
        outputs = len(config.telemetry) * self.width + config.off_track
        self.telemetry_features = telemetry_features
        self.measure = mlp(telemetry_features, units, layers, outputs) if outputs else None
        self.register_buffer("mean", torch.zeros(len(self.regressed)))
        self.register_buffer("std", torch.ones(len(self.regressed)))

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
        off_logit = None
        values = [self.reward(features)]
        if self.measure is not None:
            measured = self.measure(features[..., : self.telemetry_features])
            if self.has_off:
                measured, off_logit = measured[..., :-1], measured[..., -1]
            values.append(measured)
        values = torch.cat(values, -1).unflatten(-1, (len(self.regressed), self.width))
        return Raw(values, self.continuation(features).squeeze(-1), off_logit)

    def predict(self, features: Tensor) -> Predictions:
        """Predictions (...) from latents (..., features), in the data's units."""
        raw = self(features)
        values = symexp(self._squashed(raw)) * self.std + self.mean
        reward, *telemetry = values.unbind(-1)
        return Predictions(
            reward=reward,
            continue_prob=torch.sigmoid(raw.continue_logit),
            telemetry=dict(zip(self.telemetry, telemetry, strict=True)),
            off_prob=None if raw.off_logit is None else torch.sigmoid(raw.off_logit),
        )

    @property
    def predicts_motion(self) -> bool:
        """Whether there are heads for the car's motion (`MOTION`)."""
        return set(MOTION) <= set(self.telemetry)

    def squashed_motion(self, features: Tensor) -> Tensor:
        """(..., 3), the motion (`MOTION`) predicted from latents, in squashed deviations."""
        return self._squashed(self(features))[..., self._motion_places]

    def squash_motion(self, motion: Tensor) -> Tensor:
        """Motion (..., 3) in the data's units as squashed deviations."""
        places = self._motion_places
        return symlog((motion - self.mean[places]) / self.std[places])

    def motion(self, features: Tensor) -> Tensor:
        """(..., 3), the motion (`MOTION`) predicted from latents, in units, units and rad."""
        places = self._motion_places
        return symexp(self.squashed_motion(features)) * self.std[places] + self.mean[places]

    @property
    def _motion_places(self) -> list[int]:
        return [self.regressed.index(name) for name in MOTION]

    def losses(self, features: Tensor, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Loss (...) per head, in nats or squared standard deviations.

        targets: (...) by name, in the units of the data; CONTINUE and OFF are 0 or 1.
        """
        raw = self(features)
        target = torch.stack([targets[name] for name in self.regressed], -1)
        target = symlog((target - self.mean) / self.std)
        if self.width > 1:
            log_probs = functional.log_softmax(raw.values, -1)
            errors = -(two_hot(target, self._bins()) * log_probs).sum(-1)
        else:
            errors = 0.5 * (raw.values.squeeze(-1) - target).square()
        losses = dict(zip(self.regressed, errors.unbind(-1), strict=True))
        logistic = functional.binary_cross_entropy_with_logits
        losses[CONTINUE] = logistic(raw.continue_logit, targets[CONTINUE], reduction="none")
        if raw.off_logit is not None:
            losses[OFF] = logistic(raw.off_logit, targets[OFF], reduction="none")
        return losses


class Raw(NamedTuple):
    """Outputs of the networks: values (..., regressed, width), logits (...)."""

    values: Tensor
    continue_logit: Tensor
    off_logit: Tensor | None


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
